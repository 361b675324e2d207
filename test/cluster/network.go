package cluster

import (
	"context"
	"fmt"

	"github.com/gshare-dev/gshare/test/cluster/machine"
)

// The cluster's network is a bridge on the control machine, to which every node is connected by a veth pair. The addresses are
// from the range for benchmarks (RFC 2544) and from a private range, and are not visible outside the machines.
const (
	controlAddress = "198.18.0.1"
	server         = "https://" + controlAddress + ":6443"
	bridge         = "cluster0"
)

func nodeAddress(index int) string { return fmt.Sprintf("198.18.0.%d", 11+index) }
func podSubnet(index int) string   { return fmt.Sprintf("10.244.%d.0/24", index) }

// createBridge creates the bridge of the cluster's network on the control machine, which also routes between the nodes' pods.
func createBridge(ctx context.Context, control *machine.Machine) error {
	if _, err := control.Run(ctx, "sh", "-c", "echo 1 >/proc/sys/net/ipv4/ip_forward"); err != nil {
		return err
	}
	return runIPCommands(ctx, control, [][]string{
		{"link", "set", "lo", "up"},
		{"link", "add", bridge, "type", "bridge"},
		{"address", "add", controlAddress + "/24", "dev", bridge},
		{"link", "set", bridge, "up"},
	})
}

// connectNode connects a node to the bridge and adds the routes from and to its pods.
func connectNode(ctx context.Context, control *machine.Machine, node *Node) error {
	if err := control.ConnectVeth(ctx, node.Name, node.Machine, "eth0"); err != nil {
		return err
	}
	err := runIPCommands(ctx, control, [][]string{
		{"link", "set", node.Name, "master", bridge, "up"},
		{"route", "replace", podSubnet(node.index), "via", node.Address},
	})
	if err != nil {
		return err
	}
	return runIPCommands(ctx, node.Machine, [][]string{
		{"link", "set", "lo", "up"},
		{"address", "add", node.Address + "/24", "dev", "eth0"},
		{"link", "set", "eth0", "up"},
		{"route", "add", "default", "via", controlAddress},
	})
}

// runIPCommands runs ip(8) on a machine with each of the argument lists.
func runIPCommands(ctx context.Context, m *machine.Machine, commands [][]string) error {
	for _, command := range commands {
		if _, err := m.Run(ctx, "ip", command...); err != nil {
			return err
		}
	}
	return nil
}
