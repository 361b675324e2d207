package cluster_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	authentication "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/gshare-dev/gshare/manifests"
	"github.com/gshare-dev/gshare/test/cluster"
	"github.com/gshare-dev/gshare/test/cluster/machine"
	"github.com/gshare-dev/gshare/test/native"
	"github.com/gshare-dev/gshare/vgpu/kube"
)

// agents are the node agents of a cluster, built from this checkout.
type agents struct {
	*cluster.Cluster
	of   map[string]*agent
	gpus gpus // simulated devices, where a test started them
}

type agent struct {
	*machine.Process
	program machine.Program
	proxy   *machine.Process
	node    *cluster.Node
	devices string // path of the list of simulated devices
	address string
}

const twoGPUs = `devices:
- {uuid: GPU-0, model: A100, sms: 108, memoryMiB: 81920}
- {uuid: GPU-1, model: A100, sms: 108, memoryMiB: 81920}
`

// startWithAgents starts a cluster with an agent on each node, and the given simulated devices.
func startWithAgents(t *testing.T, o cluster.Options, devices string) *agents {
	t.Helper()
	program, hook := buildAgent(t), buildHook(t)
	c := cluster.Start(t, o)
	ctx := testContext(t)
	if err := os.WriteFile(filepath.Join(c.Dir, "driver.yaml"), noDriver(devices), 0o600); err != nil {
		t.Fatal(err)
	}
	apply(t, c, manifests.Namespace)
	apply(t, c, manifests.NodeAccess)
	apply(t, c, manifests.NodePolicies)
	apply(t, c, manifests.NodePods) // used if the kubelet has no PodsAPI
	all := &agents{Cluster: c, of: map[string]*agent{}}
	for _, node := range c.Nodes {
		all.of[node.Name] = startAgent(ctx, t, c, node, program, hook, devices)
	}
	for _, node := range c.Nodes {
		all.waitInventory(ctx, t, node)
	}
	return all
}

// noDriver returns a driver description that adds nothing to containers.
func noDriver(devices string) []byte {
	text := "cdiVersion: 0.6.0\nkind: simulated/gpu\ndevices:\n"
	for line := range strings.Lines(devices) {
		if _, uuid, ok := strings.Cut(line, "uuid: "); ok {
			uuid, _, _ = strings.Cut(uuid, ",")
			text += "- {name: " + uuid + ", containerEdits: {}}\n"
		}
	}
	return []byte(text)
}

// buildAgent builds gshare-node with the kill points of startFaulty.
func buildAgent(t *testing.T) string {
	return buildOf(t, "../..", "gshare-node", "./cmd/gshare-node", "-tags=killpoints")
}

var building sync.Mutex

// buildOf builds a program of a checkout.
func buildOf(t *testing.T, root, name, folder string, flags ...string) string {
	t.Helper()
	building.Lock()
	defer building.Unlock()
	program, err := filepath.Abs("../../bin/cluster/" + name)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", slices.Concat([]string{"build", "-buildvcs=false"}, flags, []string{"-o", program, folder})...)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", folder, err, out)
	}
	return program
}

func buildHook(t *testing.T) string { return buildHookOf(t, "../..", "hook") }

// buildHookOf builds a checkout's hook into a folder of bin/cluster.
func buildHookOf(t *testing.T, root, folder string) string {
	t.Helper()
	dir, err := filepath.Abs(filepath.Join("../../bin/cluster", folder))
	if err != nil {
		t.Fatal(err)
	}
	if err := native.Build(root, dir, native.Hook); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "libgshare.so")
}

// configuration is the agents' configuration. It slows the token server down by a factor of five, since a call of the fake driver is many
// times as expensive as one of a real driver.
const configuration = `apiVersion: gshare.dev/v1alpha1
kind: NodeConfiguration
simulatedDevices: %s
tenancy: mixed
window: 500ms
turn: 25ms
runAhead: 5ms
kubernetes:
  nodeName: %s
  kubeconfig: %s
  hook: %s
  driver: %s
  healthPeriod: 200ms
`

// agentFeatures turns on the features whose keys tests add to the configuration.
const agentFeatures = "--feature-gates=MIGOnDemand=true,ModelStore=true,ResourceClaims=true,Swap=true"

