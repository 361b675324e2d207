// Package machine makes Linux machines out of namespaces: each has its own processes, mounts, network, host name and
// /run, over the files of the real machine. All of it ends when the process that made it ends, however that dies.
//
// What a machine's programs write to /etc and /var goes into the machine's folder and is still there after a reboot.
// Everything else of the file system is the real machine's.
package machine

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
)

// Config describes a machine.
type Config struct {
	Name   string // its host name, and the name of its folder
	Init   string // path of the program of init/init.c
	Shared string // folder that the machine sees as it is, under the same path; holds the machine's own folder
	Logs   string // folder for the logs of its programs
}

// Machine is a running machine. Its methods may be called from any goroutine, but not during Reboot.
type Machine struct {
	Config

	init *exec.Cmd // process 1

	mu        sync.Mutex // guards processes
	processes []*Process
}

// ErrNotSupported reports that the kernel, or a container around the caller, does not allow the namespaces of a machine.
var ErrNotSupported = errors.New("no machines of namespaces are allowed here")

// Probe returns ErrNotSupported, with a reason, where the namespaces of a machine cannot be made.
func Probe() error {
	command := exec.Command("true")
	command.SysProcAttr = &syscall.SysProcAttr{Cloneflags: namespaces}
	return explain(command.Run())
}

// Boot starts a machine that runs nothing but its process 1.
func Boot(c Config) (*Machine, error) {
	m := &Machine{Config: c}
	if err := m.boot(); err != nil {
		return nil, fmt.Errorf("boot machine %s: %w", c.Name, explain(err))
	}
	return m, nil
}

// explain adds ErrNotSupported to errors that mean it: no rights, no such file system, no overlay on this one.
func explain(err error) error {
	if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENODEV) || errors.Is(err, syscall.EINVAL) {
		return fmt.Errorf("%w: %w", ErrNotSupported, err)
	}
	return err
}

// Folder returns where the machine keeps what it writes.
func (m *Machine) Folder() string { return filepath.Join(m.Shared, m.Name) }

// PID returns the number of the machine's process 1, as its maker sees it.
func (m *Machine) PID() int { return m.init.Process.Pid }

// Path makes a path on the machine one that the caller can open, or dial if it is a socket. Links with absolute
// targets lead out of the machine: /var/run has to be written /run.
func (m *Machine) Path(path string) string {
	return filepath.Join(fmt.Sprintf("/proc/%d/root", m.PID()), path)
}

func (m *Machine) boot() error {
	if err := m.startInit(); err != nil {
		return err
	}
	if err := m.inside(mountSpace|hostSpace, m.setUp); err != nil {
		m.Halt()
		return err
	}
	return nil
}

// startInit returns when process 1 has made its mounts private.
func (m *Machine) startInit() error {
	m.init = exec.Command(m.Init, "machine")
	m.init.Dir = "/"
	m.init.Stderr = os.Stderr
	m.init.SysProcAttr = &syscall.SysProcAttr{
		Setpgid:    true,
		Cloneflags: namespaces,
	}
	if _, err := m.init.StdinPipe(); err != nil { // held open until this process ends
		return err
	}
	stdout, err := m.init.StdoutPipe()
	if err != nil {
		return err
	}
	if err := m.init.Start(); err != nil {
		return err
	}
	if _, err := stdout.Read(make([]byte, 1)); err != nil {
		m.Halt()
		return errors.New("process 1 ended")
	}
	return nil
}

// Halt ends every process of the machine at once, as a power cut does, and returns when all are gone. A second call
// does nothing.
func (m *Machine) Halt() {
	if m.init.Process == nil {
		return // a boot has failed
	}
	m.mu.Lock()
	processes := m.processes
	m.processes = nil
	m.mu.Unlock()
	for _, p := range processes {
		p.expectEnd()
	}
	_ = m.init.Process.Kill() // fails only if it has ended
	for _, p := range processes {
		<-p.Done()
	}
	_ = m.init.Wait()
}

// Reboot halts the machine and boots it again, without its programs and with an empty /run.
func (m *Machine) Reboot() error {
	m.Halt()
	if err := m.boot(); err != nil {
		return fmt.Errorf("reboot machine %s: %w", m.Name, err)
	}
	return nil
}
