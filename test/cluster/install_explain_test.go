package cluster_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/gshare-dev/gshare/test/cluster"
	"github.com/gshare-dev/gshare/vgpu/kube"
)

// failure is a pod that does not run, and what kubectl gshare explain must say about it.
type failure struct {
	sm, mem, vgpu int64              // requested by the pod; zero means 50 %, 1024 MiB or one
	holder        [2]int64           // sm and mem that another pod holds on each of the eight GPUs; none if zero
	change        func(*v1.Pod)      // changes the pod
	before, after [][]string         // kubectl commands that set the failure up and undo it
	devices       string             // the node's simulated devices; empty: all are healthy
	waits         func(*v1.Pod) bool // condition for which to wait; nil: unschedulable
	want          []string
}

// The reasons for waiting that users encounter.
var failures = map[string]failure{
	"too much time": {holder: [2]int64{60, 1024},
		want: []string{"NoNodeFits: 0 of 1 nodes fit: 1 insufficient GPU SM-time", "gshare/sm: 40 instead of 50 in container main", "GPU-7 A100", "held by default/holder/main", "would fit without one of  default/holder"}},
	"too much memory": {mem: 30000, holder: [2]int64{10, 60000},
		want: []string{"1 insufficient GPU memory", "gshare/mem: 21920 instead of 30000 in container main"}},
	"more memory than a GPU": {mem: 100000,
		want: []string{"1 share larger than a slice", "fix:  ask for less than one slice has, or for more vGPUs", "gshare/mem: 81920 instead of 100000"}},
	"more GPUs than a node": {sm: 900, mem: 9216, vgpu: 9,
		want: []string{"1 fewer GPUs than requested vGPUs", "gshare/vgpu: 8 instead of 9"}},
	"another model": {change: annotated(kube.AnnotationModel, "H200"),
		want: []string{"1 no GPU of an accepted model", "gshare.dev/model: A100,H200 instead of H200"}},
	"another class": {sm: 10, holder: [2]int64{60, 1024}, change: annotated(kube.AnnotationIsolation, "elastic"),
		want: []string{"1 GPUs serve another isolation class", "no gshare.dev/isolation instead of elastic"}},
	"MIG on whole GPUs": {change: annotated(kube.AnnotationSlice, "1g.10gb"),
		want: []string{"1 no slice of the requested kind", "gshare.dev/slice: gpu instead of 1g.10gb"}},
	"failed GPUs": {devices: strings.ReplaceAll(eightGPUs, "}", ", fault: Xid 79}"),
		want: []string{"1 matching GPUs are unhealthy", "fix:  fault: the device has failed"}},
	"cordoned node": {before: [][]string{{"cordon", "node-0"}}, after: [][]string{{"uncordon", "node-0"}},
		want: []string{"1 the node is cordoned", "fix:  kubectl uncordon node-0"}},
	"taint": {before: [][]string{{"taint", "node", "node-0", "lab=x:NoSchedule"}}, after: [][]string{{"taint", "node", "node-0", "lab-"}},
		want: []string{"1 untolerated taint", "tolerate the taint lab=x:NoSchedule, or remove it from the node"}},
	"node selector": {change: func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{"disk": "fast"} },
		want: []string{"1 node selector or affinity does not match", "change nodeSelector or nodeAffinity, or label the node"}},
	"too much CPU": {change: func(p *v1.Pod) {
		p.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse("1000")}
	},
		want: []string{"1 insufficient cpu", "requests 1k, ", "request less cpu, or wait until a pod there ends"}},
	"another scheduler": {change: func(p *v1.Pod) { p.Spec.SchedulerName = "somebody" }, waits: func(*v1.Pod) bool { return true },
		want: []string{`OtherScheduler: the pod is for scheduler "somebody", which is none of gshare's`, "set spec.schedulerName: gshare in a new pod"}},
	"past the scheduler": {change: func(p *v1.Pod) { p.Spec.NodeName = "node-0" }, waits: func(*v1.Pod) bool { return true },
		want: []string{"BoundWithoutPlacement: the pod is on node-0 without a placement: somebody set spec.nodeName, not gshare-scheduler", "delete it and create it again"}},
	"gate": {change: func(p *v1.Pod) { p.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: "example.com/review"}} }, waits: pendingFor(v1.PodReasonSchedulingGated),
		want: []string{"SchedulingGated: the pod is held back by the scheduling gate example.com/review", "its owner has to remove the gate"}},
	"no image": {change: func(p *v1.Pod) { p.Spec.Containers[0].Image = "docker.io/local/missing:1" }, waits: func(p *v1.Pod) bool {
		return len(p.Status.ContainerStatuses) > 0 && p.Status.ContainerStatuses[0].State.Waiting != nil && p.Status.ContainerStatuses[0].State.Waiting.Message != ""
	},
		want: []string{"Placed: the pod has its shares on node node-0", "status: container main: ErrImageNeverPull: "}},
}

