package routes

import (
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

func node(name, pods string, addresses ...v1.NodeAddress) *v1.Node {
	n := &v1.Node{Spec: v1.NodeSpec{PodCIDR: pods}, Status: v1.NodeStatus{Addresses: addresses}}
	n.Name = name
	return n
}

func TestConnect(t *testing.T) {
	internal := func(address string) v1.NodeAddress { return v1.NodeAddress{Type: v1.NodeInternalIP, Address: address} }
	for _, test := range []struct {
		name string
		node *v1.Node
		want string // route
		fail string // part of the error
	}{
		{name: "another node", node: node("b", "10.244.1.0/24", internal("10.89.0.3")), want: "10.244.1.0/24 by 10.89.0.3"},
		{name: "its name is no address", want: "10.244.1.0/24 by 10.89.0.3",
			node: node("b", "10.244.1.0/24", v1.NodeAddress{Type: v1.NodeHostName, Address: "10.89.0.9"}, internal("10.89.0.3"))},
		{name: "IPv6 first", node: node("b", "10.244.1.0/24", internal("fc00::3"), internal("10.89.0.3")), want: "10.244.1.0/24 by 10.89.0.3"},
		{name: "no range yet", node: node("b", "", internal("10.89.0.3"))},
		{name: "no address yet", node: node("b", "10.244.1.0/24")},
		{name: "no range at all", node: node("b", "10.244.1", internal("10.89.0.3")), fail: "node b: invalid CIDR"},
		{name: "refused", node: node("refused", "10.244.7.0/24", internal("10.89.0.7")), fail: "10.244.7.0/24 by 10.89.0.7: no such device"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := ""
			r := router{node: "a", configPath: filepath.Join(t.TempDir(), "x.conflist"), route: func(to *net.IPNet, gateway net.IP) error {
				if gateway.String() == "10.89.0.7" {
					return errors.New("no such device")
				}
				got = to.String() + " by " + gateway.String()
				return nil
			}}
			err := r.connect(test.node)
			if (err == nil) != (test.fail == "") || err != nil && !strings.Contains(err.Error(), test.fail) {
				t.Errorf("error %v, want %q", err, test.fail)
			}
			if got != test.want {
				t.Errorf("route %q, want %q", got, test.want)
			}
			if _, err := os.Stat(r.configPath); err == nil {
				t.Error("another node's range is given to this node's pods")
			}
		})
	}
}

// TestOwn: the node's own range is written to the configuration of the container runtime, and only if that changes the file.
func TestOwn(t *testing.T) {
	folder := t.TempDir()
	r := router{node: "a", configPath: filepath.Join(folder, "10-podroutes.conflist"), route: func(*net.IPNet, net.IP) error {
		t.Error("a route to the node's own pods")
		return nil
	}}
	read := func() string {
		content, err := os.ReadFile(r.configPath)
		if err != nil {
			t.Fatal(err)
		}
		var list struct {
			Plugins []struct {
				IPAM struct{ Ranges [][]struct{ Subnet string } }
			}
		}
		if err := json.Unmarshal(content, &list); err != nil {
			t.Fatalf("%v: %s", err, content)
		}
		return list.Plugins[0].IPAM.Ranges[0][0].Subnet
	}
	for _, pods := range []string{"10.244.2.0/24", "10.244.3.0/24"} {
		if err := r.connect(node("a", pods)); err != nil {
			t.Fatal(err)
		}
		if got := read(); got != pods {
			t.Errorf("range %s, want %s", got, pods)
		}
	}
	before, err := os.Stat(r.configPath)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.connect(node("a", "10.244.3.0/24")); err != nil {
		t.Fatal(err)
	}
	if after, err := os.Stat(r.configPath); err != nil || !os.SameFile(before, after) {
		t.Errorf("written again: %v", err)
	}
	if files, err := os.ReadDir(folder); err != nil || len(files) != 1 {
		t.Errorf("%d files, %v", len(files), err)
	}
}
