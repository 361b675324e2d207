package faults

import (
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gshare-dev/gshare/vgpu/kube"
)

func TestNonsenseIsRefusedWithReason(t *testing.T) {
	l := newLab(t)
	l.sharedScheduler()
	l.addNodes(nodes("n", 2, 2)...)
	var bad []*v1.Pod
	for _, c := range nonsense {
		bad = append(bad, rawPod(c.name, c.options...))
	}
	l.addPods(bad[:len(bad)/2]...)
	l.addPods(gpuPod("good", 24))
	began := time.Now()
	l.addPods(bad[len(bad)/2:]...)
	l.waitBound("good")
	t.Logf("the good pod among %d bad ones was bound after %v", len(bad), time.Since(began))

	for _, c := range nonsense {
		l.waitEvent(l.pod(c.name).UID, "FailedScheduling", c.event)
	}
	l.waitRefused(names(bad)...)
	l.addPods(gpuPod("good-too", 24))
	l.waitBound("good-too")
	for _, p := range bad {
		if node := l.pod(p.Name).Spec.NodeName; node != "" {
			t.Errorf("%s is bound to %s", p.Name, node)
		}
		l.deletePod(p.Name)
	}
	l.finish()
}

// TestReasonsWithPercent has reasons that contain a percent sign, gshare's own and a user's. The scheduler uses a reason as
// a format string when it creates the event; the event must be readable nevertheless.
func TestReasonsWithPercent(t *testing.T) {
	l := newLab(t)
	l.sharedScheduler()
	l.addNodes(node("n", 1))
	reasons := map[string]option{
		"is below the request of 24":            annotated(kube.AnnotationSMLimit, "20"),
		"more than one vGPU needs quota 100":    asking("sm", "24", "quota", "50", "mem", "1024", "vgpu", "2"),
		"is neither slo nor best-effort":        annotated(kube.AnnotationClass, "50%d %s"),
		"is not a whole number of percent":      annotated(kube.AnnotationQuotaLimit, "80%"),
		"is not a device model such as A100":    annotated(kube.AnnotationModel, "100%"),
		"is not a label value of at most 63 le": annotated(kube.AnnotationWorkload, "%v"),
	}
	i := 0
	for reason, bad := range reasons {
		t.Run(reason, func(t *testing.T) {
			i++
			pod := rawPod(fmt.Sprintf("percent-%d", i), good, bad)
			l.addPods(pod)
			l.waitRefused(pod.Name)
			uid := l.pod(pod.Name).UID
			l.waitEvent(uid, "FailedScheduling", reason)
			for _, e := range l.events(l.ctx, uid) {
				if strings.Contains(e.Note, "%!") {
					t.Errorf("the event is garbled: %s", e.Note)
				}
			}
			l.deletePod(pod.Name)
		})
	}
	l.finish()
}

func TestNonsenseThatTheAPIServerRefuses(t *testing.T) {
	cases := []struct {
		name    string
		options []option
		want    string
	}{
		{"negative", []option{good, gshare("sm", "-24")}, "must be greater than or equal to 0"},
		{"fraction", []option{good, gshare("sm", "1.5")}, "must be an integer"},
		{"milli", []option{good, gshare("mem", "500m")}, "must be an integer"},
		{"request-not-limit", []option{good, func(p *v1.Pod) {
			p.Spec.Containers[0].Resources.Requests = v1.ResourceList{kube.ResourceSM: quantity("12")}
		}}, "must be equal to gshare/sm limit"},
		{"request-only", []option{func(p *v1.Pod) {
			p.Spec.Containers[0].Resources.Requests = v1.ResourceList{kube.ResourceSM: quantity("12")}
		}}, "Limit must be set for non overcommitable resources"},
	}
	l := newLab(t)
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			pod := rawPod(c.name, c.options...)
			_, err := l.client.CoreV1().Pods(pod.Namespace).Create(l.ctx, pod, metav1.CreateOptions{})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: the API server answers %v, want %q", c.name, err, c.want)
			}
		})
	}
	l.finish()
}
