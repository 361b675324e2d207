package profiles

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	diff "github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/serving/profiler"
	"github.com/gshare-dev/gshare/serving/rules/profile"
	"github.com/gshare-dev/gshare/vgpu/kube"
)

// TestProfile measures a server whose best share is known, and finds it.
func TestProfile(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, someProfile())
		var alone []string
		w.kill = func(_ int, p *v1.Pod) bool { // kills none, but sees all
			if p.Spec.Containers[0].Name == "server" {
				if m := memoryOf(p); m != 40960 {
					alone = append(alone, fmt.Sprint(m))
				}
				if p.Annotations[kube.AnnotationModel] != "H200" || p.Spec.RestartPolicy != v1.RestartPolicyNever || p.Labels[api.LabelFunction] != "" {
					t.Errorf("server's pod: %v", p)
				}
			} else if *p.Spec.ActiveDeadlineSeconds <= int64(clientLimit.Seconds()) || *p.Spec.AutomountServiceAccountToken || p.Spec.Containers[0].Image != "gshare-controller:v1" {
				t.Errorf("client's pod: %v", p)
			}
			return false
		}
		p := w.run()
		result(w, p)
		s := p.Status
		if len(alone) > 0 {
			t.Errorf("servers with %v MiB of memory are not alone on a GPU of 40960", alone)
		}
		best := s.Points[0]
		for _, point := range s.Points { // by brute force over what was measured
			if point.RequestsPerSecond/float64(point.SM) > best.RequestsPerSecond/float64(best.SM) {
				best = point
			}
		}
		if r := s.Recommended; r == nil || r.SM != best.SM || r.SMLimit != min(100, 2*best.SM) || r.MaxBatch != best.Batch || r.Quota != 100 || r.RequestsPerSecond > best.RequestsPerSecond {
			t.Errorf("recommended %+v, best is %+v", r, best)
		}
		if s.Recommended.Memory != "1152Mi" { // 1000 and a tenth, in units of 64
			t.Errorf("memory %s", s.Recommended.Memory)
		}
		want := api.ProfileFingerprint{Image: "bert@sha256:1", Model: "H200", SMs: 132, MemoryMiB: 40960, Driver: "580.95.05", Gshare: "v1"}
		if s.Fingerprint == nil || *s.Fingerprint != want || s.Trials != int32(len(s.Points)) || s.GPUSeconds <= 0 || s.ObservedGeneration != 1 {
			t.Errorf("status %+v of %+v", s, s.Fingerprint)
		}
		for what, times := range w.ran {
			if times != 1 {
				t.Errorf("%s was measured %d times", what, times)
			}
		}
		if shares := map[int64]bool{}; true {
			for _, point := range s.Points {
				shares[point.SM] = true
			}
			if w.servers > len(shares)+2 { // a server has all batches of its share; the best may have ended before it is confirmed
				t.Errorf("%d servers for %d shares", w.servers, len(shares))
			}
		}
	})
}

// gridSurface is one for servers that have a part of the time, on which larger shares cost less for a request, up to half of the SMs.
func gridSurface(rows int, sm, quota int64) time.Duration {
	return surface(rows, sm, quota) * time.Duration(200-quota) / time.Duration(quota) * time.Duration(10+sm) / time.Duration(sm)
}

// TestGrid tries the shares that it is given, with one server for all quotas of a number of SMs, another one for a whole GPU, and one with which the best is measured
// again. With an agent that changes no quotas there is a server for each share, and the same result.
func TestGrid(t *testing.T) {
	for name, test := range map[string]struct {
		search          api.ProfileSearch
		points, servers int
	}{
		"some": {api.ProfileSearch{Strategy: api.Grid, SM: []int64{20, 40}, Quota: []int64{50, 100}}, 4, 2 + 1},
		"FaST": {api.ProfileSearch{Strategy: api.Grid}, 35, 7 + 1 + 1},
	} {
		t.Run(name, func(t *testing.T) {
			run := func(t *testing.T, old bool) (got string) {
				inBubble(t, func(t *testing.T) {
					w := newWorld(t, someProfile(func(p *api.GPUProfile) { p.Spec.Search = test.search }))
					w.batch, w.old = gridSurface, old
					p := w.run()
					got = result(w, p)
					if len(p.Status.Points) != test.points || w.measurements() != test.points+1 {
						t.Errorf("%d points and %d measurements, want %d and one more", len(p.Status.Points), w.measurements(), test.points)
					}
					for _, point := range p.Status.Points {
						if want := gridSurface(1, point.SM, point.Quota); point.MeanMicroseconds != want.Microseconds() {
							t.Errorf("%+v was measured with another share: want %v", point, want)
						}
					}
					if !old && w.servers > test.servers || old && w.servers < test.points {
						t.Errorf("%d servers, old agent: %t", w.servers, old)
					}
				})
				return got
			}
			now := run(t, false)
			if test.points > 10 && !*full {
				return
			}
			if before := run(t, true); now != before {
				t.Error(diff.Diff(before, now))
			}
		})
	}
}

