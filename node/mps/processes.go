package mps

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/gshare-dev/gshare/node/cgroup"
	"github.com/gshare-dev/gshare/node/process"
)

// A tenant can choose any name, arguments and environment for a process. The user and the pod of a process, however, are known from the
// kernel.

// findProcesses returns the PIDs of the slice's MPS daemons and servers, no matter who started them. Servers survive a daemon that was
// killed.
func (c control) findProcesses() (daemons, servers []int) {
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
			if hasAgentUser(pid) && c.isProcessOfSlice(pid) && hasArguments(pid, "-d") { // without -d it is a client that sends commands
				daemons = append(daemons, pid)
			}
		case ServerProgram:
			if c.isProcessOfSlice(pid) {
				servers = append(servers, pid)
			}
		}
	}
	return daemons, servers
}

// isProcessOfSlice reports whether a process was started for the slice, according to its environment, and not by a tenant.
func (c control) isProcessOfSlice(pid int) bool {
	if isInOtherPod(pid) {
		return false // checked first: reading the memory of a tenant's process can take as long as the tenant likes
	}
	environment, err := process.ReadFile(pid, "environ")
	return err == nil && bytes.Contains(append([]byte{0}, environment...), []byte("\x00"+pipeVariable+c.PipeDir(c.slice)+"\x00"))
}

// hasArguments reports whether the command line of a process contains the given arguments in a row.
func hasArguments(pid int, arguments ...string) bool {
	line, err := process.ReadFile(pid, "cmdline")
	return err == nil && strings.Contains("\x00"+string(line), "\x00"+strings.Join(arguments, "\x00")+"\x00")
}

// hasAgentUser reports whether a process runs as the agent's user, as MPS daemons do. The user of MPS servers depends on the driver.
func hasAgentUser(pid int) bool {
	uid, err := process.User(pid)
	return err == nil && uid == os.Getuid()
}

// isInOtherPod reports whether a process is in another pod than the agent, or in an unknown pod. A daemon is in the agent's pod until it is
// moved to the detached cgroup, and then in none.
func isInOtherPod(pid int) bool {
	c, err := containerOf(pid)
	if errors.Is(err, cgroup.ErrNoContainer) {
		return false
	}
	own, _ := containerOf(os.Getpid())
	return err != nil || c.PodUID != own.PodUID
}

func containerOf(pid int) (cgroup.Container, error) {
	m, err := cgroup.Of(pid)
	if err != nil {
		return cgroup.Container{}, err
	}
	return m.Container()
}

// killTimeout is how long a killed process may take to end. One that hangs in the driver may never end.
const killTimeout = time.Second

// killAll kills the slice's daemon and servers, waits until they have ended, and removes their pipes.
func (c control) killAll() (all error) {
	daemons, servers := c.findProcesses()
	for _, pid := range append(daemons, servers...) {
		p, err := process.Open(pid)
		if err != nil {
			continue // it has ended
		}
		if c.isProcessOfSlice(pid) { // the PID has not been reused
			all = errors.Join(all, p.Kill(), waitForExit(p))
		}
		p.Close()
	}
	return errors.Join(all, c.removePipes())
}

// waitForExit blocks until a process has ended. It returns an error after killTimeout.
func waitForExit(p process.Process) error {
	for end := time.Now().Add(killTimeout); p.Alive(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			return fmt.Errorf("process %d has not ended %v after SIGKILL", p.PID, killTimeout)
		}
	}
	return nil
}

// removePipes removes the pipes of a daemon that has ended: clients that find them would hang or fail, and so would the next daemon.
// Directories that containers may have mounted stay, as a mount would not follow a new directory of the same name. Since tenants can write
// to them, links in them are never followed out of the directory.
func (c control) removePipes() error {
	return errors.Join(removePipesIn(c.PipeDir(c.slice)), removePipesIn(c.ClientDir(c.slice)))
}

func removePipesIn(dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return ignoreNotExist(err)
	}
	defer root.Close()
	return removeContents(root, ".")
}

// removeContents removes what a directory contains, except for directories that containers may have mounted, and their parents.
func removeContents(root *os.Root, dir string) (all error) {
	entries, err := fs.ReadDir(root.FS(), dir)
	all = ignoreNotExist(err)
	for _, e := range entries {
		name := path.Join(dir, e.Name())
		switch {
		case !e.IsDir() || name != serverName && !isNamespaceDir(name):
			all = errors.Join(all, root.RemoveAll(name))
		case isNamespaceDir(name):
			_ = removeContents(root, name) // may fail: the tenant can create files meanwhile, which must not keep the next daemon from starting
		default:
			all = errors.Join(all, removeContents(root, name))
		}
	}
	return all
}

// isNamespaceDir reports whether a path relative to a slice's pipe directory is the directory of an MPS v3 namespace.
func isNamespaceDir(name string) bool { return path.Dir(name) == serverName }
