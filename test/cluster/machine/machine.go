// Package machine creates machines for tests from Linux namespaces: each has its own processes, mounts, network, host name and /run, on
// top of the files of the real machine. All of it ends when the process that created it ends, for whatever reason.
//
// What a machine's programs write to /etc and /var goes into the machine's own directory, and survives a reboot. The rest of the file
// system is shared with the real machine.
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

// Config configures a Machine, the Linux namespaces that a test uses like a machine of its own.
type Config struct {
	Name   string // host name, and name of the machine's directory
	Init   string // path of the compiled init/init.c
	Shared string // directory that the machine sees unchanged, under the same path; contains the machine's own directory
	Logs   string // directory for the logs of the machine's programs
}

// Machine is a set of Linux namespaces that tests use like a machine of its own. Its methods may be called from any goroutine, but not
// during Reboot.
type Machine struct {
	Config

	init *exec.Cmd // process 1

	mu        sync.Mutex // guards processes
	processes []*Process
}

// ErrNotSupported means that the kernel, or a container around the caller, does not allow the namespaces of a machine.
var ErrNotSupported = errors.New("namespaces for test machines are not allowed")

// CheckSupported returns ErrNotSupported with a reason unless the caller may create the namespaces of a machine.
func CheckSupported() error {
	command := exec.Command("true")
	command.SysProcAttr = &syscall.SysProcAttr{Cloneflags: namespaces}
	return markUnsupported(command.Run())
}

// Boot creates a Machine that runs nothing but its process 1.
func Boot(c Config) (*Machine, error) {
	m := &Machine{Config: c}
	if err := m.boot(); err != nil {
		return nil, fmt.Errorf("boot machine %s: %w", c.Name, markUnsupported(err))
	}
	return m, nil
}

// markUnsupported wraps ErrNotSupported around errors that mean missing privileges or file systems: EPERM, ENODEV and EINVAL.
func markUnsupported(err error) error {
	if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENODEV) || errors.Is(err, syscall.EINVAL) {
		return fmt.Errorf("%w: %w", ErrNotSupported, err)
	}
	return err
}

// DataDir returns the directory in which the machine's changes to /etc and /var are stored.
func (m *Machine) DataDir() string { return filepath.Join(m.Shared, m.Name) }

// PID returns the process ID of the machine's process 1, as the caller sees it.
func (m *Machine) PID() int { return m.init.Process.Pid }

// HostPath converts a path on the machine to one that the caller can open, or dial if it is a socket. Symbolic links with absolute targets
// would lead out of the machine, so /var/run has to be written as /run.
func (m *Machine) HostPath(path string) string {
	return filepath.Join(fmt.Sprintf("/proc/%d/root", m.PID()), path)
}

func (m *Machine) boot() error {
	if err := m.startInit(); err != nil {
		return err
	}
	if err := m.runInNamespaces(mountSpace|hostSpace, m.setUpMounts); err != nil {
		m.Halt()
		return err
	}
	return nil
}

// startInit starts the machine's process 1 in new namespaces and waits until it has made its mounts private.
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

// Halt kills every process of the machine at once, like a power failure, and waits until all have ended. A second call does nothing.
func (m *Machine) Halt() {
	if m.init.Process == nil {
		return // Boot or Reboot has failed
	}
	m.mu.Lock()
	processes := m.processes
	m.processes = nil
	m.mu.Unlock()
	for _, p := range processes {
		p.setStopRequested()
	}
	_ = m.init.Process.Kill() // fails only if the process has already ended
	for _, p := range processes {
		<-p.Done()
	}
	_ = m.init.Wait()
}

// Reboot halts the machine and boots it again with an empty /run. It does not restart programs.
func (m *Machine) Reboot() error {
	m.Halt()
	if err := m.boot(); err != nil {
		return fmt.Errorf("reboot machine %s: %w", m.Name, err)
	}
	return nil
}
