package faults

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/gshare-dev/gshare/test/controlplane/bulk"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/share"
)

const testTimeout = 5 * time.Minute // on a busy machine; most tests take seconds

// lab is one test's view of the cluster.
type lab struct {
	t      *testing.T
	ctx    context.Context // cancelled at the end of the test
	client kubernetes.Interface
	board  *board
}

// newLab returns the shared cluster, emptied. It starts no scheduler.
func newLab(t *testing.T) *lab {
	t.Helper()
	if err := startPlane(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	t.Cleanup(cancel)
	l := &lab{t: t, ctx: ctx, client: common.client, board: common.board}
	l.clean()
	return l
}

// clean removes what an earlier test left, and returns once the running scheduler knows that it is gone.
func (l *lab) clean() {
	l.t.Helper()
	at := metav1.DeleteOptions{GracePeriodSeconds: new(int64)}
	l.must(l.client.CoreV1().Pods(metav1.NamespaceDefault).DeleteCollection(l.ctx, at, metav1.ListOptions{}))
	l.must(l.client.CoreV1().Nodes().DeleteCollection(l.ctx, at, metav1.ListOptions{}))
	l.must(l.board.wait(l.ctx, func(p pods) bool { return len(p) == 0 }))
	for common.scheduler != nil && !l.schedulerHasNoNode() {
	}
}

// schedulerHasNoNode finds out by a probe pod whether the scheduler knows no nodes. A scheduler that still knew a node of an earlier
// test would bind this test's pods to it, or to slices that an earlier node of the same name had.
func (l *lab) schedulerHasNoNode() bool {
	l.t.Helper()
	l.addPods(rawPod("probe"))
	answer := ""
	l.must(l.board.wait(l.ctx, func(p pods) bool {
		probe := p["default/probe"]
		if probe == nil {
			return false
		}
		for _, c := range probe.Status.Conditions {
			if c.Type == v1.PodScheduled {
				answer = c.Message
			}
		}
		return refused(probe) || probe.Spec.NodeName != ""
	}))
	l.deletePod("probe")
	l.must(l.board.wait(l.ctx, func(p pods) bool { return p["default/probe"] == nil }))
	return strings.Contains(answer, "no nodes available")
}

func (l *lab) must(err error) {
	l.t.Helper()
	if err != nil {
		l.t.Fatal(err)
	}
}

func (l *lab) addNodes(nodes ...*v1.Node) {
	l.t.Helper()
	l.must(bulk.CreateNodes(l.ctx, l.client, nodes, func() {}))
}

func (l *lab) addPods(pods ...*v1.Pod) {
	l.t.Helper()
	l.must(bulk.CreatePods(l.ctx, l.client, pods))
}

// deletePod deletes a pod with a grace period of zero, as a kubelet does when the containers have ended.
func (l *lab) deletePod(name string) {
	l.t.Helper()
	at := metav1.DeleteOptions{GracePeriodSeconds: new(int64)}
	l.must(l.client.CoreV1().Pods(metav1.NamespaceDefault).Delete(l.ctx, name, at))
}

// setInventory replaces a node's inventory by an arbitrary text.
func (l *lab) setInventory(node, text string) {
	l.t.Helper()
	patch := annotationPatch(l.t, kube.AnnotationInventory, text)
	_, err := l.client.CoreV1().Nodes().Patch(l.ctx, node, types.MergePatchType, patch, metav1.PatchOptions{})
	l.must(err)
}

// tellScheduler replaces a node's inventory, and returns once the scheduler uses it: a canary pod was bound to a slice that only the
// new inventory has.
func (l *lab) tellScheduler(node string, inv kube.Inventory) {
	l.t.Helper()
	canary := kube.Slice{
		ID: "MIG-canary", Device: "GPU-canary", Model: rand.Text(), Profile: "1g.10gb", SMs: 14, MemoryMiB: gpuMemory, Healthy: true,
		Classes: []share.Isolation{share.MPS},
	}
	inv.Slices = append(slices.Clone(inv.Slices), canary)
	l.setInventory(node, encode(inv))
	l.addPods(gpuPod("canary", 1, annotated(kube.AnnotationSlice, "mig"), annotated(kube.AnnotationModel, canary.Model), on(node)))
	l.waitBound("canary")
	l.deletePod("canary")
	l.must(l.board.wait(l.ctx, func(p pods) bool { return p["default/canary"] == nil }))
}

func (l *lab) annotatePod(pod, name, value string) {
	l.t.Helper()
	patch := annotationPatch(l.t, name, value)
	_, err := l.client.CoreV1().Pods(metav1.NamespaceDefault).Patch(l.ctx, pod, types.MergePatchType, patch, metav1.PatchOptions{})
	l.must(err)
}

func annotationPatch(t *testing.T, name, value string) []byte {
	t.Helper()
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{name: value}}})
	if err != nil {
		t.Fatal(err)
	}
	return patch
}

// pod reads a pod of the default namespace.
func (l *lab) pod(name string) *v1.Pod {
	l.t.Helper()
	pod, err := l.client.CoreV1().Pods(metav1.NamespaceDefault).Get(l.ctx, name, metav1.GetOptions{})
	l.must(err)
	return pod
}

// addInBackground creates the pods while the test goes on. All of them have been created when the test ends.
func (l *lab) addInBackground(pods []*v1.Pod) {
	created := make(chan error, 1)
	go func() { created <- bulk.CreatePods(l.ctx, l.client, pods) }()
	l.t.Cleanup(func() {
		if err := <-created; err != nil {
			l.t.Error(err)
		}
	})
}

func names(pods []*v1.Pod) []string {
	var out []string
	for _, p := range pods {
		out = append(out, p.Name)
	}
	return out
}
