package mps

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/gshare-dev/gshare/vgpu/node/process"
)

// processes finds those of this slice's MPS by the kernel's word: the daemon, which also an earlier agent may have started, and
// servers, which outlive a daemon that was killed.
func (c control) processes() (daemons, servers []int) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, nil
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		switch process.Program(pid) {
		case filepath.Base(c.program()):
			if c.owns(pid) && background(pid) && ofAgent(pid) {
				daemons = append(daemons, pid)
			}
		case Server:
			if c.owns(pid) {
				servers = append(servers, pid)
			}
		}
	}
	return daemons, servers
}

// owns says that a process was started for this slice, and not by a tenant.
func (c control) owns(pid int) bool {
	environment, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	return err == nil && !inOtherPod(pid) && bytes.Contains(append([]byte{0}, environment...), []byte("\x00"+pipeVariable+c.Pipe(c.slice)+"\x00"))
}

// background tells a daemon from a program that gives it commands.
func background(pid int) bool { return startedWith(pid, "-d") }

// startedWith says that some of the arguments that a process was started with are these, one after the other.
func startedWith(pid int, arguments ...string) bool {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return err == nil && strings.Contains("\x00"+string(line), "\x00"+strings.Join(arguments, "\x00")+"\x00")
}

// dying is how long a process may take to end once it is killed; one that hangs in the driver may take for ever.
const dying = time.Second

// kill ends the daemon and its servers without their help, and waits until they are gone.
func (c control) kill() (all error) {
	daemons, servers := c.processes()
	for _, pid := range append(daemons, servers...) {
		p, err := process.Open(pid)
		if err != nil {
			continue // it has ended
		}
		if c.owns(pid) { // the PID is still that process's
			all = errors.Join(all, p.Kill(), gone(p))
		}
		p.Close()
	}
	return errors.Join(all, c.clear())
}

func gone(p process.Process) error {
	for end := time.Now().Add(dying); p.Alive(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			return fmt.Errorf("process %d does not end", p.PID)
		}
	}
	return nil
}
