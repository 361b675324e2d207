package sharing

import (
	"context"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// TestRulesOfEachNode: of nodes with different rules, each takes what it says itself. The agent of n1 has γ 150 and slices of one namespace,
// that of n2 γ 200 and mixed ones, that of n3 γ 100, and that of n4 publishes no rules and so has the defaults.
func TestRulesOfEachNode(t *testing.T) {
	rules := func(gamma int64, mix bool) *kube.Rules {
		return &kube.Rules{GammaPercent: gamma, MixTenants: mix, Window: kube.DefaultRules().Window}
	}
	published := map[string]*kube.Rules{"n1": rules(150, false), "n2": rules(200, true), "n3": rules(100, false), "n4": nil}
	other := func(pod *v1.Pod) { pod.Namespace = "other" }
	elastic := annotation(share.FieldSMLimit, "90")
	for name, tt := range map[string]struct {
		there, pod *v1.Pod // a pod on each node, and the pod to place
		want       []string
	}{
		"limits of 120":       {gpuPod("a", 30, 100, elastic), gpuPod("new", 30, 100, annotation(share.FieldSMLimit, "31")), []string{"n1", "n2", "n4"}},
		"limits of 180":       {gpuPod("a", 30, 100, elastic), gpuPod("new", 30, 100, elastic), []string{"n2"}},
		"another namespace":   {gpuPod("a", 30, 100), gpuPod("new", 30, 100, other), []string{"n2"}},
		"the same namespace":  {gpuPod("a", 30, 100), gpuPod("new", 30, 100), []string{"n1", "n2", "n3", "n4"}},
		"both on one of them": {gpuPod("a", 30, 100, elastic), gpuPod("new", 30, 100, elastic, other), []string{"n2"}},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHandle()
			var infos []*fakeNode
			for _, node := range []string{"n1", "n2", "n3", "n4"} {
				object := gpuNode(t, node, 1)
				publish(t, object, published[node])
				pod := tt.there.DeepCopy()
				pod.Name, pod.UID = node, "uid-"+pod.UID
				info := newNodeInfo(object, placed(t, pod, node, node+"-0"))
				infos = append(infos, info)
				h.snapshot = append(h.snapshot, info)
			}
			p := newPlugin(t, h, 0)
			state, _ := prefilter(t, p, tt.pod)
			var got, derived []string
			for _, info := range infos {
				if p.Filter(context.Background(), state, tt.pod, info).IsSuccess() {
					got = append(got, info.node.Name)
				}
				// The same node as a dry run sees it: another generation.
				if p.Filter(context.Background(), state, tt.pod, newNodeInfo(info.node, info.pods...)).IsSuccess() {
					derived = append(derived, info.node.Name)
				}
			}
			if !slices.Equal(got, tt.want) || !slices.Equal(derived, tt.want) {
				t.Errorf("nodes %v, derived %v, want %v", got, derived, tt.want)
			}
		})
	}
}

// publish writes the rules into the node's inventory.
func publish(t *testing.T, node *v1.Node, rules *kube.Rules) {
	t.Helper()
	inv, _, err := kube.InventoryOf(node)
	if err != nil {
		t.Fatal(err)
	}
	inv.Rules = rules
	if node.Annotations[kube.AnnotationInventory], err = kube.EncodeInventory(inv); err != nil {
		t.Fatal(err)
	}
}