// TestBisection finds the fewest SMs that answer most of what the whole GPU does, and the fewest that answer all of it. With fewer trials than that takes
// there is no result.
func TestBisection(t *testing.T) {
	for name, test := range map[string]struct {
		step           int64
		maxTrials      int
		sm, limit, max int64
		reason         string
	}{
		"in steps of 10 %": {0, 0, 40, 50, 6, api.ReasonMeasured},
		"in steps of 25 %": {25, 0, 50, 50, 4, api.ReasonMeasured},
		"too few trials":   {0, 3, 0, 0, 3, api.ReasonBudgetUsed},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				w := newWorld(t, someProfile(func(p *api.GPUProfile) {
					p.Spec.Search = api.ProfileSearch{Strategy: api.Bisection, Step: test.step, MaxTrials: test.maxTrials}
				}))
				p := w.run()
				if c := meta.FindStatusCondition(p.Status.Conditions, api.ConditionComplete); c == nil || c.Status != metav1.ConditionTrue || c.Reason != test.reason {
					t.Errorf("condition %+v", c)
				}
				r := p.Status.Recommended
				if int64(len(p.Status.Points)) > test.max || (r == nil) != (test.sm == 0) {
					t.Fatalf("%+v after %d trials", r, len(p.Status.Points))
				}
				if r != nil && (r.SM != test.sm || r.SMLimit != test.limit || r.Quota != 100 || r.MaxBatch != 1 || r.RequestsPerSecond <= 0) {
					t.Errorf("%+v, want %d %% up to %d %%", r, test.sm, test.limit)
				}
				for _, point := range p.Status.Points {
					if confirmed := r != nil && point.SM == r.SM; point.Confirmed != confirmed {
						t.Errorf("%+v was measured again: %v", point, point.Confirmed)
					}
				}
			})
		})
	}
}

// TestServerFails: a server that does not run on a share is a result of this share, after a second try.
func TestServerFails(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, someProfile())
		tries := 0
		w.kill = func(_ int, p *v1.Pod) bool {
			sm := p.Spec.Containers[0].Resources.Limits[kube.ResourceSM]
			if p.Spec.Containers[0].Name == clientName || sm.Value() != 20 {
				return false
			}
			tries++
			return true
		}
		p := w.run()
		result(w, p)
		at := indexOf(&p.Status, 20, 100, 1)
		if at < 0 || !strings.Contains(p.Status.Points[at].Failed, "137") || tries != maxAttempts {
			t.Errorf("after %d tries: %+v", tries, p.Status.Points)
		}
		if r := p.Status.Recommended; r == nil || r.SM <= 20 {
			t.Errorf("recommended %+v", r)
		}
	})
}

