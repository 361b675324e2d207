package cluster

import (
	"context"
	"fmt"

	"github.com/gshare-dev/gshare/test/cluster/machine"
)

// The cluster's network is a bridge on the control machine with a virtual cable to every node. The addresses are of
// the range for benchmarks (RFC 2544) and of the private range, and seen by nobody outside.
const (
	controlAddress = "198.18.0.1"
	server         = "https://" + controlAddress + ":6443"
	bridge         = "cluster0"
)

func nodeAddress(index int) string { return fmt.Sprintf("198.18.0.%d", 11+index) }
func podSubnet(index int) string   { return fmt.Sprintf("10.244.%d.0/24", index) }

// makeBridge returns the control machine its address and makes it the router between the nodes' pods.
func makeBridge(ctx context.Context, control *machine.Machine) error {
	if _, err := control.Run(ctx, "sh", "-c", "echo 1 >/proc/sys/net/ipv4/ip_forward"); err != nil {
		return err
	}
	return configure(ctx, control, [][]string{
		{"link", "set", "lo", "up"},
		{"link", "add", bridge, "type", "bridge"},
		{"address", "add", controlAddress + "/24", "dev", bridge},
		{"link", "set", bridge, "up"},
	})
}

// connect lays the cable to a node and lets everybody reach the node's pods.
func connect(ctx context.Context, control *machine.Machine, node *Node) error {
	if err := control.Cable(ctx, node.Name, node.Machine, "eth0"); err != nil {
		return err
	}
	err := configure(ctx, control, [][]string{
		{"link", "set", node.Name, "master", bridge, "up"},
		{"route", "replace", podSubnet(node.index), "via", node.Address},
	})
	if err != nil {
		return err
	}
	return configure(ctx, node.Machine, [][]string{
		{"link", "set", "lo", "up"},
		{"address", "add", node.Address + "/24", "dev", "eth0"},
		{"link", "set", "eth0", "up"},
		{"route", "add", "default", "via", controlAddress},
	})
}

// configure runs ip(8) on the machine, once for each command.
func configure(ctx context.Context, m *machine.Machine, commands [][]string) error {
	for _, command := range commands {
		if _, err := m.Run(ctx, "ip", command...); err != nil {
			return err
		}
	}
	return nil
}
