package profiles

import (
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// someTraining returns a profile of a training.
func someTraining(changes ...func(*api.GPUProfile)) *api.GPUProfile {
	return someProfile(append([]func(*api.GPUProfile){func(p *api.GPUProfile) {
		p.Spec.SLO, p.Spec.Protocol, p.Spec.Training = api.ProfileSLO{}, "", &api.ProfileTraining{Steady: "15s"}
		p.Spec.Search = api.ProfileSearch{Strategy: api.Bisection, Step: 10}
	}}, changes...)...)
}

// kernels is a training that more than half of the SMs does not help.
func kernels(sm int64) int { return int(20 * min(sm, 50)) }

// TestTraining measures a training by the kernels that the agent counts, without a client, and finds the fewest SMs that do most of what all of them do.
func TestTraining(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, someTraining())
		w.rate = kernels
		w.kill = func(_ int, p *v1.Pod) bool { // kills none, but sees all
			c := p.Spec.Containers[0]
			if c.Name != "server" || c.ReadinessProbe != nil || len(c.Ports) > 0 || len(c.Env) > 0 || p.Annotations[kube.AnnotationIsolation] != string(share.MPS) {
				t.Errorf("pod of a training: %+v", p)
			}
			return false
		}
		p := w.run()
		result(w, p)
		r := p.Status.Recommended
		if r == nil || r.SM != 40 || r.SMLimit != 50 || r.Quota != 100 || r.MaxBatch != 1 || r.RequestsPerSecond != 0 || r.KernelsPerSecond < 790 || r.KernelsPerSecond > 800 || r.Memory != "1152Mi" {
			t.Errorf("recommended %+v", r)
		}
		for _, point := range p.Status.Points {
			want := float64(kernels(point.SM))
			if point.KernelsPerSecond < 0.99*want || point.KernelsPerSecond > 1.01*want || point.SpreadPercent > 5 || !point.Confirmed || point.RequestsPerSecond != 0 || point.GPUSeconds < 15 {
				t.Errorf("%+v, want %v kernels a second", point, want)
			}
			if part := point.GPUTimePercent; part == nil || *part < 40 || *part > 60 { // the counts reach back to before it has launched
				t.Errorf("%+v: part of the time %v", point, part)
			}
		}
		if n := len(p.Status.Points); n > 6 || w.servers != n {
			t.Errorf("%d trials with %d programs", n, w.servers)
		}
		if e := <-w.recorder.Events; !strings.Contains(e, "40% of the SMs launch") || !strings.Contains(e, "up to 50%") {
			t.Error(e)
		}
	})
}

// TestTrainingCrashes: whatever write the controller is killed before or after, the result is the same.
func TestTrainingCrashes(t *testing.T) {
	run := func(t *testing.T, crash func(int) (before, after bool)) (got string, writes int) {
		inBubble(t, func(t *testing.T) {
			w := newWorld(t, someTraining(func(p *api.GPUProfile) { p.Spec.Search.Step = 50 }))
			w.rate, w.crash = func(sm int64) int { return 300 * int(sm) }, crash
			p := w.run()
			for at := range p.Status.Points { // what it was looked at when differs by the crash
				p.Status.Points[at].SpreadPercent, p.Status.Points[at].GPUTimePercent = 0, nil
				p.Status.Points[at].KernelsPerSecond = float64(int(p.Status.Points[at].KernelsPerSecond/300 + 0.5))
			}
			p.Status.Recommended.KernelsPerSecond = 0
			got, writes = result(w, p), w.writes
		})
		return got, writes
	}
	want, writes := run(t, nil)
	if writes < 10 {
		t.Fatalf("%d writes", writes)
	}
	for at := 1; at <= writes; at++ {
		if !*full && at%4 != 0 {
			continue
		}
		for _, before := range []bool{true, false} {
			if got, _ := run(t, func(n int) (bool, bool) { return n == at && before, n == at && !before }); got != want {
				t.Errorf("killed at write %d, before %t:\n%s\nwant %s", at, before, got, want)
			}
		}
	}
}

// TestTrainingEnds: trainings that cannot be measured, and what is said of them.
func TestTrainingEnds(t *testing.T) {
	for name, test := range map[string]struct {
		change  func(*api.GPUProfile)
		cluster func(*world)
		status  metav1.ConditionStatus
		reason  string
		message string
	}{
		"launches nothing": {
			cluster: func(w *world) { w.rate = func(int64) int { return 0 } },
			status:  metav1.ConditionTrue, reason: api.ReasonNoShare, message: "launches no kernels within 10m0s",
		},
		"ends too soon": {
			cluster: func(w *world) {
				w.kill = func(_ int, p *v1.Pod) bool { return p.Spec.Containers[0].Name == "server" }
			},
			status: metav1.ConditionTrue, reason: api.ReasonNoShare, message: "the training ended before its rate was steady",
		},
		"agent that does not count": {
			cluster: func(w *world) { w.old = true },
			status:  metav1.ConditionFalse, reason: api.ReasonClientFailed, message: "the agent of node node1 has not said for 2m0s how many kernels",
		},
		"search that needs requests": {
			change: func(p *api.GPUProfile) { p.Spec.Search = api.ProfileSearch{Strategy: api.Grid} },
			status: metav1.ConditionFalse, reason: api.ReasonInvalid, message: "a training needs strategy Bisection",
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				p := someTraining()
				if test.change != nil {
					test.change(p)
				}
				w := newWorld(t, p)
				if w.rate = kernels; test.cluster != nil {
					test.cluster(w)
				}
				c := complete(w)
				if c.Status != test.status || c.Reason != test.reason || !strings.Contains(c.Message, test.message) || len(w.pods()) > 0 {
					t.Errorf("%+v, %d pods, want %q", c, len(w.pods()), test.message)
				}
			})
		})
	}
}