// TestNoKernels: a server that launches no kernel while it answers gets no recommendation, not even an earlier one. If the agent does not count so far,
// the measurement goes on.
func TestNoKernels(t *testing.T) {
	for name, test := range map[string]struct {
		rate   int
		counts bool // until the end
		reason string
	}{
		"none":        {0, true, api.ReasonNoShare},
		"some":        {1000, true, api.ReasonMeasured},
		"not counted": {0, false, api.ReasonMeasured},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				w := newWorld(t, someProfile(func(p *api.GPUProfile) {
					p.Status.Recommended = &api.ProfileRecommendation{SM: 10, Quota: 100, Memory: "1Gi"}
				}))
				w.rate = func(int64) int { return test.rate }
				counted := map[types.UID]bool{}
				w.counts = func(p *v1.Pod) bool {
					first := !counted[p.UID]
					counted[p.UID] = true
					return first || test.counts
				}
				p := w.run()
				result(w, p)
				c := meta.FindStatusCondition(p.Status.Conditions, api.ConditionComplete)
				if c.Reason != test.reason || (p.Status.Recommended == nil) != (test.reason == api.ReasonNoShare) {
					t.Fatalf("%+v, recommended %+v", c, p.Status.Recommended)
				}
				if test.reason == api.ReasonNoShare && (c.Message != profiler.ErrNoKernels.Error() || w.measurements() != 1 || p.Status.GPUSeconds == 0) {
					t.Errorf("after %d measurements and %d s: %s", w.measurements(), p.Status.GPUSeconds, c.Message)
				}
			})
		})
	}
}

// TestServerDoesNotStart: a server whose container does not start, for want of its image for instance, gives the GPU back after an hour.
func TestServerDoesNotStart(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, someProfile())
		look := func() {
			t.Helper()
			for range 6 {
				if _, err := w.reconcile(); err != nil {
					t.Fatal(err)
				}
			}
		}
		look()
		pod := w.pods()[0]
		pod.Spec.NodeName = "node1"
		if err := w.server.Update(t.Context(), &pod); err != nil {
			t.Fatal(err)
		}
		pod.Status = v1.PodStatus{
			Phase: v1.PodPending, Conditions: []v1.PodCondition{{Type: v1.PodScheduled, Status: v1.ConditionTrue, LastTransitionTime: metav1.Now()}},
			ContainerStatuses: []v1.ContainerStatus{{Name: "server", State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "ImagePullBackOff"}}}},
		}
		if err := w.server.Status().Update(t.Context(), &pod); err != nil {
			t.Fatal(err)
		}
		time.Sleep(59 * time.Minute)
		if look(); len(w.pods()) != 1 || w.pods()[0].UID != pod.UID {
			t.Errorf("%d pods after 59 minutes, want that it has an hour", len(w.pods()))
		}
		time.Sleep(2 * time.Minute)
		look()
		c := meta.FindStatusCondition(w.profile().Status.Conditions, api.ConditionComplete)
		if len(w.pods()) != 0 || c.Reason != api.ReasonClientFailed || !strings.Contains(c.Message, "not started within 1h0m0s") || !strings.Contains(c.Message, "ImagePullBackOff") {
			t.Errorf("%d pods, %+v", len(w.pods()), c)
		}
	})
}

// lateClient returns a world in which the server of a profile runs and its client has not started for three minutes, on a node unless it is "".
func lateClient(t *testing.T, node string, changes ...func(*api.GPUProfile)) (w *world, look func()) {
	t.Helper()
	w = newWorld(t, someProfile(changes...))
	look = func() {
		t.Helper()
		for range 6 {
			if _, err := w.reconcile(); err != nil {
				t.Fatal(err)
			}
		}
	}
	look()
	w.kubelet() // of the server alone
	look()
	for _, p := range w.pods() {
		if p.Spec.Containers[0].Name == clientName && node != "" {
			p.Spec.NodeName = node
			if err := w.server.Update(t.Context(), &p); err != nil {
				t.Fatal(err)
			}
		}
	}
	time.Sleep(time.Minute)
	if look(); len(w.pods()) != 2 {
		t.Fatalf("%d pods, want server and client", len(w.pods()))
	}
	time.Sleep(2 * time.Minute)
	look()
	return w, look
}

// TestClientWantsConfigMap: a client that waits for the body of its request says for which, since neither its status nor its log does, and holds no GPU meanwhile.
// The trial begins again when the ConfigMap is there.
func TestClientWantsConfigMap(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w, _ := lateClient(t, "node1", func(p *api.GPUProfile) {
			p.Spec.Protocol, p.Spec.Request.BodyFrom = api.HTTP, &api.BodyReference{ConfigMap: "samples", Key: "cat.png"}
		})
		c := meta.FindStatusCondition(w.profile().Status.Conditions, api.ConditionComplete)
		if want := "which mounts the key cat.png of ConfigMap samples"; c.Reason != api.ReasonClientWaits || !strings.Contains(c.Message, want) {
			t.Errorf("%+v, want %q", c, want)
		}
		if pods := w.pods(); len(pods) != 1 || pods[0].Spec.Containers[0].Name != clientName {
			t.Errorf("%d pods, want the client alone", len(pods))
		}
		if e := <-w.recorder.Events; !strings.HasPrefix(e, "Warning ClientWaits") {
			t.Error(e)
		}
		p := w.run()
		result(w, p)
		if p.Status.Recommended == nil || w.servers != int(p.Status.Targets) {
			t.Errorf("%+v, %d servers", p.Status, w.servers)
		}
	})
}

