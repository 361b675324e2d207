package scheduled_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/gshare-dev/gshare/test/controlplane/access"
	"github.com/gshare-dev/gshare/vgpu/explain"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// rig is the API server as the tests use it.
type rig struct {
	*kubernetes.Clientset
	ctx context.Context
}

func newRig(t *testing.T) *rig {
	t.Helper()
	client, err := kubernetes.NewForConfig(plane.Config(access.Admin))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	t.Cleanup(cancel)
	r := &rig{client, ctx}
	for _, name := range []string{"ml", "web"} {
		_, err := client.CoreV1().Namespaces().Create(ctx, &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
	return r
}

const caseLabel = "case"

// addNode creates the node of a case.
func (r *rig) addNode(t *testing.T, name string, change func(*machine)) {
	t.Helper()
	m := &machine{node: v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{caseLabel: name}}}}
	for _, gpu := range []string{"-0", "-1"} {
		m.slices = append(m.slices, kube.Slice{ID: "GPU-" + name + gpu, Device: "GPU-" + name + gpu, Model: "A100", SMs: 108, MemoryMiB: 40960,
			Healthy: true, Classes: []share.Isolation{share.Exclusive, share.MPS, share.Elastic}})
	}
	if change != nil {
		change(m)
	}
	has := v1.ResourceList{v1.ResourceCPU: resource.MustParse("64"), v1.ResourceMemory: resource.MustParse("64Gi"), v1.ResourcePods: resource.MustParse("100")}
	if inventory := (kube.Inventory{Rules: m.rules, Slices: m.slices}); m.slices != nil {
		text, err := kube.EncodeInventory(inventory)
		if err != nil {
			t.Fatal(err)
		}
		m.node.Annotations = map[string]string{kube.AnnotationInventory: text}
		if m.text != "" {
			m.node.Annotations[kube.AnnotationInventory] = m.text
		}
		for name, q := range kube.NodeResources(inventory) {
			has[name] = q
		}
	}
	m.node.Status = v1.NodeStatus{Capacity: has, Allocatable: has}
	if _, err := r.CoreV1().Nodes().Create(r.ctx, &m.node, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// pod returns one that may run on the node of its case only.
func pod(name, node string, w wish) *v1.Pod {
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name, Annotations: map[string]string{}},
		Spec: v1.PodSpec{
			NodeSelector: map[string]string{caseLabel: node},
			Containers:   []v1.Container{{Name: "main", Image: "x", Resources: v1.ResourceRequirements{Limits: v1.ResourceList{}}}},
		},
	}
	if p.Namespace == "" {
		p.Namespace = "ml"
	}
	if w.annotation != "" {
		p.Annotations[w.annotation] = w.say
	}
	limits := p.Spec.Containers[0].Resources.Limits
	for name, n := range map[v1.ResourceName]int64{kube.ResourceSM: w.sm, kube.ResourceQuota: w.quota, kube.ResourceMemory: w.mem} {
		limits[name] = *resource.NewQuantity(n, resource.DecimalSI)
	}
	if w.bare {
		p.Spec.SchedulerName = kube.SchedulerName
		return p
	}
	return p
}

func (r *rig) add(t *testing.T, p *v1.Pod, bare bool) *v1.Pod {
	t.Helper()
	if !bare {
		kube.Complete(p)
	}
	made, err := r.CoreV1().Pods(p.Namespace).Create(r.ctx, p, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// bind binds a pod as somebody would who knows nothing of placements.
func (r *rig) bind(t *testing.T, p *v1.Pod, node string) {
	t.Helper()
	binding := &v1.Binding{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name}, Target: v1.ObjectReference{Kind: "Node", Name: node}}
	if err := r.CoreV1().Pods(p.Namespace).Bind(r.ctx, binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// until waits for a pod to be bound, or to be told why not.
func (r *rig) until(t *testing.T, p *v1.Pod, done func(*v1.Pod) bool) *v1.Pod {
	t.Helper()
	now, last := p, error(nil)
	err := wait.PollUntilContextCancel(r.ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		read, err := r.CoreV1().Pods(p.Namespace).Get(ctx, p.Name, metav1.GetOptions{})
		if last = err; err != nil {
			return false, nil
		}
		now = read
		return done(now), nil
	})
	if err != nil {
		t.Fatalf("%s: %v: %v; it stands at %+v", p.Name, err, last, now.Status)
	}
	return now
}

func bound(p *v1.Pod) bool { return p.Spec.NodeName != "" }

func refused(p *v1.Pod) bool { return refusal(p) != "" }

func refusal(p *v1.Pod) string {
	for _, c := range p.Status.Conditions {
		if c.Type == v1.PodScheduled && c.Reason == v1.PodReasonUnschedulable {
			return c.Message
		}
	}
	return ""
}

// edited returns a pod as a change proposes it.
func edited(t *testing.T, name, node string, w wish, c explain.Change) *v1.Pod {
	t.Helper()
	p := pod(name, node, w)
	for _, e := range c.Edits {
		switch {
		case e.Container != "":
			n, err := strconv.ParseInt(e.To, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			p.Spec.Containers[0].Resources.Limits[v1.ResourceName(e.Field)] = *resource.NewQuantity(n, resource.DecimalSI)
		case e.To == "":
			delete(p.Annotations, e.Field)
		default:
			p.Annotations[e.Field] = e.To
		}
	}
	return p
}
