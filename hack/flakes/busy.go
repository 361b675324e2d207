package main

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
)

// spin keeps a processor busy while the process with the ID in its argument lives. So it does not outlive this program even if that is killed.
const spin = `while kill -0 "$0"; do for ((i = 0; i < 100000; i++)); do :; done; done 2>/dev/null`

// load holds the processes that keep processors busy.
type load []*exec.Cmd

func startLoad(n int) (load, error) {
	var l load
	for range n {
		cmd := exec.Command("bash", "-c", spin, strconv.Itoa(os.Getpid()))
		if err := cmd.Start(); err != nil {
			l.stop()
			return nil, fmt.Errorf("start a busy process: %w", err)
		}
		l = append(l, cmd)
	}
	return l, nil
}

// stop ends the processes and waits until they have ended.
func (l load) stop() {
	for _, cmd := range l {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
}