// TestClientHasNoNode: a client for which there is no node keeps no server on its GPU, and ends the profile after an hour.
func TestClientHasNoNode(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w, look := lateClient(t, "")
		if pods := w.pods(); len(pods) != 1 || pods[0].Spec.Containers[0].Name != clientName {
			t.Errorf("%d pods, want the client alone", len(pods))
		}
		time.Sleep(56 * time.Minute)
		if look(); len(w.pods()) != 1 {
			t.Errorf("%d pods after 59 minutes, want that the client has an hour", len(w.pods()))
		}
		time.Sleep(2 * time.Minute)
		look()
		c := meta.FindStatusCondition(w.profile().Status.Conditions, api.ConditionComplete)
		if len(w.pods()) != 0 || c.Reason != api.ReasonClientFailed || !strings.Contains(c.Message, "not started within 1h0m0s") {
			t.Errorf("%d pods, %+v", len(w.pods()), c)
		}
	})
}

// complete returns the condition Complete once nothing changes any more.
func complete(w *world) *metav1.Condition {
	w.Helper()
	c := meta.FindStatusCondition(w.run().Status.Conditions, api.ConditionComplete)
	if c == nil {
		w.Fatal("no condition")
	}
	return c
}

// TestEnds: profiles that end in another way than with a share, and say why.
func TestEnds(t *testing.T) {
	for name, test := range map[string]struct {
		change  func(*api.GPUProfile)
		cluster func(*world)
		status  metav1.ConditionStatus
		reason  string
		message string
		points  int // at most
	}{
		"client ends without a result": {
			cluster: func(w *world) {
				w.kill = func(_ int, p *v1.Pod) bool { return p.Spec.Containers[0].Name == clientName }
			},
			status: metav1.ConditionFalse, reason: api.ReasonClientFailed, message: "code 137",
		},
		"budget": {
			change: func(p *api.GPUProfile) { p.Spec.Search.MaxTrials = 3 }, status: metav1.ConditionTrue, reason: api.ReasonBudgetUsed, points: 3,
		},
		"no share is enough": {
			cluster: func(w *world) { w.batch = func(int, int64, int64) time.Duration { return time.Second } },
			status:  metav1.ConditionTrue, reason: api.ReasonNoShare, points: 10, message: "no share answers requests within the objective",
		},
		"server ends on each share": {
			cluster: func(w *world) {
				w.kill = func(_ int, p *v1.Pod) bool { return p.Spec.Containers[0].Name == "server" }
			},
			status: metav1.ConditionTrue, reason: api.ReasonNoShare, points: 10, message: "every trial failed, the last with: the server ended",
		},
		"no such function": {
			change: func(p *api.GPUProfile) {
				p.Spec = api.GPUProfileSpec{FunctionRef: &api.FunctionReference{Name: "gone"}}
			}, status: metav1.ConditionFalse, reason: api.ReasonInvalid, message: "no GPUFunction gone",
		},
		"batches of HTTP": {
			change: func(p *api.GPUProfile) { p.Spec.Protocol, p.Spec.Search.MaxBatch = api.HTTP, 8 },
			status: metav1.ConditionFalse, reason: api.ReasonInvalid, message: "spec.search.maxBatch",
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				p := someProfile()
				if test.change != nil {
					test.change(p)
				}
				w := newWorld(t, p)
				if test.cluster != nil {
					test.cluster(w)
				}
				c := complete(w)
				if c.Status != test.status || c.Reason != test.reason || !strings.Contains(c.Message, test.message) {
					t.Errorf("%+v", c)
				}
				if got := w.profile().Status; len(got.Points) > test.points || got.Attempt != nil || len(w.pods()) > 0 {
					t.Errorf("%d points, %d pods: %+v", len(got.Points), len(w.pods()), got.Attempt)
				}
			})
		})
	}
}