func startAgent(ctx context.Context, t *testing.T, c *cluster.Cluster, node *cluster.Node, program, hook, devices string) *agent {
	t.Helper()
	file := func(name, content string) string {
		path := filepath.Join(c.Dir, node.Name+"-"+name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	kubeconfig, err := c.Kubeconfig(agentToken(ctx, t, c, node))
	if err != nil {
		t.Fatal(err)
	}
	a := &agent{node: node, devices: file("devices.yaml", devices), address: "127.0.0.1:9477"}
	config := file("node.yaml", fmt.Sprintf(configuration, a.devices, node.Name, file("agent.kubeconfig", string(kubeconfig)), hook,
		filepath.Join(c.Dir, "driver.yaml")))
	a.program = machine.Program{Name: "gshare-node", Path: program, Args: []string{"--config", config, agentFeatures}, Ready: a.ready}
	a.start(ctx, t)
	if a.proxy, err = node.Machine.Start(ctx, machine.Program{Name: "gshare-proxy", Path: program, Args: []string{"proxy", "--config", config}}); err != nil {
		t.Fatal(err)
	}
	a.waitProxy(ctx, t)
	return a
}

// waitProxy blocks until the kubelet watches the proxy, and the agent knows that it does.
func (a *agent) waitProxy(ctx context.Context, t *testing.T) {
	t.Helper()
	for ctx.Err() == nil {
		if text, err := a.get(ctx, "/metrics"); err == nil && strings.Contains(text, "gshare_node_proxies 1\n") {
			return
		}
		time.Sleep(20 * time.Millisecond) // between polls
	}
	t.Fatal("the proxy has not registered")
}

// start starts an agent after the previous one has ended.
func (a *agent) start(ctx context.Context, t *testing.T) {
	t.Helper()
	a.run(ctx, t, a.program)
}

// startFaulty starts an agent that exits at a given point of its protocol. It returns once the agent is ready or has exited.
func (a *agent) startFaulty(ctx context.Context, t *testing.T, point string) {
	t.Helper()
	program := a.program
	program.Env, program.Ready = []string{"GSHARE_TEST_KILL_AT=" + point}, nil
	a.run(ctx, t, program)
	for ctx.Err() == nil && a.ready(ctx) != nil {
		select {
		case <-a.Done():
			return
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (a *agent) run(ctx context.Context, t *testing.T, program machine.Program) {
	t.Helper()
	process, err := a.node.Machine.Start(ctx, program)
	if err != nil {
		t.Fatal(err)
	}
	a.Process = process
}

// agentToken returns the service account token that an agent's pod on the node would have.
func agentToken(ctx context.Context, t *testing.T, c *cluster.Cluster, node *cluster.Node) string {
	t.Helper()
	object, err := c.Client().CoreV1().Nodes().Get(ctx, node.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	request := &authentication.TokenRequest{Spec: authentication.TokenRequestSpec{
		BoundObjectRef: &authentication.BoundObjectReference{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: object.UID},
	}}
	answer, err := c.Client().CoreV1().ServiceAccounts("gshare-system").CreateToken(ctx, "gshare-node", request, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return answer.Status.Token
}

func (a *agent) get(ctx context.Context, path string) (string, error) {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return a.node.Machine.Dial(ctx, network, a.address)
	}}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://agent"+path, nil)
	if err != nil {
		return "", err
	}
	response, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	var body bytes.Buffer
	if _, err := body.ReadFrom(response.Body); err != nil {
		return "", err
	}
	if response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s: %s", response.Status, body.String())
	}
	return body.String(), nil
}

func (a *agent) ready(ctx context.Context) error {
	_, err := a.get(ctx, "/readyz")
	return err
}

// setDevices replaces the list of simulated devices of the node.
func (a *agent) setDevices(t *testing.T, devices string) {
	t.Helper()
	if err := os.WriteFile(a.devices+".next", []byte(devices), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(a.devices+".next", a.devices); err != nil {
		t.Fatal(err)
	}
}

// waitInventory blocks until the node advertises all of its devices.
func (a *agents) waitInventory(ctx context.Context, t *testing.T, node *cluster.Node) {
	t.Helper()
	a.waitNode(ctx, t, node, func(n *v1.Node) bool {
		inv, present, err := kube.InventoryOf(n)
		if !present || err != nil || len(inv.Slices) == 0 {
			return false
		}
		for name, q := range kube.NodeResources(inv) {
			if has := n.Status.Allocatable[name]; has.Cmp(q) < 0 {
				return false
			}
		}
		return true
	})
}

func (a *agents) waitNode(ctx context.Context, t *testing.T, node *cluster.Node, wanted func(*v1.Node) bool) *v1.Node {
	t.Helper()
	var last *v1.Node
	err := wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		var err error
		last, err = a.Client().CoreV1().Nodes().Get(ctx, node.Name, metav1.GetOptions{})
		return err == nil && wanted(last), nil
	})
	if err != nil {
		t.Fatalf("node %s: %v; annotations %v, capacity %v", node.Name, err, last.Annotations, last.Status.Capacity)
	}
	return last
}
