package machine

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os/exec"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

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