// TestMoreTrials: a greater budget goes on with the trials that there are; another search begins anew.
func TestMoreTrials(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, someProfile(func(p *api.GPUProfile) { p.Spec.Search.MaxTrials = 3 }))
		w.run()
		edit := func(change func(*api.GPUProfile)) {
			p := w.profile()
			p.Generation++
			change(p)
			if err := w.server.Update(t.Context(), p); err != nil {
				t.Fatal(err)
			}
		}
		edit(func(p *api.GPUProfile) { p.Spec.Search.MaxTrials = 60 })
		p := w.run()
		if c := meta.FindStatusCondition(p.Status.Conditions, api.ConditionComplete); c.Reason != api.ReasonMeasured || len(p.Status.Points) <= 3 {
			t.Errorf("%+v with %d points", c, len(p.Status.Points))
		}
		for what, times := range w.ran {
			if times != 1 {
				t.Errorf("%s was measured %d times", what, times)
			}
		}
		edit(func(p *api.GPUProfile) { p.Spec.SLO.Latency = "30ms" })
		again := w.run()
		result(w, again)
		if w.ran["10 x 100, 1, again false"] != 2 {
			t.Errorf("nothing was measured anew: %v", w.ran)
		}
	})
}

// TestAnotherImage: trials of another image are dropped when the first of a new one is there.
func TestAnotherImage(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, someProfile())
		w.kill = func(int, *v1.Pod) bool {
			if w.servers == 2 {
				w.image = "bert@sha256:2" // the tag has moved
			}
			return false
		}
		p := w.run()
		result(w, p)
		if p.Status.Fingerprint.Image != "bert@sha256:2" || w.ran["10 x 100, 1, again false"] != 2 {
			t.Errorf("%+v: %v", p.Status.Fingerprint, w.ran)
		}
	})
}

// TestStale: what makes a complete profile stale.
func TestStale(t *testing.T) {
	for name, test := range map[string]struct {
		change func(w *world)
		want   metav1.ConditionStatus
	}{
		"nothing": {func(*world) {}, metav1.ConditionFalse},
		"age":     {func(*world) { time.Sleep(721 * time.Hour) }, metav1.ConditionTrue},
		"gshare":  {func(w *world) { w.version = "v2" }, metav1.ConditionTrue},
		"GPU": {func(w *world) {
			n := gpuNode(w.T, "node1", "H100", 81920)
			if err := w.server.Update(w.Context(), n); err != nil {
				w.Fatal(err)
			}
		}, metav1.ConditionTrue},
		"driver": {func(w *world) {
			n := gpuNode(w.T, "node1", "H200", 40960)
			n.Labels[labelDriver] = "590.1"
			if err := w.server.Update(w.Context(), n); err != nil {
				w.Fatal(err)
			}
		}, metav1.ConditionTrue},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				w := newWorld(t, someProfile())
				w.run()
				test.change(w)
				p := w.run()
				if c := meta.FindStatusCondition(p.Status.Conditions, api.ConditionStale); c == nil || c.Status != test.want {
					t.Errorf("%+v", c)
				}
				result(w, p) // it stays as it was measured
			})
		})
	}
}

