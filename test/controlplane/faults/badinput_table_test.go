package faults

import (
	v1 "k8s.io/api/core/v1"

	"github.com/gshare-dev/gshare/vgpu/kube"
)

const forged = `{"v":1,"node":"n-0","uid":"1","model":"slots","containers":[{"name":"main","vgpus":[` +
	`{"slice":"GPU-n-0-0","class":"mps","priority":"slo","sm":10,"quota":1000,"memory":1048576}]}]}`

// asking replaces the resources of the main container.
func asking(namesAndAmounts ...string) option {
	return func(p *v1.Pod) { p.Spec.Containers[0] = container("main", namesAndAmounts...) }
}

func withContainer(c v1.Container) option {
	return func(p *v1.Pod) { p.Spec.Containers = append(p.Spec.Containers, c) }
}

func withInit(c v1.Container) option {
	return func(p *v1.Pod) { p.Spec.InitContainers = append(p.Spec.InitContainers, c) }
}

// good is a share that fits any node; the tests' options make it invalid.
var good = asking("sm", "24", "quota", "100", "mem", "1024", "vgpu", "1")

// nonsense lists requests that no node can satisfy, with the event that explains why. The nodes have 2 GPUs each.
var nonsense = []struct {
	name    string
	options []option
	event   string
}{
	{"sm-zero", []option{asking("sm", "0", "mem", "1024", "vgpu", "1")},
		`container "main": gshare/sm: 0 percent points is outside 1 to 6400`},
	{"sm-huge", []option{asking("sm", "1000000000000000000", "mem", "1024", "vgpu", "1")},
		"gshare/sm: 1000000000000000000 percent points is outside"},
	{"sm-above-slice", []option{asking("sm", "101", "mem", "1024", "vgpu", "1")},
		"gshare/sm: 101 percent points need at least 2 vGPUs, not 1"},
	{"sm-above-node", []option{asking("sm", "300", "mem", "3072", "vgpu", "3")}, "fewer GPUs than requested vGPUs"},
	{"quota-zero", []option{good, gshare("quota", "0")}, "gshare/quota: 0 percent is outside 1 to 100"},
	{"quota-101", []option{good, gshare("quota", "101")}, "gshare/quota: 101 percent is outside 1 to 100"},
	{"mem-zero", []option{good, gshare("mem", "0")}, "gshare/mem: 0 MiB is outside"},
	{"mem-above-slice", []option{good, gshare("mem", "100000")}, "share larger than a slice"},
	{"mem-above-node", []option{good, gshare("mem", "200000")}, "Insufficient gshare/mem"},
	{"vgpu-zero", []option{good, gshare("vgpu", "0")}, "gshare/vgpu: 0 vGPUs is outside 1 to 64"},
	{"vgpu-65", []option{asking("sm", "65", "mem", "65", "vgpu", "65")}, "gshare/vgpu: 65 vGPUs is outside 1 to 64"},
	{"vgpu-above-node", []option{asking("sm", "30", "mem", "30", "vgpu", "3"), annotated(kube.AnnotationIsolation, "exclusive")}, "fewer GPUs than requested vGPUs"},
	{"vgpu-of-parts", []option{asking("sm", "30", "mem", "30", "vgpu", "3")}, "gshare.dev/isolation: 3 vGPUs can be had as whole devices only"},
	{"quota-alone", []option{asking("quota", "50")},
		"gshare/sm: a share needs it; quota, mem or vgpu alone ask for nothing"},
	{"vgpu-alone", []option{asking("vgpu", "1")}, "gshare/sm: a share needs it"},
	{"no-mem", []option{asking("sm", "24", "vgpu", "1")}, "gshare/mem: a share needs it"},
	{"no-vgpu", []option{asking("sm", "24", "mem", "1024")},
		"gshare/vgpu: a share needs gshare/vgpu, which the admission policy fills in"},
	{"sm-uneven", []option{asking("sm", "25", "mem", "1024", "vgpu", "2")},
		"gshare/sm: 25 percent points cannot be divided evenly among 2 vGPUs"},
	{"mem-uneven", []option{asking("sm", "24", "mem", "1023", "vgpu", "2")},
		"gshare/mem: 1023 MiB cannot be divided evenly among 2 vGPUs"},
	{"quota-two-vgpus", []option{asking("sm", "24", "quota", "50", "mem", "1024", "vgpu", "2")},
		"more than one vGPU needs quota 100"},
	{"wrong-sm-time", []option{good, gshare("sm-time", "7")}, "gshare/sm-time: 7 is not sm x quota, which is 2400"},
	{"unknown-resource", []option{good, gshare("smm", "1")}, "gshare/smm: gshare has no such resource"},

	{"sm-limit-text", []option{good, annotated(kube.AnnotationSMLimit, "4x")},
		`gshare.dev/sm-limit: "4x" is not a whole number of percent`},
	{"sm-limit-low", []option{good, annotated(kube.AnnotationSMLimit, "20")}, "below the request of 24"},
	{"quota-limit-101", []option{good, annotated(kube.AnnotationQuotaLimit, "101")},
		"gshare.dev/quota-limit: 101 percent is outside"},
	{"both-elastic", []option{good, gshare("quota", "40"), annotated(kube.AnnotationSMLimit, "48")},
		"gshare.dev/sm-limit: SMs above the request"},
	{"class", []option{good, annotated(kube.AnnotationClass, "gold")},
		`gshare.dev/class: "gold" is neither slo nor best-effort`},
	{"isolation", []option{good, annotated(kube.AnnotationIsolation, "mig")},
		`gshare.dev/isolation: "mig" is none of exclusive, mps, elastic, swap`},
	{"isolation-swap", []option{good, annotated(kube.AnnotationIsolation, "swap"), annotated(kube.AnnotationEnforcement, "best-effort")},
		"gshare.dev/isolation: swap needs gshare.dev/enforcement strict"},
	{"model-empty", []option{good, annotated(kube.AnnotationModel, "A100,,H200")},
		`gshare.dev/model: "" is not a device model`},
	{"model-absent", []option{good, annotated(kube.AnnotationModel, "H200")}, "no GPU of an accepted model"},
	{"workload", []option{good, annotated(kube.AnnotationWorkload, "a b")},
		`gshare.dev/workload: "a b" is not a label value`},
	{"packing", []option{good, annotated(kube.AnnotationPacking, "dense")}, `gshare.dev/packing: "dense" is neither binpack nor spread`},
	{"anti-affinity", []option{good, annotated(kube.AnnotationAntiAffinity, "a b")},
		`gshare.dev/anti-affinity: "a b" is not a label value`},
	{"weights", []option{good, annotated(kube.AnnotationWeights, "resnext=1Gi")},
		`gshare.dev/weights: "resnext" is not sha256: and 64 lower-case hexadecimal digits`},
	{"slice", []option{good, annotated(kube.AnnotationSlice, "1g")},
		`gshare.dev/slice: "1g" is neither gpu, mig nor a MIG profile`},
	{"slice-absent", []option{good, annotated(kube.AnnotationSlice, "mig")}, "no slice of the requested kind"},
	{"enforcement", []option{good, annotated(kube.AnnotationEnforcement, "none")},
		`gshare.dev/enforcement: "none" is neither strict nor best-effort`},

	{"one-of-three", []option{
		good, withContainer(container("two", "sm", "0", "mem", "1", "vgpu", "1")),
		withContainer(container("three", "sm", "1", "mem", "1", "vgpu", "1")),
	}, `container "two": gshare/sm: 0 percent points`},
	{"init-container", []option{good, withInit(container("init", "sm", "24", "mem", "1024", "vgpu", "1"))},
		`container "init": gshare/sm: an init container that ends may not ask for a share`},
	{"forged", []option{good, annotated(kube.AnnotationPlacement, forged)},
		"gshare.dev/placement is written by the scheduler and may not be set on a pod"},
	{"forged-garbage", []option{good, annotated(kube.AnnotationPlacement, "{")},
		"gshare.dev/placement is written by the scheduler"},
}
