package controller

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/serving/rules/scaling"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/residency"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// gpuNode returns a node with a GPU of 10 GiB.
func gpuNode(t *testing.T, name string, changes ...func(*v1.Node)) *v1.Node {
	t.Helper()
	text, err := kube.EncodeInventory(kube.Inventory{
		Rules: &kube.Rules{GammaPercent: 150, Window: metav1.Duration{Duration: kube.DefaultWindow}},
		Slices: []kube.Slice{{
			ID: sliceOf(name), Device: sliceOf(name), Model: "H200", SMs: 132, MemoryMiB: 10 << 10, Classes: []share.Isolation{share.MPS}, Healthy: true, MaxShares: 16,
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{kube.AnnotationInventory: text}}}
	n.Status.Allocatable = v1.ResourceList{v1.ResourceCPU: resource.MustParse("4"), v1.ResourceMemory: resource.MustParse("8Gi")}
	for _, change := range changes {
		change(n)
	}
	return n
}

func sliceOf(node string) string {
	return "GPU-5b2e3c1a-0000-4d2f-9a7e-1f6c8e0d4a0" + node[len(node)-1:]
}

// small returns a function whose number of replicas on a GPU is limited by their memory.
func small(t *testing.T, namespace, name, memory string) *api.GPUFunction {
	return function(t, func(f *api.GPUFunction) {
		f.Namespace, f.Name, f.UID = namespace, name, types.UID(namespace+"-"+name)
		f.Spec.Resources.Share = &api.Share{SM: new(int64(5)), Quota: new(int64(20)), Memory: api.Quantity(memory)}
	})
}

// place puts a pod on the GPU of a node.
func place(t *testing.T, p *v1.Pod, node string) *v1.Pod {
	t.Helper()
	request, asks, err := kube.RequestOf(p)
	if err != nil || !asks {
		t.Fatal(asks, err)
	}
	text, err := kube.EncodePlacement(kube.Placement{Node: node, UID: p.UID, Model: kube.Slots, Containers: []kube.PlacedContainer{{
		Name: p.Spec.Containers[0].Name, VGPUs: []kube.PlacedVGPU{{Slice: sliceOf(node), Class: share.MPS, Priority: request.Priority, Share: request.Containers[0].Share}},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	setAnnotation(&p.ObjectMeta, kube.AnnotationPlacement, text)
	p.Spec.NodeName = node
	return p
}

func TestVictims(t *testing.T) {
	drained := func(ago time.Duration) func(p *v1.Pod) {
		return func(p *v1.Pod) {
			setAnnotation(&p.ObjectMeta, api.AnnotationDrain, time.Now().Add(-ago).UTC().Format(time.RFC3339))
		}
	}
	deleted := func(ago time.Duration) func(p *v1.Pod) {
		return func(p *v1.Pod) { p.DeletionTimestamp = new(metav1.NewTime(time.Now().Add(-ago))) }
	}
	type placed struct {
		name   string // name of the pod; those of spare pods begin with s
		node   string
		since  int
		change func(*v1.Pod)
	}
	for name, c := range map[string]struct {
		memory string // of the pod; all others have 4 GiB
		pods   []placed
		change func(*v1.Pod)
		node   func(*v1.Node)
		given  string // UID and node of a pod that was given up before
		want   string
	}{
		"one is enough":          {memory: "4Gi", pods: []placed{{"s1", "n1", 7, nil}, {"s2", "n1", 3, nil}}, want: "s2"},
		"both are needed":        {memory: "8Gi", pods: []placed{{"s1", "n1", 7, nil}, {"s2", "n1", 3, nil}}, want: "s2 s1"},
		"all are not enough":     {memory: "12Gi", pods: []placed{{"s1", "n1", 7, nil}, {"s2", "n1", 3, nil}}},
		"others are in the way":  {memory: "8Gi", pods: []placed{{"s1", "n1", 7, nil}, {"a", "n1", 3, nil}}},
		"has room":               {memory: "2Gi", pods: []placed{{"s1", "n1", 7, nil}, {"s2", "n1", 3, nil}}},
		"one GPU, not two":       {memory: "8Gi", pods: []placed{{"s1", "n1", 7, nil}, {"a", "n1", 0, nil}, {"s2", "n2", 3, nil}, {"s3", "n2", 9, nil}}, want: "s2 s3"},
		"idle longest":           {memory: "4Gi", pods: []placed{{"s1", "n1", 7, nil}, {"a", "n1", 0, nil}, {"s2", "n2", 9, nil}, {"b", "n2", 0, nil}}, want: "s1"},
		"another is to end":      {memory: "4Gi", pods: []placed{{"s1", "n1", 7, nil}, {"a", "n1", 0, drained(0)}}},
		"another ends":           {memory: "4Gi", pods: []placed{{"s1", "n1", 7, nil}, {"a", "n1", 0, deleted(0)}}},
		"drained for hours":      {memory: "4Gi", pods: []placed{{"s1", "n1", 7, nil}, {"a", "n1", 0, drained(9 * time.Hour)}}, want: "s1"},
		"has ended for hours":    {memory: "4Gi", pods: []placed{{"s1", "n1", 7, nil}, {"a", "n1", 0, deleted(9 * time.Hour)}}, want: "s1"},
		"was given up":           {memory: "4Gi", pods: []placed{{"s1", "n1", 7, nil}, {"a", "n1", 0, nil}}, given: "a n1"},
		"was given up elsewhere": {memory: "4Gi", pods: []placed{{"s1", "n1", 7, nil}, {"b", "n1", 0, nil}, {"a", "n2", 0, nil}, {"c", "n2", 0, nil}}, given: "a n2"},
		"given up, not enough":   {memory: "8Gi", pods: []placed{{"s1", "n1", 7, nil}, {"a", "n1", 0, nil}}, given: "a n1", want: "s1"},
		"ended":                  {memory: "4Gi", pods: []placed{{"s1", "n1", 7, nil}, {"a", "n1", 0, func(p *v1.Pod) { p.Status.Phase = v1.PodSucceeded }}}},
		"cordoned":               {memory: "4Gi", pods: []placed{{"s1", "n1", 7, nil}, {"s2", "n1", 3, nil}}, node: func(n *v1.Node) { n.Spec.Unschedulable = true }},
		"no inventory":           {memory: "4Gi", pods: []placed{{"s1", "n1", 7, nil}, {"s2", "n1", 3, nil}}, node: func(n *v1.Node) { n.Annotations = nil }},
		"another tenant":         {memory: "4Gi", pods: []placed{{"s1", "n1", 7, nil}, {"s2", "n1", 3, nil}}, change: func(p *v1.Pod) { p.Namespace = "other" }, want: "s2 s1"},
		"another scheduler":      {memory: "4Gi", pods: []placed{{"s1", "n1", 7, nil}, {"s2", "n1", 3, nil}}, change: func(p *v1.Pod) { p.Spec.SchedulerName = "rectangles" }},
		"waits for processors": {memory: "4Gi", pods: []placed{{"s1", "n1", 7, nil}, {"s2", "n1", 3, nil}}, change: func(p *v1.Pod) {
			p.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse("5")}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			pod := functionPod(fastPodOf(small(t, "ml", "waits", c.memory)), "waits", 1)
			pod.UID = "waits"
			if c.change != nil {
				c.change(pod)
			}
			on := map[string][]*v1.Pod{}
			var spares []spare
			for _, one := range c.pods {
				p := functionPod(fastPodOf(small(t, "ml", "f", "4Gi")), one.name, 1)
				p.UID = types.UID(one.name)
				place(t, p, one.node)
				if one.change != nil {
					one.change(p)
				}
				on[one.node] = append(on[one.node], p)
				if one.name[0] == 's' {
					spares = append(spares, spare{one.name, p, time.Duration(one.since)})
				}
			}
			s := search{pod: pod, leaving: map[types.UID]string{}, podsOn: func(node string) ([]*v1.Pod, error) { return on[node], nil }}
			for _, node := range []string{"n1", "n2"} {
				if on[node] != nil {
					s.nodes = append(s.nodes, gpuNode(t, node))
				}
			}
			if c.node != nil {
				c.node(s.nodes[0])
			}
			if uid, node, ok := strings.Cut(c.given, " "); ok {
				s.leaving[types.UID(uid)] = node
			}
			var got []string
			for _, v := range s.victims(spares) {
				got = append(got, v.instance)
			}
			if strings.Join(got, " ") != c.want {
				t.Errorf("victims %v, want %s", got, c.want)
			}
		})
	}
}

// TestVictimsForSeveralGPUs: a replica with two GPUs needs room on both, so a reserve on each is given up.
func TestVictimsForSeveralGPUs(t *testing.T) {
	const second = "GPU-5b2e3c1a-0000-4d2f-9a7e-1f6c8e0d4a09"
	node := gpuNode(t, "n1", func(n *v1.Node) {
		inventory, err := kube.DecodeInventory(n.Annotations[kube.AnnotationInventory])
		if err != nil {
			t.Fatal(err)
		}
		inventory.Slices[0].Classes = []share.Isolation{share.Exclusive, share.MPS}
		other := inventory.Slices[0]
		other.ID, other.Device = second, second
		inventory.Slices = append(inventory.Slices, other)
		if n.Annotations[kube.AnnotationInventory], err = kube.EncodeInventory(inventory); err != nil {
			t.Fatal(err)
		}
	})
	waits := functionPod(fastPodOf(function(t, func(f *api.GPUFunction) {
		f.Spec.Resources.Share = &api.Share{SM: new(int64(100)), Memory: "4Gi", GPUs: 2}
	})), "waits", 1)
	var pods []*v1.Pod
	var spares []spare
	for at, name := range []string{"s1", "s2", "s3"} {
		p := functionPod(fastPodOf(small(t, "ml", "f", "4Gi")), name, 1)
		p.UID = types.UID(name)
		place(t, p, "n1")
		if at > 0 {
			p.Annotations[kube.AnnotationPlacement] = strings.ReplaceAll(p.Annotations[kube.AnnotationPlacement], sliceOf("n1"), second)
		}
		pods, spares = append(pods, p), append(spares, spare{name, p, time.Duration(at)})
	}
	on := pods
	s := search{pod: waits, nodes: []*v1.Node{node}, leaving: map[types.UID]string{}, podsOn: func(string) ([]*v1.Pod, error) { return on, nil }}
	for want, there := range map[string]int{"s1 s2 s3": 3, "s1 s2": 2, "s1": 1} {
		on = pods[:there]
		var got []string
		for _, v := range s.victims(spares[:there]) {
			got = append(got, v.instance)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("victims %v, want %s", got, want)
		}
	}
}

// TestMakeRoom: a function needs a replica, for which there is no room since the replicas of functions a and b in reserve hold the memory, a
// for longer than b.
func TestMakeRoom(t *testing.T) {
	for name, test := range map[string]struct {
		namespace string // of a and b; no GPU has pods of two namespaces
		priority  int32
		want      string
	}{
		"the longest in reserve":   {"ml", 0, "[b needed]"},
		"of another namespace":     {"team", 0, "[needed]"},
		"of one of less priority":  {"team", -1, "[needed]"},
		"not one of more priority": {"team", 1, "[a b needed]"},
	} {
		t.Run(name, func(t *testing.T) { makesRoom(t, test.namespace, test.priority, test.want) })
	}
}

func makesRoom(t *testing.T, namespace string, priority int32, want string) {
	synctest.Test(t, func(t *testing.T) {
		needed := small(t, "ml", "needed", "4Gi")
		needed.Spec.Scaling.MinReplicas = 1
		others := []*api.GPUFunction{small(t, namespace, "a", "4Gi"), small(t, namespace, "b", "4Gi")}
		p := &api.SharePolicy{ObjectMeta: metav1.ObjectMeta{Name: "teams"}, Spec: api.SharePolicySpec{Tenants: []api.Tenant{{Namespace: namespace, Priority: priority}}}}
		k := newCluster(t, gpuNode(t, "n1"), needed, others[0], others[1], p)
		for _, f := range others {
			k.reserve(f)
		}
		k.run(true)
		r := &room{client: slimmed(k.client), live: k.client, fleet: k.known.fleet, pods: k.pods, recorder: k.recorder, log: k.pods.log}
		go r.Run(t.Context())
		k.reconcile(others[0])
		time.Sleep(5 * time.Second) // the other replica has been in reserve for less time
		k.reconcile(others[1])
		k.reconcile(needed)
		time.Sleep(1100 * time.Millisecond)
		k.refuse("needed")
		time.Sleep(time.Second)
		if got := fmt.Sprint(k.functions()); got != "[a b needed]" {
			t.Errorf("after a second %s are there", got)
		}
		time.Sleep(10 * time.Second)
		if got := fmt.Sprint(k.functions()); got != want {
			t.Errorf("%s are there, want %s", got, want)
		}
		if n, gone := len(k.recorder.Events), 3-len(k.functions()); n != 2*gone {
			t.Errorf("%d events, want one of both functions for each of %d", n, gone)
		}
	})
}

// reserve creates the pod of a replica in reserve on node n1.
func (c *cluster) reserve(f *api.GPUFunction, finalizers ...string) *v1.Pod {
	c.Helper()
	fp := fastPodOf(f)
	if err := c.client.Create(c.Context(), fp); err != nil {
		c.Fatal(err)
	}
	p := functionPod(fp, f.Name, 1)
	p.Finalizers = finalizers
	if err := setWanted(p, residency.Wanted{Seq: 2, Level: residency.Shared}); err != nil {
		c.Fatal(err)
	}
	setReached(p, residency.Reached{Seq: 2, Level: residency.Shared})
	makeReady(p)
	if err := c.client.Create(c.Context(), p); err != nil {
		c.Fatal(err)
	}
	place(c.T, p, "n1")
	if err := c.client.Update(c.Context(), p); err != nil {
		c.Fatal(err)
	}
	return p
}

// refuse has the scheduler find no node for the pods of a function.
func (c *cluster) refuse(function string) {
	c.Helper()
	for _, p := range c.all() {
		if p.Labels[api.LabelFunction] == function {
			c.update(&p, refuse)
		}
	}
}

// functions returns the functions of all pods.
func (c *cluster) functions() (all []string) {
	c.Helper()
	synctest.Wait()
	for _, p := range c.all() {
		all = append(all, p.Labels[api.LabelFunction])
	}
	slices.Sort(all)
	return all
}

// TestMakeRoomBesideStuckPod: there would be room for a replica in place of a pod that is about to end. If that pod does not end in time, because its node
// or a finalizer holds it, a replica in reserve is given up instead.
func TestMakeRoomBesideStuckPod(t *testing.T) {
	for name, stuck := range map[string]func(k *cluster, p *v1.Pod) error{
		"deleted": func(k *cluster, p *v1.Pod) error { return k.client.Delete(k.Context(), p) },
		"drained": func(k *cluster, p *v1.Pod) error {
			setAnnotation(&p.ObjectMeta, api.AnnotationDrain, time.Now().UTC().Format(time.RFC3339))
			return k.client.Update(k.Context(), p)
		},
		"given up": nil,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				needed, a, b := small(t, "ml", "needed", "4Gi"), small(t, "ml", "a", "4Gi"), small(t, "ml", "b", "4Gi")
				needed.Spec.Scaling.MinReplicas = 1
				a.Spec.Scaling.KeepShared, b.Spec.Scaling.KeepShared = "1h", "1h"
				k := newCluster(t, gpuNode(t, "n1"), needed, a, b)
				pod := k.reserve(a, "example.com/held")
				k.reserve(b)
				k.run(true)
				r := &room{client: slimmed(k.client), live: k.client, fleet: k.known.fleet, pods: k.pods, recorder: k.recorder, log: k.pods.log}
				go r.Run(t.Context())
				if stuck == nil {
					k.reconcile(a)
					time.Sleep(5 * time.Second) // in reserve for longer than b, and so given up first
				} else if err := stuck(k, pod); err != nil {
					t.Fatal(err)
				}
				k.reconcile(b)
				k.reconcile(needed)
				time.Sleep(1100 * time.Millisecond)
				k.refuse("needed")
				time.Sleep(50 * time.Second)
				if got := fmt.Sprint(k.functions()); got != "[a b needed]" {
					t.Errorf("%s are there while the pod of a may still end", got)
				}
				time.Sleep(2 * time.Minute)
				if got := fmt.Sprint(k.functions()); got != "[a needed]" {
					t.Errorf("%s are there after the pod of a should have ended, want that b has made room", got)
				}
			})
		})
	}
}

// TestRoomInTurn: a namespace with many replicas that have no room does not hold up one of another namespace.
func TestRoomInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newCluster(t)
		defer k.pods.queue.ShutDown()
		for namespace, n := range map[string]int{"ml": 9, "team": 1} {
			f := small(t, namespace, "f", "4Gi")
			for id := 1; id <= n; id++ {
				p := functionPod(fastPodOf(f), fmt.Sprint("f-", id), id)
				p.Status.Conditions = []v1.PodCondition{{
					Type: v1.PodScheduled, Status: v1.ConditionFalse, Reason: v1.PodReasonUnschedulable, LastTransitionTime: metav1.Now(),
				}}
				if err := k.client.Create(t.Context(), p); err != nil {
					t.Fatal(err)
				}
				k.pods.Adopt(instanceOfFunction(f, scaling.ID(id)), p)
			}
		}
		time.Sleep(time.Minute)
		r := &room{client: k.client, live: k.client, fleet: k.known.fleet, pods: k.pods, looked: map[types.UID]time.Time{}, given: map[types.UID]given{}}
		var looked []string
		for range 12 {
			next, _, err := r.next(t.Context())
			if err != nil || next == nil {
				t.Fatal(next, err)
			}
			r.looked[next.UID] = time.Now()
			looked = append(looked, next.Namespace)
			time.Sleep(time.Second)
		}
		count := 0
		for _, namespace := range looked {
			if namespace == "team" {
				count++
			}
		}
		if !slices.Contains(looked[:2], "team") || count < 2 {
			t.Errorf("looked for room for pods of %v", looked)
		}
	})
}