// TestNewImage: a profile that asks for it is measured again once the replicas of its function run another image, once for each image and at most once an
// hour; until then, the function keeps its share.
func TestNewImage(t *testing.T) {
	const old, pushed = "bert@sha256:1", "bert@sha256:2"
	for name, test := range map[string]struct {
		when      api.Remeasure
		served    string // image of the replicas
		measured  string // image that later trials get
		after     time.Duration
		wantImage string
		wantTimes int // for which the first trial was made
	}{
		"never, as by default":        {when: "", served: pushed, measured: pushed, after: 2 * time.Hour, wantImage: old, wantTimes: 1},
		"never":                       {when: api.RemeasureNever, served: pushed, measured: pushed, after: 2 * time.Hour, wantImage: old, wantTimes: 1},
		"a new image":                 {when: api.RemeasureNewImage, served: pushed, measured: pushed, after: 2 * time.Hour, wantImage: pushed, wantTimes: 2},
		"the same image":              {when: api.RemeasureNewImage, served: old, measured: old, after: 2 * time.Hour, wantImage: old, wantTimes: 1},
		"within the hour":             {when: api.RemeasureNewImage, served: pushed, measured: pushed, after: time.Minute, wantImage: old, wantTimes: 1},
		"no replicas":                 {when: api.RemeasureNewImage, served: "", measured: pushed, after: 2 * time.Hour, wantImage: old, wantTimes: 1},
		"a node that keeps the image": {when: api.RemeasureNewImage, served: pushed, measured: old, after: 2 * time.Hour, wantImage: old, wantTimes: 2},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				p, f := ofFunction(0)
				p.Spec.Remeasure = test.when
				w := newWorld(t, p, f, gpuNode(t, "node1", "H200", 40960))
				share := w.run().Status.Recommended
				if share == nil {
					t.Fatal("nothing is recommended")
				}
				if test.served != "" {
					w.readyReplica(test.served)
				}
				w.image = test.measured
				for range 3 { // however often it is looked
					time.Sleep(test.after)
					if r := w.pass(1).Status.Recommended; r == nil || r.SM != share.SM || r.Memory != share.Memory {
						t.Errorf("recommended %+v meanwhile, was %+v", r, share)
					}
					p = w.run()
				}
				if c := meta.FindStatusCondition(p.Status.Conditions, api.ConditionComplete); c.Status != metav1.ConditionTrue || p.Status.Fingerprint.Image != test.wantImage {
					t.Errorf("%+v, measured is %+v", c, p.Status.Fingerprint)
				}
				if n := w.ran["10 x 100, 1, again false"]; n != test.wantTimes {
					t.Errorf("the first trial was made %d times, want %d", n, test.wantTimes)
				}
				c := meta.FindStatusCondition(p.Status.Conditions, api.ConditionStale)
				if want := test.served != "" && test.served != test.wantImage; (c.Status == metav1.ConditionTrue) != want {
					t.Errorf("%+v, want stale: %t", c, want)
				}
			})
		})
	}
}

// TestNewImageAtZero: an image is measured once even if the function has no replicas while it is, and trials get the earlier image from their node.
func TestNewImageAtZero(t *testing.T) {
	const old, pushed = "bert@sha256:1", "bert@sha256:2"
	inBubble(t, func(t *testing.T) {
		p, f := ofFunction(0)
		p.Spec.Remeasure = api.RemeasureNewImage
		w := newWorld(t, p, f, gpuNode(t, "node1", "H200", 40960))
		w.run()
		w.image = old
		for range 3 {
			time.Sleep(2 * time.Hour)
			w.readyReplica(pushed)
			w.pass(1)
			if err := w.server.Delete(t.Context(), &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.key.Namespace, Name: "ready"}}); err != nil {
				t.Fatal(err)
			}
			w.run()
		}
		if n := w.ran["10 x 100, 1, again false"]; n != 2 {
			t.Errorf("the first trial was made %d times, want 2", n)
		}
	})
}

// readyReplica creates a replica of the function that is ready, on a node of its own.
func (w *world) readyReplica(image string) {
	w.Helper()
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.key.Namespace, Name: "ready", UID: "ready", Labels: map[string]string{api.LabelFunction: w.key.Name}}}
	p.Spec = v1.PodSpec{NodeName: "node2", Containers: []v1.Container{{Name: "server", Image: "bert"}}}
	p.Status = v1.PodStatus{
		Phase: v1.PodRunning, PodIP: "10.0.0.1", Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}},
		ContainerStatuses: []v1.ContainerStatus{{Name: "server", ImageID: image}},
	}
	if err := w.server.Create(w.Context(), p); err != nil {
		w.Fatal(err)
	}
}

// TestSomebodyElsesPod: a pod that has the name of a trial's is neither used nor ended.
func TestSomebodyElsesPod(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		p := someProfile()
		w := newWorld(t, p)
		for range 2 {
			if _, err := w.reconcile(); err != nil {
				t.Fatal(err)
			}
		}
		now := w.profile()
		other := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: targetPodName(now, &now.Status), Labels: map[string]string{api.LabelProfile: "bert"}}}
		if err := w.server.Create(t.Context(), other); err != nil {
			t.Fatal(err)
		}
		if _, err := w.reconcile(); err == nil || !strings.Contains(err.Error(), "somebody else's") {
			t.Errorf("error %v", err)
		}
		if len(w.pods()) != 1 {
			t.Errorf("%d pods", len(w.pods()))
		}
	})
}

