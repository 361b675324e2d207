package uninstall

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/gshare-dev/gshare/node/grant"
	"github.com/gshare-dev/gshare/node/mps"
	"github.com/gshare-dev/gshare/node/partition"
	"github.com/gshare-dev/gshare/test/lease"
	config "github.com/gshare-dev/gshare/vgpu/api/config/node"
	"github.com/gshare-dev/gshare/vgpu/kube"
)

// used is a node with what an agent leaves, beside what others have there.
func used(t *testing.T, deviceIDs string) (n Node, dir string) {
	t.Helper()
	dir = t.TempDir()
	for _, name := range []string{
		"run/agent.lock", "run/hook/libgshare-0.so", "run/grants/x/grant.json", "run/mig-GPU-a.json",
		"cdi/gshare.dev-grant-a.json", "cdi/gshare.dev-grant-b.json.next", "cdi/nvidia.yaml", "plugins/gshare-a.sock", "plugins/kubelet.sock",
		"drivers/gshare.dev/dra.sock", "drivers/other/dra.sock", "registry/gshare.dev-reg.sock", "registry/other-reg.sock",
	} {
		file := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, nil, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	has := v1.ResourceList{"cpu": resource.MustParse("4"), kube.ResourceSM: resource.MustParse("100"), kube.ResourceVGPU: resource.MustParse(deviceIDs)}
	node := &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "a", Annotations: map[string]string{kube.AnnotationInventory: "{}", "other": "x"}},
		Status:     v1.NodeStatus{Capacity: has, Allocatable: has.DeepCopy()},
	}
	c := config.Configuration{}
	c.Directory, c.Kubernetes.CDI, c.Kubernetes.DevicePlugins = filepath.Join(dir, "run"), filepath.Join(dir, "cdi"), filepath.Join(dir, "plugins")
	c.Kubernetes.Plugins, c.Kubernetes.PluginRegistry = filepath.Join(dir, "drivers"), filepath.Join(dir, "registry")
	return Node{
		Config: c, Name: "a", Client: fake.NewClientset(node), MPS: mps.Daemons{Dir: filepath.Join(dir, "run/mps"), Simulated: true},
		Clear: func(string) error { return nil },
		Pods:  func(context.Context) ([]*v1.Pod, error) { return nil, nil },
	}, dir
}

func files(t *testing.T, dir string) (found []string) {
	t.Helper()
	for _, folder := range []string{"run", "cdi", "plugins", "drivers", "registry"} {
		entries, err := os.ReadDir(filepath.Join(dir, folder))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			found = append(found, folder+"/"+e.Name())
		}
	}
	return found
}

