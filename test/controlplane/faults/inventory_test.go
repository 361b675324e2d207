package faults

import (
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gshare-dev/gshare/vgpu/kube"
)

// unreadable returns inventories that must not be relied on, and the reasons that events give, by the name of the node.
func unreadable() map[string]struct{ text, reason string } {
	with := func(node, old, replacement string) string {
		return strings.Replace(encode(inventory(node, 1)), old, replacement, 1)
	}
	twice := encode(inventory("twice", 1))
	slice := twice[strings.Index(twice, "[")+1 : strings.LastIndex(twice, "]")]
	return map[string]struct{ text, reason string }{
		"no-json":       {"{", "inventory: malformed: unexpected EOF"},
		"unknown-field": {with("unknown-field", `"v":1`, `"v":1,"extra":true`), `unknown field "extra"`},
		"other-version": {with("other-version", `"v":1`, `"v":2`), "version 2 is not 1"},
		"twice":         {with("twice", slice, slice+","+slice), `slice "GPU-twice-0" is there twice`},
		"oversized":     {encode(inventory("oversized", 1)) + strings.Repeat(" ", kube.MaxInventoryBytes), "bytes are more than 131072"},
		"empty":         {"", "inventory: malformed: EOF"},
	}
}

func TestUnreadableInventories(t *testing.T) {
	l := newLab(t)
	l.sharedScheduler()
	l.addNodes(node("sound", 1))
	bad := unreadable()
	for name, c := range bad {
		n := node(name, 1)
		n.Annotations[kube.AnnotationInventory] = c.text
		l.addNodes(n)
	}
	fit := gpuPods("fit", 4, 25) // all that fits on the one node with a valid inventory
	l.addPods(fit...)
	l.waitBound(names(fit)...)
	for _, p := range fit {
		l.wantNode(p.Name, "sound")
	}
	l.addPods(gpuPod("waiting", 25))
	l.waitRefused("waiting")
	l.waitEvent(l.pod("waiting").UID, "FailedScheduling", "6 gshare inventory is malformed") // the scheduler has seen all of the inventories
	for name, c := range bad {
		n, err := l.client.CoreV1().Nodes().Get(l.ctx, name, metav1.GetOptions{})
		l.must(err)
		l.waitEvent(n.UID, "MalformedInventory", c.reason)
	}
	began := time.Now()
	l.setInventory("twice", encode(inventory("twice", 1)))
	l.waitBound("waiting")
	t.Logf("the waiting pod was bound %v after the inventory was corrected", time.Since(began))
	l.wantNode("waiting", "twice")
	for name := range bad {
		l.setInventory(name, encode(inventory(name, 1)))
	}
	more := gpuPods("more", 5, 100)
	l.addPods(more...)
	l.waitBound(names(more)...)
	l.finish()
}

// TestInventoryBecomesUnreadable checks that pods running on a node remain counted while its inventory cannot be read.
func TestInventoryBecomesUnreadable(t *testing.T) {
	l := newLab(t)
	l.sharedScheduler()
	l.addNodes(node("n", 1))
	l.addPods(gpuPod("resident", 60))
	l.waitBound("resident")
	l.makeUnreadable("n")
	l.addPods(gpuPod("small", 40), gpuPod("large", 60))
	l.waitRefused("small", "large")
	l.setInventory("n", encode(inventory("n", 1)))
	l.waitBound("small")
	l.finish("large")
}

// makeUnreadable replaces a node's inventory by one that cannot be read, and returns once the scheduler has seen that: it watches nodes and pods
// separately. A canary pod without a share, which such a node accepts, can run only where the label is that is set at the same time.
func (l *lab) makeUnreadable(node string) {
	l.t.Helper()
	const label = "gshare.test/unreadable"
	patch := fmt.Sprintf(`{"metadata": {"annotations": {%q: "[]"}, "labels": {%q: "true"}}}`, kube.AnnotationInventory, label)
	_, err := l.client.CoreV1().Nodes().Patch(l.ctx, node, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	l.must(err)
	l.addPods(rawPod("canary", on(node), func(p *v1.Pod) { p.Spec.NodeSelector[label] = "true" }))
	l.waitBound("canary")
	l.deletePod("canary")
	l.must(l.board.wait(l.ctx, func(p pods) bool { return p["default/canary"] == nil }))
}
