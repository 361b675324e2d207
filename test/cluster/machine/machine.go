// Package machine creates machines for tests from Linux namespaces: each has its own processes, mounts, network, host name and /run, on
// top of the files of the real machine. All of it ends when the process that created it ends, for whatever reason.
//
// What a machine's programs write to /etc and /var goes into the machine's own directory, and survives a reboot. The rest of the file
// system is shared with the real machine.
package machine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
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

// Sets of namespaces.
const (
	mountSpace   = unix.CLONE_NEWNS
	networkSpace = unix.CLONE_NEWNET
	hostSpace    = unix.CLONE_NEWUTS
	namespaces   = mountSpace | networkSpace | hostSpace | unix.CLONE_NEWPID | unix.CLONE_NEWIPC
)

// runInNamespaces calls f on a thread that has entered some of the machine's namespaces. Processes that f starts run in them, and are
// children of this process. A PID namespace applies only to those children, not to the thread.
func (m *Machine) runInNamespaces(spaces int, f func() error) error {
	result := make(chan error)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() { // the main thread cannot end, so keep it occupied until another thread is used
			defer runtime.UnlockOSThread()
			result <- m.runInNamespaces(spaces, f)
			return
		}
		result <- m.enterNamespaces(spaces, f) // the thread is locked and ends with the goroutine
	}()
	return <-result
}

func (m *Machine) enterNamespaces(spaces int, f func() error) error {
	init, err := unix.PidfdOpen(m.PID(), unix.PIDFD_NONBLOCK)
	if err != nil {
		return fmt.Errorf("find machine %s: %w", m.Name, err)
	}
	defer unix.Close(init)
	if spaces&mountSpace != 0 {
		if err := unix.Unshare(unix.CLONE_FS); err != nil { // a thread that shares its file system attributes cannot enter another mount namespace
			return fmt.Errorf("unshare the working directory: %w", err)
		}
	}
	if err := unix.Setns(init, spaces); err != nil {
		return fmt.Errorf("enter machine %s: %w", m.Name, err)
	}
	return f()
}

// Run runs a program on the machine, waits for its end and returns its standard output. An error includes its standard error.
func (m *Machine) Run(ctx context.Context, name string, args ...string) ([]byte, error) {
	return m.run(namespaces, exec.CommandContext(ctx, name, args...))
}

func (m *Machine) run(spaces int, command *exec.Cmd) ([]byte, error) {
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	err := m.runInNamespaces(spaces, command.Start)
	if err == nil {
		err = command.Wait()
	}
	if err != nil {
		err = fmt.Errorf("%s on %s: %w: %s", command, m.Name, err, bytes.TrimSpace(stderr.Bytes()))
	}
	return stdout.Bytes(), err
}

// ConnectVeth connects this machine to another one by a pair of virtual Ethernet interfaces (veth), and replaces existing interfaces of
// the same name. The kernel removes the pair when either machine is halted.
func (m *Machine) ConnectVeth(ctx context.Context, port string, other *Machine, otherPort string) error {
	ip := func(args ...string) error { // run outside the machine's PID namespace, where the other machine's PID is known
		_, err := m.run(networkSpace, exec.CommandContext(ctx, "ip", args...))
		return err
	}
	_ = ip("link", "delete", port) // fails if there is no such interface
	return ip("link", "add", port, "type", "veth", "peer", "name", otherPort, "netns", strconv.Itoa(other.PID()))
}

// Dial connects to an address from inside the machine's network namespace.
func (m *Machine) Dial(ctx context.Context, network, address string) (connection net.Conn, err error) {
	err = m.runInNamespaces(networkSpace, func() error {
		connection, err = new(net.Dialer).DialContext(ctx, network, address)
		return err
	})
	return connection, err
}

// sysctls are system-wide kernel settings that a kubelet would change. Files with the desired values are mounted over them, so that the
// kubelet finds them as desired, and the real machine's kernel keeps its settings.
var sysctls = map[string]string{
	"/proc/sys/vm/overcommit_memory":      "1",
	"/proc/sys/vm/panic_on_oom":           "0",
	"/proc/sys/kernel/panic":              "10",
	"/proc/sys/kernel/panic_on_oops":      "1",
	"/proc/sys/kernel/keys/root_maxkeys":  "1000000",
	"/proc/sys/kernel/keys/root_maxbytes": "25000000",
}

// bindMounted are directories that are bind-mounted from the real file system, since containerd cannot mount its overlays on an overlay.
var bindMounted = []string{"/var/lib/containerd", "/var/lib/kubelet"}

// setUpMounts sets the host name and mounts the machine's file systems. It runs inside the machine's namespaces.
func (m *Machine) setUpMounts() error {
	if err := unix.Sethostname([]byte(m.Name)); err != nil {
		return fmt.Errorf("set host name: %w", err)
	}
	for _, step := range []func() error{m.mountRun, m.mountOverlays, m.mountBindMounted, m.mountSysctls, makeMountsShared} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// sharedMount is a second mount point of the shared directory, which stays accessible while an overlay hides the first.
const sharedMount = "/run/shared"

func (m *Machine) mountRun() error {
	if err := unix.Mount("tmpfs", "/run", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755"); err != nil {
		return fmt.Errorf("mount /run: %w", err)
	}
	return bind(m.Shared, sharedMount)
}

// mountOverlays mounts overlays on /etc and /var, and then the shared directory again in case it is below one of them.
func (m *Machine) mountOverlays() error {
	for _, folder := range []string{"/etc", "/var"} {
		if err := m.overlay(folder); err != nil {
			return err
		}
	}
	return bind(sharedMount, m.Shared)
}

func (m *Machine) overlay(folder string) error {
	upper, work := m.inSharedMount(folder), m.inSharedMount(folder+".work")
	for _, made := range []string{upper, work} {
		if err := os.MkdirAll(made, 0o755); err != nil {
			return err
		}
	}
	options := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", folder, upper, work)
	if err := unix.Mount("overlay", folder, "overlay", 0, options); err != nil {
		return fmt.Errorf("mount an overlay over %s: %w", folder, err)
	}
	return nil
}

func (m *Machine) mountBindMounted() error {
	for _, folder := range bindMounted {
		disk := m.inSharedMount("disks", folder)
		if err := os.MkdirAll(disk, 0o700); err != nil {
			return err
		}
		if err := bind(disk, folder); err != nil {
			return err
		}
	}
	return nil
}

func (m *Machine) mountSysctls() error {
	for path, value := range sysctls {
		file := m.inSharedMount("tunables", filepath.Base(path))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(file, []byte(value+"\n"), 0o644); err != nil {
			return err
		}
		if err := unix.Mount(file, path, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount over %s: %w", path, err)
		}
	}
	return nil
}

// makeMountsShared enables mount propagation for volumes of containers, as on a real node. The propagation ends at the machine.
func makeMountsShared() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""); err != nil {
		return fmt.Errorf("share mounts: %w", err)
	}
	return nil
}

func (m *Machine) inSharedMount(parts ...string) string {
	return filepath.Join(append([]string{sharedMount, m.Name}, parts...)...)
}

func bind(from, to string) error {
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	if err := unix.Mount(from, to, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind %s to %s: %w", from, to, err)
	}
	return nil
}
