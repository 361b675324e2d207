package sharing

import (
	"errors"
	"maps"
	"slices"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/events"
	"k8s.io/component-helpers/resource"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
)

// The fakes below stand for the scheduler, so that these tests need not compile it. What they do not define panics, as the
// interface that they embed is nil.

// generations are unique over all nodes, as in the scheduler.
var generations atomic.Int64

type fakeNode struct {
	fwk.NodeInfo
	node       *v1.Node
	pods       []*v1.Pod
	generation int64
}

func newNodeInfo(node *v1.Node, pods ...*v1.Pod) *fakeNode {
	return &fakeNode{node: node, pods: pods, generation: generations.Add(1)}
}

func (n *fakeNode) Node() *v1.Node       { return n.node }
func (n *fakeNode) GetGeneration() int64 { return n.generation }

func (n *fakeNode) GetPods() []fwk.PodInfo {
	out := make([]fwk.PodInfo, len(n.pods))
	for i, pod := range n.pods {
		out[i] = fakePod{pod: pod}
	}
	return out
}

func (n *fakeNode) GetAllocatable() fwk.Resource {
	return fakeResource{list: n.node.Status.Allocatable}
}

func (n *fakeNode) GetRequested() fwk.Resource {
	sum := v1.ResourceList{}
	for _, pod := range n.pods {
		for name, q := range resource.PodRequests(pod, resource.PodResourcesOptions{}) {
			total := sum[name]
			total.Add(q)
			sum[name] = total
		}
	}
	return fakeResource{list: sum}
}

// add and remove change the node as the scheduler's cache and its dry runs do.
func (n *fakeNode) add(pod *v1.Pod) {
	n.pods = append(slices.Clip(n.pods), pod)
	n.generation = generations.Add(1)
}

func (n *fakeNode) remove(pod *v1.Pod) {
	n.pods = slices.DeleteFunc(slices.Clone(n.pods), func(p *v1.Pod) bool { return p.UID == pod.UID })
	n.generation = generations.Add(1)
}

// with is what a dry run or a nomination makes of the node.
func (n *fakeNode) with(pod *v1.Pod) *fakeNode {
	out := *n
	out.add(pod)
	return &out
}

func (n *fakeNode) Snapshot() fwk.NodeInfo {
	out := *n
	return &out
}

func (n *fakeNode) AddPodInfo(pi fwk.PodInfo) { n.add(pi.GetPod()) }

type fakePod struct {
	fwk.PodInfo
	pod *v1.Pod
}

func (p fakePod) GetPod() *v1.Pod { return p.pod }

type fakeResource struct {
	fwk.Resource
	list v1.ResourceList
}

func (r fakeResource) GetMilliCPU() int64         { return r.list.Cpu().MilliValue() }
func (r fakeResource) GetMemory() int64           { return r.list.Memory().Value() }
func (r fakeResource) GetAllowedPodNumber() int   { return int(r.list.Pods().Value()) }
func (r fakeResource) GetEphemeralStorage() int64 { return r.list.StorageEphemeral().Value() }

func (r fakeResource) GetScalarResources() map[v1.ResourceName]int64 {
	out := map[v1.ResourceName]int64{}
	for name, q := range r.list {
		out[name] = q.Value()
	}
	return out
}

type fakeState struct {
	fwk.CycleState
	data  map[fwk.StateKey]fwk.StateData
	group bool
}

func newState() *fakeState { return &fakeState{data: map[fwk.StateKey]fwk.StateData{}} }

func (s *fakeState) IsPodGroupSchedulingCycle() bool             { return s.group }
func (s *fakeState) Write(key fwk.StateKey, value fwk.StateData) { s.data[key] = value }

func (s *fakeState) Read(key fwk.StateKey) (fwk.StateData, error) {
	if data, ok := s.data[key]; ok {
		return data, nil
	}
	return nil, fwk.ErrNotFound
}

func (s *fakeState) Clone() fwk.CycleState {
	return &fakeState{data: maps.Clone(s.data), group: s.group}
}

// fakeHandle is the scheduler's side: a snapshot, a client with its informers, and what plugins told it.
type fakeHandle struct {
	fwk.Handle
	snapshot  []fwk.NodeInfo
	client    *fake.Clientset
	informers informers.SharedInformerFactory
	recorder  *events.FakeRecorder
	activated []string
	repelling []fwk.NodeInfo // with pods that require others to stay away
	nominated []*v1.Pod      // by their status
}

func newHandle(nodes ...fwk.NodeInfo) *fakeHandle {
	client := fake.NewClientset()
	return &fakeHandle{
		snapshot: nodes, client: client, informers: informers.NewSharedInformerFactory(client, 0),
		recorder: events.NewFakeRecorder(100),
	}
}

func (h *fakeHandle) ProfileName() string { return "gshare" }

func (h *fakeHandle) ClientSet() kubernetes.Interface                        { return h.client }
func (h *fakeHandle) SharedInformerFactory() informers.SharedInformerFactory { return h.informers }
func (h *fakeHandle) EventRecorder() events.EventRecorderLogger              { return h.recorder }
func (h *fakeHandle) SnapshotSharedLister() fwk.SharedLister                 { return fakeLister{handle: h} }

func (h *fakeHandle) Activate(_ klog.Logger, pods map[string]*v1.Pod) {
	h.activated = append(h.activated, slices.Sorted(maps.Keys(pods))...)
}

func (h *fakeHandle) NominatedPodsForNode(node string) []fwk.PodInfo {
	var out []fwk.PodInfo
	for _, pod := range h.nominated {
		if pod.Status.NominatedNodeName == node {
			out = append(out, fakePod{pod: pod})
		}
	}
	return out
}

// knows puts pods where the informer would have them.
func (h *fakeHandle) knows(pods ...*v1.Pod) {
	for _, pod := range pods {
		if err := h.informers.Core().V1().Pods().Informer().GetIndexer().Add(pod); err != nil {
			panic(err)
		}
	}
}

type fakeLister struct {
	fwk.SharedLister
	fwk.NodeInfoLister
	handle *fakeHandle
}

func (l fakeLister) NodeInfos() fwk.NodeInfoLister { return l }

func (l fakeLister) HavePodsWithRequiredAntiAffinityList() ([]fwk.NodeInfo, error) {
	return l.handle.repelling, nil
}

func (l fakeLister) Get(name string) (fwk.NodeInfo, error) {
	for _, n := range l.handle.snapshot {
		if n.Node().Name == name {
			return n, nil
		}
	}
	return nil, errors.New("no such node")
}
