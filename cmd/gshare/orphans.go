//go:build linux

package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/gshare-dev/gshare/node/process"
)

// parentVariable is the environment variable by which the processes that a gshare serve or profile starts name it, and all that they start in
// turn. The kernel ends the first process of a server with its parent, but not those behind a wrapper such as a shell, which would keep their
// share.
const parentVariable = "GSHARE_PARENT"

// parentID returns the identity of a process in a PID namespace: PID and start time are of one process until the next boot.
func parentID(pid int) (string, error) {
	namespace, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return "", err
	}
	start, err := process.StartTime(pid)
	return fmt.Sprintf("%s %d %d", namespace, pid, start), err
}

// claimChildren makes this process the parent of the servers that it starts, and ends what servers of parents that have died left. It returns
// the names of the programs that it has ended.
func claimChildren() (ended []string, err error) {
	own, err := parentID(os.Getpid())
	if err != nil {
		return nil, err
	}
	if err := os.Setenv(parentVariable, own); err != nil {
		return nil, err
	}
	for pid := range orphans() {
		p, err := process.Open(pid)
		if err != nil {
			continue // it has ended
		}
		if orphans()[pid] { // the handle is not of another process that has got its PID
			name := process.Program(pid)
			if p.Kill() == nil {
				p.Wait()
				ended = append(ended, name)
			}
		}
		p.Close()
	}
	return ended, nil
}

// orphans returns the processes of this user and PID namespace whose parent, as their environment names it, has ended.
func orphans() map[int]bool {
	namespace, _ := os.Readlink("/proc/self/ns/pid")
	found := map[int]bool{}
	_ = process.EachEnvironment(func(pid int, variables []string) { // without /proc there are none
		for _, v := range variables {
			value, ok := strings.CutPrefix(v, parentVariable+"=")
			if !ok || !strings.HasPrefix(value, namespace+" ") {
				continue // in a container, a parent has another PID
			}
			var parent int
			if _, err := fmt.Sscanf(value[len(namespace):], " %d", &parent); err != nil {
				continue
			}
			id, err := parentID(parent)
			uid, userErr := process.User(pid)
			gone := err != nil && !alive(parent) || err == nil && id != value
			if gone && userErr == nil && uid == os.Getuid() {
				found[pid] = true
			}
		}
	})
	return found
}

// alive reports whether a process has the PID, as far as can be told.
func alive(pid int) bool {
	_, err := os.Stat(fmt.Sprintf("/proc/%d", pid))
	return err == nil || !os.IsNotExist(err)
}
