package faults

import (
	"strconv"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var (
	matchApp = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "a"}}
	isFree   = v1.NodeSelectorTerm{MatchExpressions: []v1.NodeSelectorRequirement{
		{Key: v1.LabelHostname, Operator: v1.NodeSelectorOpIn, Values: []string{"free"}},
	}}
)

func hostPort(port int32) option {
	return func(p *v1.Pod) {
		p.Spec.Containers[0].Ports = []v1.ContainerPort{{ContainerPort: port, HostPort: port, Protocol: v1.ProtocolTCP}}
	}
}

func awayFromApp(p *v1.Pod) {
	p.Spec.Affinity = &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{{LabelSelector: matchApp, TopologyKey: v1.LabelHostname}},
	}}
}

func spread(p *v1.Pod) {
	p.Labels["app"] = "a"
	p.Spec.TopologySpreadConstraints = []v1.TopologySpreadConstraint{{
		MaxSkew: 1, TopologyKey: v1.LabelHostname, WhenUnsatisfiable: v1.DoNotSchedule, LabelSelector: matchApp,
	}}
}

func prefersFree(p *v1.Pod) {
	p.Spec.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{
		PreferredDuringSchedulingIgnoredDuringExecution: []v1.PreferredSchedulingTerm{{Weight: 100, Preference: isFree}},
	}}
}

func requiresFree(p *v1.Pod) {
	p.Spec.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{isFree}},
	}}
}

func tainted(n *v1.Node) {
	n.Spec.Taints = []v1.Taint{{Key: "team", Value: "x", Effect: v1.TaintEffectNoSchedule}}
}

func tolerates(p *v1.Pod) {
	p.Spec.Tolerations = []v1.Toleration{{Key: "team", Operator: v1.TolerationOpExists}}
}

func plain(*v1.Node) {}

// TestStockConditions has two nodes, of which the packing order prefers the busy one, since the pod fills up its GPU. Kubernetes'
// other scheduling conditions must override that preference.
func TestStockConditions(t *testing.T) {
	cases := []struct {
		name     string
		busy     nodeOption
		resident option // of the pod on the busy node
		pod      option
		want     string
	}{
		{"nothing", plain, on("busy"), func(*v1.Pod) {}, "busy"},
		{"CPU", allocatable(v1.ResourceCPU, "2"), on("busy"), asks(v1.ResourceCPU, "4"), "free"},
		{"memory", allocatable(v1.ResourceMemory, "1Gi"), on("busy"), asks(v1.ResourceMemory, "2Gi"), "free"},
		{"number of pods", allocatable(v1.ResourcePods, "1"), on("busy"), func(*v1.Pod) {}, "free"},
		{"node selector", plain, on("busy"), on("free"), "free"},
		{"required node affinity", plain, on("busy"), requiresFree, "free"},
		{"preferred node affinity", plain, on("busy"), prefersFree, "free"},
		{"taint", tainted, tolerates, func(*v1.Pod) {}, "free"},
		{"tolerated taint", tainted, tolerates, tolerates, "busy"},
		{"cordon", plain, on("busy"), func(*v1.Pod) {}, "free"},
		{"host port", plain, hostPort(8080), hostPort(8080), "free"},
		{"required pod anti-affinity", plain, labelled("app", "a"), awayFromApp, "free"},
		{"hard topology spread", plain, labelled("app", "a"), spread, "free"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t)
			l.sharedScheduler()
			l.addNodes(node("busy", 1, c.busy), node("free", 1))
			l.addPods(gpuPod("resident", 50, c.resident, on("busy")))
			l.waitBound("resident")
			if c.name == "cordon" {
				l.cordon("busy", true)
				l.waitCordonSeen("busy")
			}
			l.addPods(gpuPod("pod", 50, c.pod))
			l.waitBound("pod")
			l.wantNode("pod", c.want)
			l.finish()
		})
	}
}

func (l *lab) cordon(node string, cordoned bool) {
	l.t.Helper()
	n, err := l.client.CoreV1().Nodes().Get(l.ctx, node, metav1.GetOptions{})
	l.must(err)
	n.Spec.Unschedulable = cordoned
	n.Labels[cordonLabel] = strconv.FormatBool(cordoned)
	_, err = l.client.CoreV1().Nodes().Update(l.ctx, n, metav1.UpdateOptions{})
	l.must(err)
}

// cordonLabel is a label that the test sets in the same update as the cordon.
const cordonLabel = "gshare.test/cordoned"

// waitCordonSeen returns once the scheduler has seen that the node is cordoned: it watches nodes and pods separately, so a pod
// created after the cordon can be scheduled before the scheduler knows of it. A canary pod that tolerates the cordon can run only
// where the cordon's label is.
func (l *lab) waitCordonSeen(node string) {
	l.t.Helper()
	l.addPods(gpuPod("canary", 1, on(node), func(p *v1.Pod) {
		p.Spec.NodeSelector[cordonLabel] = "true"
		p.Spec.Tolerations = []v1.Toleration{{Key: v1.TaintNodeUnschedulable, Operator: v1.TolerationOpExists}}
	}))
	l.waitBound("canary")
	l.deletePod("canary")
	l.must(l.board.wait(l.ctx, func(p pods) bool { return p["default/canary"] == nil }))
}