func annotated(annotation, value string) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Annotations = map[string]string{annotation: value} }
}

func pendingFor(reason string) func(*v1.Pod) bool {
	return func(p *v1.Pod) bool {
		for _, c := range p.Status.Conditions {
			if c.Type == v1.PodScheduled && c.Status == v1.ConditionFalse && c.Reason == reason {
				return true
			}
		}
		return false
	}
}

// placedTooEarly reports whether the scheduler has placed a pod that no longer fits since the last change of its node: it watches pods and
// nodes separately, and the watch of nodes may lag behind.
func placedTooEarly(f failure, p *v1.Pod) bool {
	return len(f.before) > 0 && f.waits == nil && p.Spec.NodeName != ""
}

// explains creates each failure and checks the explanation. It also explains a running pod, as a control that reasons are not given always.
func (i *installed) explains(t *testing.T) {
	for _, name := range slices.Sorted(maps.Keys(failures)) {
		f := failures[name]
		t.Run(name, func(t *testing.T) {
			i.prepare(t, f)
			pod := cluster.Pod("waits", "sleep", "inf")
			pod.Spec.Containers[0].Resources.Limits = vgpus(cmp.Or(f.sm, 50), cmp.Or(f.mem, 1024), f.vgpu)
			if f.change != nil {
				f.change(pod)
			}
			waits := f.waits
			if waits == nil {
				waits = pendingFor(v1.PodReasonUnschedulable)
			}
			for tries := 5; ; tries-- {
				i.create(i.ctx, t, i.written(pod.DeepCopy()))
				found, err := i.WaitPod(i.ctx, "waits", func(p *v1.Pod) bool { return waits(p) || placedTooEarly(f, p) })
				if err != nil {
					t.Fatal(err)
				}
				if !placedTooEarly(f, found) {
					break
				}
				if tries == 0 {
					t.Fatalf("the pod was placed again and again, the last time on %s", found.Spec.NodeName)
				}
				i.kubectl(t, "delete", "pod", "waits", "--grace-period=1")
			}
			out, err := i.gshare("explain", "waits", "-n", "default")
			for _, want := range f.want {
				if err != nil || !strings.Contains(out, want) {
					t.Errorf("%v: no %q in\n%s", err, want, out)
				}
			}
			i.mend(t, f)
		})
	}
	i.create(i.ctx, t, ask(cluster.Pod("runs", "sleep", "inf"), 50, 100, 1024))
	i.runsAsPlaced(i.ctx, t, "runs")
	if out, err := i.gshare("explain", "runs", "-n", "default"); err != nil || !strings.Contains(out, "Placed: ") || strings.Contains(out, "fix:") {
		t.Errorf("a pod that runs: %v\n%s", err, out)
	}
	i.clear(i.ctx, t)
}

// prepare changes the cluster so that the pod has to wait.
func (i *installed) prepare(t *testing.T, f failure) {
	t.Helper()
	for _, command := range f.before {
		i.kubectl(t, command...)
	}
	if f.devices != "" {
		i.setDevices(t, f.devices, false)
	}
	if f.holder[0] > 0 {
		holder := cluster.Pod("holder", "sleep", "inf")
		for range 8 { // a share with several vGPUs would take whole GPUs
			c := *holder.Spec.Containers[0].DeepCopy()
			c.Name, c.Resources.Limits = fmt.Sprint("main", len(holder.Spec.Containers)), vgpus(f.holder[0], f.holder[1], 1)
			holder.Spec.Containers = append(holder.Spec.Containers, c)
		}
		holder.Spec.Containers = holder.Spec.Containers[1:]
		i.create(i.ctx, t, i.written(holder))
		if _, err := i.WaitPod(i.ctx, "holder", cluster.IsRunning); err != nil {
			t.Fatal(err)
		}
	}
}

// mend undoes what prepare has changed.
func (i *installed) mend(t *testing.T, f failure) {
	t.Helper()
	i.clear(i.ctx, t)
	for _, command := range f.after {
		i.kubectl(t, command...)
	}
	if f.devices != "" {
		i.setDevices(t, eightGPUs, true)
	}
}

// setDevices replaces the node's simulated devices and waits until the inventory shows them.
func (i *installed) setDevices(t *testing.T, devices string, healthy bool) {
	t.Helper()
	node := i.Nodes[0]
	i.of[node.Name].setDevices(t, devices)
	i.waitNode(i.ctx, t, node, func(n *v1.Node) bool {
		inv, _, err := kube.InventoryOf(n)
		for _, s := range inv.Slices {
			if s.Healthy != healthy {
				return false
			}
		}
		return err == nil
	})
}

// vgpus returns the resource limits of a container with the whole quota. If count is zero, the admission policies fill it in.
func vgpus(sm, mem, count int64) v1.ResourceList {
	list := limits(sm, 100, mem)
	if count > 0 {
		list[kube.ResourceVGPU] = *resource.NewQuantity(count, resource.DecimalSI)
	}
	return list
}
