package machine

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os/exec"
	"strconv"
)

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

// ConnectVeth connects this machine to another one by a pair of virtual Ethernet interfaces (veth), and replaces an interface of the same
// name. The kernel removes the pair when either machine is halted.
func (m *Machine) ConnectVeth(ctx context.Context, port string, other *Machine, otherPort string) error {
	ip := func(args ...string) error { // outside of this machine's processes, where the other's PID is known
		_, err := m.run(networkSpace, exec.CommandContext(ctx, "ip", args...))
		return err
	}
	_ = ip("link", "delete", port) // fails if there is none
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
