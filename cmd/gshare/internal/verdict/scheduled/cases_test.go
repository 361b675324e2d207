package scheduled_test

import (
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// failure is a node of two GPUs of its own, pods that are placed there first, and one that then finds no place.
type failure struct {
	node      func(*machine)
	before    []wish // placed by the scheduler, one on each GPU
	strays    int    // pods that nobody placed, bound to the node
	asks      wish
	reason    string // of the first obstacle
	scheduler string // what the scheduler says, where that is not the reason
	solved    bool   // by the first change that is proposed
}

// wish is what a pod asks for.
type wish struct {
	namespace       string // ml
	sm, quota, mem  int64
	annotation, say string
	bare            bool // leaves out the number of vGPUs
}

// machine is a node before it is created.
type machine struct {
	node   v1.Node
	rules  *kube.Rules
	slices []kube.Slice
	text   string // instead of the inventory
}

// Two of these do not fit on one GPU together.
var large = wish{sm: 60, quota: 100, mem: 1024}

// No two of these are on one GPU.
var keyed = wish{sm: 10, quota: 100, mem: 1024, annotation: kube.AnnotationAntiAffinity, say: "replica"}

// Two of these are on one GPU where the node has the default γ.
var growing = wish{sm: 10, quota: 100, mem: 1024, annotation: kube.AnnotationSMLimit, say: "60"}

func eachSlice(set func(*kube.Slice)) func(*machine) {
	return func(m *machine) {
		for i := range m.slices {
			set(&m.slices[i])
		}
	}
}

var failures = map[string]failure{
	"memory": {before: []wish{{sm: 10, quota: 100, mem: 35840}, {sm: 10, quota: 100, mem: 35840}}, asks: wish{sm: 50, quota: 100, mem: 10240},
		reason: "insufficient GPU memory", solved: true},
	"time":      {before: []wish{large, large}, asks: wish{sm: 50, quota: 100, mem: 1024}, reason: "insufficient GPU SM-time", solved: true},
	"turns":     {before: []wish{large, large}, asks: wish{sm: 60, quota: 40, mem: 1024}, reason: "insufficient GPU SM-time", solved: true},
	"too-large": {asks: wish{sm: 50, quota: 100, mem: 50000}, reason: "share larger than a slice", solved: true},
	"model":     {asks: wish{sm: 50, quota: 100, mem: 1024, annotation: kube.AnnotationModel, say: "H200"}, reason: "no GPU of an accepted model", solved: true},
	"kind":      {asks: wish{sm: 50, quota: 100, mem: 1024, annotation: kube.AnnotationSlice, say: "1g.10gb"}, reason: "no slice of the requested kind", solved: true},
	"unhealthy": {node: eachSlice(func(s *kube.Slice) { s.Healthy = false }), asks: large, reason: "matching GPUs are unhealthy"},
	"no-mps": {node: eachSlice(func(s *kube.Slice) { s.Classes = []share.Isolation{share.Exclusive} }), asks: large,
		reason: "isolation class cannot be enforced", solved: true},
	"class": {before: []wish{large, large}, asks: wish{sm: 10, quota: 100, mem: 1024, annotation: kube.AnnotationIsolation, say: "elastic"},
		reason: "GPUs serve another isolation class", solved: true},
	"tenant": {before: []wish{{namespace: "web", sm: 60, quota: 100, mem: 1024}, {namespace: "web", sm: 60, quota: 100, mem: 1024}},
		asks: wish{sm: 10, quota: 100, mem: 1024}, reason: "GPUs are shared by another namespace"},
	"anti-affinity": {before: []wish{keyed, keyed}, asks: keyed, reason: "GPUs hold a share with the same anti-affinity", solved: true},
	"device-ids": {node: eachSlice(func(s *kube.Slice) { s.MaxShares = 1 }), before: []wish{large, large}, asks: wish{sm: 10, quota: 10, mem: 1024},
		reason: "insufficient gshare/vgpu"},
	"taint": {node: func(m *machine) { m.node.Spec.Taints = []v1.Taint{{Key: "lab", Effect: v1.TaintEffectNoSchedule}} }, asks: large,
		reason: "untolerated taint"},
	"cordon":    {node: func(m *machine) { m.node.Spec.Unschedulable = true }, asks: large, reason: "the node is cordoned", scheduler: "unschedulable"},
	"bare-node": {node: func(m *machine) { m.slices = nil }, asks: large, reason: "no gshare GPUs", scheduler: "Insufficient gshare/mem"},
	"malformed": {node: func(m *machine) { m.text = "{" }, asks: large, reason: "gshare inventory is malformed"},
	"gamma": {node: func(m *machine) {
		m.rules = &kube.Rules{GammaPercent: 100, Window: metav1.Duration{Duration: 100 * time.Millisecond}}
	}, before: []wish{growing, growing}, asks: growing, reason: "limits would exceed the oversubscription bound", solved: true},
	"stray":    {strays: 3, asks: large, reason: "insufficient GPU SM-time", scheduler: "insufficient gshare/sm-time", solved: true},
	"bare-pod": {asks: wish{sm: 50, quota: 100, mem: 1024, bare: true}, scheduler: "gshare/vgpu"},
}