// TestTrainingDisrupted: a training whose pod is taken away is begun again, which says nothing about its share.
func TestTrainingDisrupted(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, someTraining())
		w.rate = kernels
		for len(w.pods()) == 0 || w.pods()[0].Status.Phase != v1.PodRunning {
			if _, err := w.reconcile(); err != nil {
				t.Fatal(err)
			}
			w.kubelet()
		}
		gone := w.pods()[0]
		if err := w.server.Delete(t.Context(), &gone); err != nil {
			t.Fatal(err)
		}
		p := w.run()
		if r := p.Status.Recommended; r == nil || r.SM != 40 || w.servers != len(p.Status.Points)+1 {
			t.Errorf("%d programs for %d trials: %+v", w.servers, len(p.Status.Points), r)
		}
		for _, point := range p.Status.Points {
			if point.Failed != "" {
				t.Errorf("%+v", point)
			}
		}
	})
}

// TestTrainingUncounted: where the agent of the node stops counting a training, the trial begins again with another pod: it neither waits for ever, with a GPU
// that nobody uses, nor gives up.
func TestTrainingUncounted(t *testing.T) {
	for name, change := range map[string]func(*kube.ContainerEnforcement){
		"no more counts":            func(*kube.ContainerEnforcement) {},
		"a restarted agent":         func(c *kube.ContainerEnforcement) { c.Work = nil },
		"counts that are not valid": func(c *kube.ContainerEnforcement) { c.Work.Changed = -1 },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				w := newWorld(t, someTraining())
				w.rate = kernels
				w.counts = func(p *v1.Pod) bool {
					if time.Since(startOf(p)) < 15*time.Second || w.servers > 1 {
						return true
					}
					status, _, err := kube.EnforcementStatusOf(p)
					if err != nil {
						t.Fatal(err)
					}
					if c := &status.Containers[0]; c.Work != nil {
						change(c)
					}
					text, err := kube.EncodeEnforcementStatus(status)
					if err != nil {
						t.Fatal(err)
					}
					p.Annotations[kube.AnnotationEnforcementStatus] = text
					return false
				}
				p := w.run()
				if r := p.Status.Recommended; r == nil || r.SM != 40 || w.servers != len(p.Status.Points)+1 {
					t.Errorf("%d programs for %d trials: %+v", w.servers, len(p.Status.Points), r)
				}
			})
		})
	}
}

// TestGPUTime: the part of the time is that of the counts between two times, and is not known without two of them.
func TestGPUTime(t *testing.T) {
	since := time.Unix(1e9, 0)
	at := func(seconds int) time.Time { return since.Add(time.Duration(seconds) * time.Second) }
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{}}, Spec: v1.PodSpec{Containers: []v1.Container{{Name: "server"}}}}
	set := func(w *kube.Work) {
		text, err := kube.EncodeEnforcementStatus(kube.EnforcementStatus{Containers: []kube.ContainerEnforcement{{Name: "server", Work: w}}})
		if err != nil {
			t.Fatal(err)
		}
		pod.Annotations[kube.AnnotationEnforcementStatus] = text
	}
	set(&kube.Work{Since: since, Counts: []kube.WorkCount{{}, {At: 5000, Busy: 0}, {At: 10000, Busy: 4000}, {At: 15000, Busy: 9000}}})
	for name, test := range map[string]struct {
		from, to time.Time
		want     *int64
	}{
		"all":               {time.Time{}, time.Time{}, new(int64(60))},
		"from when it runs": {at(4), time.Time{}, new(int64(90))},
		"until its end":     {at(4), at(11), new(int64(80))},
		"one count":         {at(4), at(6), nil},
		"none":              {at(40), time.Time{}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			got := gpuTimeOf(pod, test.from, test.to)
			if (got == nil) != (test.want == nil) || got != nil && *got != *test.want {
				t.Errorf("%v, want %v", got, test.want)
			}
		})
	}
	set(&kube.Work{Since: since, Counts: []kube.WorkCount{{Busy: 9}, {At: 5000, Busy: 1}}})
	if got := gpuTimeOf(pod, time.Time{}, time.Time{}); got != nil {
		t.Errorf("%d %% by counts that no agent writes", *got)
	}
}