// TestPodWithoutItsLabel: a trial goes on after somebody has removed the label by which the controller finds its server.
func TestPodWithoutItsLabel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, someProfile())
		for range 2 {
			if _, err := w.reconcile(); err != nil {
				t.Fatal(err)
			}
		}
		now, yes := w.profile(), true
		removed := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: "ml", Name: targetPodName(now, &now.Status), OwnerReferences: []metav1.OwnerReference{{UID: now.UID, Controller: &yes}},
		}}
		if err := w.server.Create(t.Context(), removed); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if _, err := w.reconcile(); err != nil {
				t.Fatal(err)
			}
		}
		if pods := w.pods(); len(pods) != 1 || pods[0].Labels[api.LabelProfile] != now.Name {
			t.Errorf("%+v, want the server of the trial", pods)
		}
	})
}

// TestReservedAnnotations: a template gives the server of a trial no annotation that only gshare may set.
func TestReservedAnnotations(t *testing.T) {
	p := someProfile()
	p.Status.Target = &api.ProfileTarget{Number: 1, SM: 10, Quota: 100}
	template := v1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
			kube.AnnotationResidency: "{}", api.AnnotationAtOnce: "64", api.AnnotationDrain: "2026-01-01T00:00:00Z", api.AnnotationMovesFrom: "1", "team": "vision",
		}},
		Spec: v1.PodSpec{Containers: []v1.Container{{}}},
	}
	pod := targetPod(p, &plan{template: template, protocol: api.HTTP}, device{model: "A100", memoryMiB: 40960})
	want := map[string]string{"team": "vision", kube.AnnotationModel: "A100", kube.AnnotationTrialQuota: "100"}
	if !maps.Equal(pod.Annotations, want) {
		t.Errorf("%v, want %v", pod.Annotations, want)
	}
}

// TestLaterProfile: a profile of the same name does not take over the pods of one that was deleted.
func TestLaterProfile(t *testing.T) {
	a, b := someProfile(), someProfile(func(p *api.GPUProfile) { p.UID = types.UID("2") })
	for _, p := range []*api.GPUProfile{a, b} {
		p.Status.Target, p.Status.Attempt = &api.ProfileTarget{Number: 1, SM: 10, Quota: 100}, &api.ProfileAttempt{Batch: 1, Count: 1, Clients: 1}
	}
	if targetPodName(a, &a.Status) == targetPodName(b, &b.Status) || clientPodName(a, &a.Status) == clientPodName(b, &b.Status) {
		t.Error("their pods have the same names")
	}
}

// TestConfirmed: a second measurement replaces the rate, and keeps the latencies of the first only if it has none.
func TestConfirmed(t *testing.T) {
	before := api.ProfilePoint{SM: 10, RequestsPerSecond: 20, LatencyP50Microseconds: 5000, LatencyP99Microseconds: 9000, MeanMicroseconds: 100}
	slower := confirmed(before, &profiler.Trial{Point: profile.Point{Throughput: 19}, P50: 6, P99: 8, Confirmed: true})
	late := confirmed(before, &profiler.Trial{Point: profile.Point{Throughput: 20}, Confirmed: true, ClientLate: true})
	none := confirmed(before, &profiler.Trial{Confirmed: true})
	if slower.RequestsPerSecond != 19 || slower.LatencyP99Microseconds != 8000 || slower.MeanMicroseconds != 100 || !slower.Confirmed {
		t.Errorf("%+v", slower)
	}
	if late.RequestsPerSecond != 20 || late.LatencyP50Microseconds != 5000 || late.LatencyP99Microseconds != 9000 || !late.ClientLate {
		t.Errorf("%+v", late)
	}
	if none.RequestsPerSecond != 0 || none.LatencyP99Microseconds != 0 {
		t.Errorf("%+v", none)
	}
}

