package plugins_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler"
	internalcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/gshare-dev/gshare/vgpu/kube"
)

// cluster is a scheduler with all stock plugins, and more nodes than a cycle has candidates. Of equally good nodes, n00 ranks first for every pod.
type cluster struct {
	scheduler *scheduler.Scheduler
	profile   framework.Framework
}

// newCluster returns a cluster whose nodes were modified by edit, which gets the index of each node, and which has the given pods.
func newCluster(t *testing.T, file string, edit func(i int, node *v1.Node), pods ...*v1.Pod) cluster {
	t.Helper()
	sched, err := newScheduler(t, file)
	if err != nil {
		t.Fatal(err)
	}
	c := cluster{sched, sched.Profiles["gshare"]}
	for i := range 70 {
		node := gpuNode(t, fmt.Sprintf("n%02d", i), 1)
		inv, _, err := kube.InventoryOf(node)
		if err != nil {
			t.Fatal(err)
		}
		maps.Copy(node.Status.Allocatable, kube.NodeResources(inv))
		edit(i, node)
		sched.Cache.AddNode(klog.Background(), node)
	}
	for _, pod := range pods {
		if err := sched.Cache.AddPod(klog.Background(), pod); err != nil {
			t.Fatal(err)
		}
	}
	if err := sched.Cache.UpdateSnapshot(klog.Background(), c.profile.SnapshotSharedLister().(*internalcache.Snapshot)); err != nil {
		t.Fatal(err)
	}
	return c
}

// schedule runs one scheduling cycle of a pod, up to the choice of a node. An error would make the scheduler record FailedScheduling.
func (c cluster) schedule(t *testing.T, pod *v1.Pod) (node string, err error) {
	t.Helper()
	if err := c.profile.SharedInformerFactory().Core().V1().Pods().Informer().GetStore().Add(pod); err != nil {
		t.Fatal(err)
	}
	state := framework.NewCycleState()
	result, err := c.scheduler.SchedulePod(t.Context(), c.profile, state, &framework.QueuedPodInfo{PodInfo: podInfo(t, pod)})
	var unfit *framework.FitError
	switch {
	case errors.As(err, &unfit):
		_, _ = c.profile.RunPostFilterPlugins(t.Context(), state, pod, unfit.Diagnosis.NodeToStatus) // its message becomes part of the event
	case err != nil:
		t.Fatal(err)
	}
	return result.SuggestedHost, err
}

// TestStockFiltersRefuseNoBestNode: if a stock filter refuses the node that ranks first by its GPUs, the first cycle already chooses the next node.
func TestStockFiltersRefuseNoBestNode(t *testing.T) {
	repelling := gpuPod("repelling", 1, 0)
	repelling.Spec.Affinity = &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{{
		LabelSelector: &metav1.LabelSelector{}, TopologyKey: v1.LabelHostname,
	}}}}
	ported := gpuPod("ported", 1, 0)
	ported.Spec.Containers[0].Ports = []v1.ContainerPort{{HostPort: 80, Protocol: v1.ProtocolTCP}}
	const feature = "RestartAllContainersOnContainerExits"

	for name, tt := range map[string]struct {
		best, next func(*v1.Node) // changes to n00 and to all others
		there      *v1.Pod        // on n00
		pod        func(*v1.Pod)
	}{
		"nothing": {},
		"cordon":  {best: func(n *v1.Node) { n.Spec.Unschedulable = true }},
		"taint": {best: func(n *v1.Node) {
			n.Spec.Taints = []v1.Taint{{Key: "k", Effect: v1.TaintEffectNoSchedule}}
		}},
		"label": {
			next: func(n *v1.Node) { n.Labels["pool"] = "gpu" },
			pod:  func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{"pool": "gpu"} },
		},
		"number of pods":    {best: func(n *v1.Node) { n.Status.Allocatable[v1.ResourcePods] = resource.MustParse("0") }},
		"extended resource": {best: func(n *v1.Node) { delete(n.Status.Allocatable, kube.ResourceVGPU) }},
		"storage": {
			next: func(n *v1.Node) { n.Status.Allocatable[v1.ResourceEphemeralStorage] = resource.MustParse("1Gi") },
			pod: func(p *v1.Pod) {
				p.Spec.Containers[0].Resources.Requests[v1.ResourceEphemeralStorage] = resource.MustParse("1Gi")
			},
		},
		"port":                 {there: placed(t, ported, "n00", "n00-0"), pod: func(p *v1.Pod) { p.Spec.Containers[0].Ports = ported.Spec.Containers[0].Ports }},
		"anti-affinity":        {there: placed(t, repelling, "n00", "n00-0")},
		"feature of a kubelet": {next: func(n *v1.Node) { n.Status.DeclaredFeatures = []string{feature} }, pod: restartsAll},
	} {
		t.Run(name, func(t *testing.T) {
			var there []*v1.Pod
			if tt.there != nil {
				there = append(there, tt.there)
			}
			edits := map[bool]func(*v1.Node){true: tt.best, false: tt.next}
			c := newCluster(t, manifest, func(i int, node *v1.Node) {
				node.Labels = map[string]string{v1.LabelHostname: node.Name}
				if edit := edits[i == 0]; edit != nil {
					edit(node)
				}
			}, there...)
			pod, want := gpuPod("new", 50, 0), "n01"
			if tt.pod != nil {
				tt.pod(pod)
			}
			if name == "nothing" {
				want = "n00"
			}
			if node, err := c.schedule(t, pod); node != want || err != nil {
				t.Errorf("node %q, error %v; want %s at once", node, err, want)
			}
		})
	}
}

// restartsAll makes a pod require a feature that older kubelets lack.
func restartsAll(pod *v1.Pod) {
	pod.Spec.Containers[0].RestartPolicyRules = []v1.ContainerRestartRule{{Action: v1.ContainerRestartRuleActionRestartAllContainers}}
}

// TestUnknownFilterRefusesOnePod: a profile has an affinity of its own, which gshare's plugin does not know. That makes the scheduling cycle of one
// pod fail, not that of every pod.
func TestUnknownFilterRefusesOnePod(t *testing.T) {
	text, err := os.ReadFile(manifest)
	if err != nil {
		t.Fatal(err)
	}
	const added = `  - name: NodeAffinity
    args:
      addedAffinity:
        requiredDuringSchedulingIgnoredDuringExecution:
          nodeSelectorTerms: [{matchExpressions: [{key: pool, operator: In, values: [gpu]}]}]
`
	const next = "  - name: NodeResourcesFit"
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte(strings.Replace(string(text), next, added+next, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	c := newCluster(t, file, func(i int, node *v1.Node) {
		if i > 0 {
			node.Labels = map[string]string{"pool": "gpu"}
		}
	})
	failed := 0
	for i := range 20 {
		pod := gpuPod(fmt.Sprint("pod-", i), 50, 0)
		node, err := c.schedule(t, pod)
		if err != nil {
			failed++
			node, err = c.schedule(t, pod)
		}
		if node != "n01" || err != nil {
			t.Errorf("node %q, error %v; want n01 at the latest in the second cycle", node, err)
		}
	}
	if failed != 1 {
		t.Errorf("the first cycle of %d of 20 pods fails, want 1", failed)
	}
}
