package machine

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os/exec"
	"strconv"
)

// Run runs a program on the machine to its end and returns its standard output. The error has its standard error.
func (m *Machine) Run(ctx context.Context, name string, args ...string) ([]byte, error) {
	return m.run(namespaces, exec.CommandContext(ctx, name, args...))
}

func (m *Machine) run(spaces int, command *exec.Cmd) ([]byte, error) {
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	err := m.inside(spaces, command.Start)
	if err == nil {
		err = command.Wait()
	}
	if err != nil {
		err = fmt.Errorf("%s on %s: %w: %s", command, m.Name, err, bytes.TrimSpace(stderr.Bytes()))
	}
	return stdout.Bytes(), err
}

// Cable lays a virtual network cable from this machine's port to the other's, in place of one that is there. It goes,
// some time later, when either halts.
func (m *Machine) Cable(ctx context.Context, port string, other *Machine, otherPort string) error {
	ip := func(args ...string) error { // outside of this machine's processes, where the other's PID is known
		_, err := m.run(networkSpace, exec.CommandContext(ctx, "ip", args...))
		return err
	}
	_ = ip("link", "delete", port) // fails if there is none
	return ip("link", "add", port, "type", "veth", "peer", "name", otherPort, "netns", strconv.Itoa(other.PID()))
}

// Dial connects from inside the machine's network.
func (m *Machine) Dial(ctx context.Context, network, address string) (connection net.Conn, err error) {
	err = m.inside(networkSpace, func() error {
		connection, err = new(net.Dialer).DialContext(ctx, network, address)
		return err
	})
	return connection, err
}