// TestDeviceOf: which GPU is used for measurements.
func TestDeviceOf(t *testing.T) {
	mig := func(s *kube.Slice) { s.Profile, s.ID = "1g.10gb", "MIG-5b2e3c1a-0000-4d2f-9a7e-1f6c8e0d4a01" }
	nodes := []v1.Node{
		*gpuNode(t, "a", "H100", 81920), *gpuNode(t, "b", "H100", 96000), *gpuNode(t, "c", "T4", 15360), *gpuNode(t, "d", "A100", 10240, mig),
	}
	for _, test := range []struct {
		model  string
		want   string
		memory int64
	}{{"", "H100", 96000}, {"T4", "T4", 15360}, {"A100", "", 0}, {"H200", "", 0}} {
		if d, found := deviceOf(nodes, test.model); d.model != test.want || d.memoryMiB != test.memory || found != (test.want != "") {
			t.Errorf("%q: %+v, %t", test.model, d, found)
		}
	}
	if _, found := deviceOf(nil, ""); found {
		t.Error("a GPU without any node")
	}
}

// TestQuota: a trial takes of what a SharePolicy lets the namespace hold, and waits until it may have it.
func TestQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		policy := &api.SharePolicy{
			ObjectMeta: metav1.ObjectMeta{Name: "gold"}, Spec: api.SharePolicySpec{Tenants: []api.Tenant{{Namespace: "ml", MaxMemory: new(api.Quantity("20Gi"))}}},
		}
		w := newWorld(t, someProfile(), gpuNode(t, "node1", "H200", 40960), policy)
		var result reconcile.Result
		for range 5 {
			var err error
			if result, err = w.reconcile(); err != nil {
				t.Fatal(err)
			}
		}
		const why = "SharePolicy gold allows 20480Mi of device memory, of which 0Mi are held, and 40960Mi more would be 20480Mi too much"
		if c := meta.FindStatusCondition(w.profile().Status.Conditions, api.ConditionComplete); len(w.pods()) > 0 || c == nil || c.Reason != api.ReasonOverQuota || c.Message != why || result.RequeueAfter != quotaPause {
			t.Fatalf("%d pods, %+v, looks again after %v; want none: %s", len(w.pods()), c, result.RequeueAfter, why)
		}
		before := w.writes
		if _, err := w.reconcile(); err != nil || w.writes > before {
			t.Errorf("%d more writes, %v", w.writes-before, err)
		}
		if err := w.server.Delete(t.Context(), policy); err != nil {
			t.Fatal(err)
		}
		if c := complete(w); c.Reason != api.ReasonMeasured {
			t.Errorf("without the policy: %+v", c)
		}
	})
}

// TestMemoryUnknown: without a report of the server's memory, of an older agent for instance, all of the GPU's is recommended, and the profile says so.
// What somebody claims beyond the memory of the server does not count.
func TestMemoryUnknown(t *testing.T) {
	for usedMiB, want := range map[int64]api.Quantity{0: "40960Mi", -5: "40960Mi", 1 << 40: "40960Mi", 100: "128Mi"} {
		inBubble(t, func(t *testing.T) {
			w := newWorld(t, someProfile(func(p *api.GPUProfile) {
				p.Spec.Search = api.ProfileSearch{Strategy: api.Grid, SM: []int64{40}, Quota: []int64{100}}
			}))
			w.usedMiB = usedMiB
			p := w.run()
			c := meta.FindStatusCondition(p.Status.Conditions, api.ConditionComplete)
			if r := p.Status.Recommended; r == nil || r.Memory != want || strings.Contains(c.Message, "was not measured") != (usedMiB <= 0) {
				t.Errorf("%d MiB: recommended %+v, %+v", usedMiB, r, c)
			}
		})
	}
}

// TestHungClient: a client that does not end is replaced after half an hour, and the server stays. It does not hold a GPU until the deadline of its pod.
func TestHungClient(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, someProfile())
		hung, began := "", time.Time{}
		w.hung = func(client *v1.Pod) bool {
			if hung == "" {
				hung, began = client.Name, time.Now()
			}
			if hung == client.Name && time.Since(began) > measureLimit+2*time.Minute {
				t.Fatal("the client still runs")
			}
			return hung == client.Name
		}
		p := w.run()
		if c := result(w, p); hung == "" || p.Status.Recommended == nil {
			t.Error(c)
		}
	})
}
