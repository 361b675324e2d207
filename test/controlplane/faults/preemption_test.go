package faults

import (
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gshare-dev/gshare/vgpu/kube"
)

// priorities are the values of the PriorityClasses, by name.
var priorities = map[string]int32{"lowest": 5, "low": 10, "high": 1000}

func (l *lab) addPriorities() {
	l.t.Helper()
	for name, value := range priorities {
		class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value}
		_, err := l.client.SchedulingV1().PriorityClasses().Create(l.ctx, class, metav1.CreateOptions{})
		if !apierrors.IsAlreadyExists(err) {
			l.must(err)
		}
	}
}

func priority(class string) option { return func(p *v1.Pod) { p.Spec.PriorityClassName = class } }

// started writes the pods' start times, as a kubelet would, in the order of the names.
func (l *lab) started(names ...string) {
	l.t.Helper()
	began := time.Now().Add(-time.Hour)
	for i, name := range names {
		pod := l.pod(name)
		pod.Status.Phase = v1.PodRunning
		pod.Status.StartTime = &metav1.Time{Time: began.Add(time.Duration(i) * time.Minute)}
		_, err := l.client.CoreV1().Pods(pod.Namespace).UpdateStatus(l.ctx, pod, metav1.UpdateOptions{})
		l.must(err)
	}
}

// wantExactly checks that exactly these pods are left, and that all of them are bound.
func (l *lab) wantExactly(want ...string) {
	l.t.Helper()
	report, all := l.audit()
	l.reportViolations(report)
	left := map[string]bool{}
	for i := range all {
		left[all[i].Name] = all[i].Spec.NodeName != ""
	}
	for _, name := range want {
		if !left[name] {
			l.t.Errorf("pod %s is gone or not bound", name)
		}
		delete(left, name)
	}
	if len(left) > 0 {
		l.t.Errorf("pods %v are left too", left)
	}
}

func TestPreemptionEvictsTheLeast(t *testing.T) {
	cases := []struct {
		name      string
		a, b, c   string // priorities of the pods of 30 %, 30 % and 40 %, which started in this order
		preemptor int64
		wantGone  string
	}{
		{name: "the one that suffices", a: "low", b: "low", c: "low", preemptor: 40, wantGone: "c"},
		{name: "the least important", a: "low", b: "low", c: "lowest", preemptor: 40, wantGone: "c"},
		{name: "one of two equal ones", a: "low", b: "lowest", c: "low", preemptor: 30, wantGone: "b"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t)
			l.addPriorities()
			l.sharedScheduler()
			l.addNodes(node("n", 1))
			l.addPods(gpuPod("a", 30, priority(c.a)), gpuPod("b", 30, priority(c.b)), gpuPod("c", 40, priority(c.c)))
			l.waitBound("a", "b", "c")
			l.started("a", "b", "c")
			l.addPods(gpuPod("urgent", c.preemptor, priority("high")))
			l.waitBound("urgent")
			stay := []string{"urgent"}
			for _, name := range []string{"a", "b", "c"} {
				if name != c.wantGone {
					stay = append(stay, name)
				}
			}
			l.wantExactly(stay...)
			l.finish()
		})
	}
}

// TestPreemptionOfSeveralGPUs has a preemptor with two vGPUs, which needs room on two devices of one node.
func TestPreemptionOfSeveralGPUs(t *testing.T) {
	l := newLab(t)
	l.addPriorities()
	l.sharedScheduler()
	l.addNodes(node("n", 2), node("single", 1))
	var stay []string
	for i := range 2 {
		large, small := fmt.Sprintf("large-%d", i), fmt.Sprintf("small-%d", i)
		l.addPods(gpuPod(large, 60, priority("lowest"), on("n")))
		l.waitBound(large)
		stay = append(stay, small)
	}
	l.addPods(gpuPod("small-0", 40, priority("low"), on("n")), gpuPod("small-1", 40, priority("low"), on("n")))
	l.addPods(gpuPod("whole", 100, priority("lowest"), on("single")))
	l.waitBound("small-0", "small-1", "whole")
	l.addPods(gpuPod("urgent", 60, withContainer(container("second", "sm", "60", "mem", "1000", "vgpu", "1")), priority("high")))
	l.waitBound("urgent")
	l.wantExactly(append(stay, "whole", "urgent")...)
	l.finish()
}

// TestPreemptionWaitsForVictims has a victim that terminates slowly. Its share must go to the preemptor, and to no other
// pod.
func TestPreemptionWaitsForVictims(t *testing.T) {
	l := newLab(t)
	l.addPriorities()
	l.sharedScheduler()
	l.addNodes(node("n", 1))
	slow := func(p *v1.Pod) { p.Spec.TerminationGracePeriodSeconds = new(int64(600)) }
	l.addPods(gpuPod("slow", 60, priority("lowest"), slow), gpuPod("stays", 40, priority("low")))
	l.waitBound("slow", "stays")
	l.addPods(gpuPod("urgent", 60, priority("high")))
	l.waitPods("to be evicted", func(p *v1.Pod) bool { return p.DeletionTimestamp != nil }, "slow")
	l.waitPods("to be nominated", func(p *v1.Pod) bool { return p.Status.NominatedNodeName == "n" }, "urgent")
	l.addPods(gpuPod("thief", 60, priority("low")))
	l.waitRefused("thief")
	l.deletePod("slow")
	began := time.Now()
	l.waitBound("urgent")
	t.Logf("the preemptor was bound %v after its victim was gone", time.Since(began))
	l.wantNode("thief", "")
	l.finish("thief")
}

func TestPreemptionThatCannotHelp(t *testing.T) {
	l := newLab(t)
	l.addPriorities()
	l.sharedScheduler()
	l.addNodes(node("n", 1), node("m", 1))
	l.addPods(gpuPod("a", 100, priority("low")), gpuPod("b", 100, priority("low")))
	l.waitBound("a", "b")
	hopeless := map[string]*v1.Pod{
		"2 no GPU of an accepted model":              gpuPod("model", 40, priority("high"), annotated(kube.AnnotationModel, "H200")),
		"2 no slice of the requested kind":           gpuPod("kind", 40, priority("high"), annotated(kube.AnnotationSlice, "mig")),
		"2 fewer GPUs than requested":                gpuPod("devices", 40, priority("high"), gshare("vgpu", "2"), annotated(kube.AnnotationIsolation, "exclusive")),
		"2 Preemption is not helpful for scheduling": gpuPod("memory", 40, priority("high"), gshare("mem", "81921")),
	}
	for reason, pod := range hopeless {
		l.addPods(pod)
		l.waitRefused(pod.Name)
		l.waitEvent(l.pod(pod.Name).UID, "FailedScheduling", "preemption: 0/2 nodes are available: "+reason)
	}
	l.waitBound("a", "b")
	l.finish("model", "kind", "devices", "memory")
}
