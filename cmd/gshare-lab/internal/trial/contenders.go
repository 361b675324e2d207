package trial

import (
	"bytes"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gshare-dev/gshare/lab/trace"
	"github.com/gshare-dev/gshare/manifests"
	"github.com/gshare-dev/gshare/vgpu/kube"
)

const (
	stockName  = "stock"
	gshareName = "gshare"
	wideName   = "gshare-wide"
	benchGPUs  = 8

	// wholeUnit is the extended resource for whole GPUs that pods request in the benchmark of stock kube-scheduler.
	wholeUnit v1.ResourceName = "example.com/gpu"
)

// contender is one of the schedulers that gshare-lab bench compares: its configuration and the resource limits of the pods that it
// schedules.
type contender struct {
	name    string
	config  []byte
	profile string
	limits  func(i int) v1.ResourceList
}

func contenders(wide bool) []contender {
	sides := []contender{
		{stockName, []byte(stockConfig), v1.DefaultSchedulerName, wholeLimits},
		{gshareName, manifests.SchedulerConfig, kube.SchedulerName, shareLimits},
	}
	if wide {
		sides = append(sides, contender{wideName, withoutCandidates(), kube.SchedulerName, shareLimits})
	}
	return sides
}

// stockConfig is the default configuration of kube-scheduler.
const stockConfig = `apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
`

// withoutCandidates returns gshare's scheduler configuration with candidate nodes disabled, so that every node is filtered for every pod.
func withoutCandidates() []byte {
	return bytes.ReplaceAll(manifests.SchedulerConfig, []byte("  pluginConfig: &packed\n"),
		[]byte("  pluginConfig: &packed\n  - name: SlotPacking\n    args: {candidateNodes: 0}\n"))
}

func benchNodes(n int) []trace.Node {
	nodes := make([]trace.Node, n)
	for i := range nodes {
		nodes[i] = trace.Node{Name: fmt.Sprintf("node-%05d", i), MilliCPU: 96_000, MemoryMiB: 768 << 10, GPUs: benchGPUs, Model: "G3"}
	}
	return nodes
}

func addWholeUnits(node *v1.Node) {
	units := *resource.NewQuantity(benchGPUs, resource.DecimalSI)
	node.Status.Capacity[wholeUnit], node.Status.Allocatable[wholeUnit] = units, units
}

// benchShares holds the shares that pods request in the benchmark of gshare: percent of SMs, percent of time, and MiB. The first three have
// the SM shares of FaST-GShare's models; two of the eight request a GPU's whole time.
var benchShares = [][3]int64{
	{12, 40, 4096}, {24, 40, 8192}, {50, 60, 16384}, {12, 100, 4096}, {24, 80, 8192}, {50, 100, 32768}, {100, 50, 40960}, {100, 100, 81920},
}

func shareLimits(i int) v1.ResourceList {
	s := benchShares[i%len(benchShares)]
	limits := plainLimits()
	limits[kube.ResourceSM] = *resource.NewQuantity(s[0], resource.DecimalSI)
	limits[kube.ResourceQuota] = *resource.NewQuantity(s[1], resource.DecimalSI)
	limits[kube.ResourceMemory] = *resource.NewQuantity(s[2], resource.DecimalSI)
	limits[kube.ResourceVGPU] = *resource.NewQuantity(1, resource.DecimalSI)
	return limits
}

func wholeLimits(int) v1.ResourceList {
	limits := plainLimits()
	limits[wholeUnit] = *resource.NewQuantity(1, resource.DecimalSI)
	return limits
}

func plainLimits() v1.ResourceList {
	return v1.ResourceList{v1.ResourceCPU: resource.MustParse("1"), v1.ResourceMemory: resource.MustParse("4Gi")}
}

func benchPods(n int, c contender) []*v1.Pod {
	pods := make([]*v1.Pod, n)
	for i := range pods {
		limits := c.limits(i)
		pods[i] = &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("pod-%05d", i), Namespace: metav1.NamespaceDefault},
			Spec: v1.PodSpec{
				SchedulerName: c.profile, TerminationGracePeriodSeconds: new(int64), EnableServiceLinks: new(bool),
				Containers: []v1.Container{{Name: "main", Image: trace.Image, Resources: v1.ResourceRequirements{Limits: limits, Requests: limits}}},
			},
		}
	}
	return pods
}
