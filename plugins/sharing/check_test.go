package sharing

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	fwk "k8s.io/kube-scheduler/framework"
)

func TestCheckPasses(t *testing.T) {
	ask := func(name v1.ResourceName, q string) edit {
		return func(pod *v1.Pod) { pod.Spec.Containers[0].Resources.Requests[name] = resource.MustParse(q) }
	}
	tolerate := func(key string) edit {
		return func(pod *v1.Pod) {
			pod.Spec.Tolerations = []v1.Toleration{{Key: key, Operator: v1.TolerationOpExists}}
		}
	}
	taint := func(effect v1.TaintEffect) func(*v1.Node) {
		return func(n *v1.Node) { n.Spec.Taints = []v1.Taint{{Key: "lab", Effect: effect}} }
	}
	tier := func(value string) func(*v1.Node) {
		return func(n *v1.Node) {
			n.Spec.Taints = []v1.Taint{{Key: "tier", Value: value, Effect: v1.TaintEffectNoSchedule}}
		}
	}
	below := func(value string) edit {
		return func(pod *v1.Pod) {
			pod.Spec.Tolerations = []v1.Toleration{{Key: "tier", Operator: v1.TolerationOpLt, Value: value}}
		}
	}
	has := func(name v1.ResourceName, q string) func(*v1.Node) {
		return func(n *v1.Node) { n.Status.Allocatable[name] = resource.MustParse(q) }
	}
	cordoned := func(n *v1.Node) { n.Spec.Unschedulable = true }
	zone := func(pod *v1.Pod) { pod.Spec.NodeSelector = map[string]string{"zone": "a"} }
	tests := map[string]struct {
		node func(*v1.Node)
		pod  edit
		want bool
	}{
		"plain":                  {func(*v1.Node) {}, func(*v1.Pod) {}, true},
		"just enough cpu":        {has(v1.ResourceCPU, "3"), ask(v1.ResourceCPU, "2"), true}, // a neighbour has one
		"too little cpu":         {has(v1.ResourceCPU, "3"), ask(v1.ResourceCPU, "2001m"), false},
		"asks for no cpu":        {has(v1.ResourceCPU, "500m"), ask(v1.ResourceCPU, "0"), true},
		"too little memory":      {has(v1.ResourceMemory, "2Gi"), ask(v1.ResourceMemory, "1025Mi"), false},
		"asks for no memory":     {has(v1.ResourceMemory, "1Mi"), ask(v1.ResourceMemory, "0"), true},
		"one pod more":           {has(v1.ResourcePods, "2"), func(*v1.Pod) {}, true},
		"too many pods":          {has(v1.ResourcePods, "1"), func(*v1.Pod) {}, false},
		"tainted":                {taint(v1.TaintEffectNoSchedule), func(*v1.Pod) {}, false},
		"evicting taint":         {taint(v1.TaintEffectNoExecute), func(*v1.Pod) {}, false},
		"soft taint":             {taint(v1.TaintEffectPreferNoSchedule), func(*v1.Pod) {}, true},
		"tolerated":              {taint(v1.TaintEffectNoSchedule), tolerate("lab"), true},
		"other taint tolerated":  {taint(v1.TaintEffectNoSchedule), tolerate("office"), false},
		"tolerated by number":    {tier("3"), below("5"), true},
		"too high a number":      {tier("7"), below("5"), false},
		"cordoned":               {cordoned, func(*v1.Pod) {}, false},
		"cordoned and tolerated": {cordoned, tolerate(v1.TaintNodeUnschedulable), true},
		"selected":               {func(n *v1.Node) { n.Labels = map[string]string{"zone": "a"} }, zone, true},
		"not selected":           {func(*v1.Node) {}, zone, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			node := gpuNode(t, "n1", 1)
			tt.node(node)
			pod := gpuPod("a", 50, 50, tt.pod)
			doc := decodePod(pod)
			c := newPrecheck(pod, &doc.Pod, []fwk.NodeInfo{newNodeInfo(node, cpuPod("neighbour", on("n1")))})
			if got := c.passes(0); got != tt.want {
				t.Errorf("passes = %v", got)
			}
		})
	}
}