func TestStep(t *testing.T) {
	n, dir := used(t, "0")
	if err := n.Step(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(files(t, dir), " "); got != "cdi/nvidia.yaml plugins/kubelet.sock drivers/other registry/other-reg.sock" {
		t.Errorf("left: %s", got)
	}
	node, err := n.Client.CoreV1().Nodes().Get(t.Context(), "a", metav1.GetOptions{})
	if err != nil || len(node.Status.Capacity) != 1 || len(node.Status.Allocatable) != 1 || len(node.Annotations) != 1 {
		t.Errorf("%v: %+v, %v", err, node.Status, node.Annotations)
	}
	if err := n.Step(t.Context()); err != nil {
		t.Errorf("again: %v", err)
	}
}

// TestInstancesInUse: the journal stays as long as the MIG instances in it; nothing else does.
func TestInstancesInUse(t *testing.T) {
	n, dir := used(t, "0")
	var asked string
	inUse := partition.ErrInUse
	n.Clear = func(uuid string) error {
		asked = uuid
		return inUse
	}
	if err := n.Step(t.Context()); !errors.Is(err, ErrLeft) || !errors.Is(err, inUse) || asked != "GPU-a" {
		t.Errorf("%q: %v", asked, err)
	}
	if got := strings.Join(files(t, dir), " "); got != "run/mig-GPU-a.json cdi/nvidia.yaml plugins/kubelet.sock drivers/other registry/other-reg.sock" {
		t.Errorf("left: %s", got)
	}
	inUse = nil
	if err := n.Step(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestKubeletCounts: what the kubelet would write again is left to it.
func TestKubeletCounts(t *testing.T) {
	n, _ := used(t, "16")
	if err := n.Step(t.Context()); !errors.Is(err, ErrLeft) || !strings.Contains(err.Error(), "gshare/vgpu") || strings.Contains(err.Error(), "gshare/sm") {
		t.Error(err)
	}
	node, err := n.Client.CoreV1().Nodes().Get(t.Context(), "a", metav1.GetOptions{})
	if q := node.Status.Capacity[kube.ResourceVGPU]; err != nil || q.Value() != 16 {
		t.Errorf("%v: %v", err, node.Status.Capacity)
	}
}

// TestPodsComeFirst: nothing is touched while a pod has a share, or while nobody knows.
func TestPodsComeFirst(t *testing.T) {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "p"}, Spec: v1.PodSpec{Containers: []v1.Container{{
		Resources: v1.ResourceRequirements{Limits: v1.ResourceList{kube.ResourceSM: resource.MustParse("1")}},
	}}}}
	n, dir := used(t, "0")
	before := len(files(t, dir))
	away := errors.New("the kubelet is away")
	var podsErr error
	n.Pods = func(context.Context) ([]*v1.Pod, error) { return []*v1.Pod{pod}, podsErr }
	if err := n.Step(t.Context()); !errors.Is(err, ErrLeft) || !strings.Contains(err.Error(), "shop/p") {
		t.Error(err)
	}
	podsErr = away
	if err := n.Step(t.Context()); !errors.Is(err, away) {
		t.Error(err)
	}
	if got := len(files(t, dir)); got != before {
		t.Errorf("%d of %d files are left", got, before)
	}
	podsErr, pod.Status.Phase = nil, v1.PodSucceeded
	if err := n.Step(t.Context()); err != nil {
		t.Errorf("a pod that has ended is in the way: %v", err)
	}
}

// TestClaimsComeFirst: the specification of a pod with a resource claim names no resource of gshare, but its containers use what the agents left.
func TestClaimsComeFirst(t *testing.T) {
	n, dir := used(t, "0")
	record, err := os.ReadFile("../grant/testdata/grant-claim.json")
	if err != nil {
		t.Fatal(err)
	}
	g, err := grant.Decode(record)
	if err != nil {
		t.Fatal(err)
	}
	granted := filepath.Join(dir, "run/grants", g.ID())
	if err := errors.Join(os.Mkdir(granted, 0o755), os.WriteFile(filepath.Join(granted, "grant.json"), record, 0o600)); err != nil {
		t.Fatal(err)
	}
	before := len(files(t, dir))
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "p", UID: g.UID}, Spec: v1.PodSpec{Containers: []v1.Container{{Name: g.Container}}},
	}
	n.Pods = func(context.Context) ([]*v1.Pod, error) { return []*v1.Pod{pod}, nil }
	if err := n.Step(t.Context()); !errors.Is(err, ErrLeft) || !strings.Contains(err.Error(), "shop/p") {
		t.Error(err)
	}
	lease.Hold(t, filepath.Join(granted, "grant.json"))
	if err := n.Step(t.Context()); !errors.Is(err, ErrLeft) || !strings.Contains(err.Error(), "shop/p") {
		t.Errorf("while a container holds a lease on its record: %v", err)
	}
	if got := len(files(t, dir)); got != before {
		t.Errorf("%d of %d files are left", got, before)
	}
	pod.Status.Phase = v1.PodSucceeded
	if err := n.Step(t.Context()); err != nil {
		t.Errorf("a pod that has ended is in the way: %v", err)
	}
}
