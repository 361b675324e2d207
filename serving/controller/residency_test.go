package controller

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/serving/fleet"
	"github.com/gshare-dev/gshare/serving/rules/scaling"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/residency"
)

func setReached(p *v1.Pod, r residency.Reached) {
	text, err := r.Encode()
	if err != nil {
		panic(err)
	}
	setAnnotation(&p.ObjectMeta, kube.AnnotationResidencyReached, text)
}

func wantedOf(p *v1.Pod) residency.Wanted {
	w, _, err := kube.ResidencyOf(p)
	if err != nil {
		panic(err)
	}
	return w
}

// TestWriteResidency covers what the fleet can want of a pod and what the agent can report, and checks what is written and reported.
func TestWriteResidency(t *testing.T) {
	const hot, shared, warm = residency.Hot, residency.Shared, residency.Warm
	wants := func(r scaling.Residency) func(c *cluster) {
		return func(c *cluster) { c.pods.setResidency("ml/resnet50-1", r) }
	}
	answers := func(seq int64, l residency.Level, refused bool) func(c *cluster) {
		return func(c *cluster) {
			c.update(c.one(), func(p *v1.Pod) { setReached(p, residency.Reached{Seq: seq, Level: l, Refused: refused}) })
		}
	}
	// conflicts makes somebody else change the pod just before the next write.
	conflicts := func(c *cluster) {
		var once sync.Once
		c.calls.Patch = func(ctx context.Context, w client.WithWatch, o client.Object, p client.Patch, options ...client.PatchOption) error {
			first := false
			once.Do(func() {
				first = true
				pod := c.all()[0]
				setLabel(&pod.ObjectMeta, "changed", "true")
				if err := w.Update(ctx, &pod); err != nil {
					c.Error(err)
				}
			})
			err := w.Patch(ctx, o, p, options...)
			if first && !apierrors.IsConflict(err) {
				c.Errorf("the pod was written although it has changed since it was read; error %v", err)
			}
			return err
		}
	}
	started := answers(1, hot, false)
	look := func(c *cluster) { c.update(c.one(), func(*v1.Pod) {}) }               // as after any change
	unheard := func(c *cluster) { c.known.gateways.expect([]string{"gateway-1"}) } // expects a gateway that reports nothing
	for name, c := range map[string]struct {
		steps  []func(*cluster)
		want   residency.Wanted
		events string
		told   int // number of the function's events
	}{
		"created":               {want: residency.Wanted{Seq: 1, Level: hot}},
		"agent has not started": {steps: []func(*cluster){wants(scaling.Shared)}, want: residency.Wanted{Seq: 1, Level: hot}},
		"agent starts late":     {steps: []func(*cluster){wants(scaling.Shared), started}, want: residency.Wanted{Seq: 2, Level: shared}},
		"started first":         {steps: []func(*cluster){started, wants(scaling.Shared)}, want: residency.Wanted{Seq: 2, Level: shared}},
		"raised before the answer": {
			steps: []func(*cluster){started, wants(scaling.Shared), wants(scaling.Hot)}, want: residency.Wanted{Seq: 3, Level: hot},
		},
		"lowered before the answer": {
			steps: []func(*cluster){started, wants(scaling.Shared), wants(scaling.Hot), wants(scaling.Shared)}, want: residency.Wanted{Seq: 3, Level: hot},
		},
		"answered before it is lowered": {
			steps: []func(*cluster){started, wants(scaling.Shared), wants(scaling.Hot), wants(scaling.Shared), answers(3, hot, false)},
			want:  residency.Wanted{Seq: 4, Level: shared},
		},
		"old answer": {
			steps: []func(*cluster){started, wants(scaling.Shared), wants(scaling.Hot), wants(scaling.Shared), answers(2, shared, false)},
			want:  residency.Wanted{Seq: 3, Level: hot},
		},
		"refused": {
			steps: []func(*cluster){started, wants(scaling.Shared), answers(2, shared, false), wants(scaling.Hot), answers(3, shared, true), wants(scaling.Shared)},
			want:  residency.Wanted{Seq: 4, Level: shared}, events: "NoRoom", told: 1,
		},
		"refused, conflict": {
			steps: []func(*cluster){
				started, wants(scaling.Shared), answers(2, shared, false), wants(scaling.Hot), conflicts, answers(3, shared, true), wants(scaling.Shared),
			},
			want: residency.Wanted{Seq: 4, Level: shared}, events: "NoRoom", told: 1,
		},
		"refused, another change of the pod": {
			steps: []func(*cluster){started, wants(scaling.Shared), answers(2, shared, false), wants(scaling.Hot), answers(3, shared, true), answers(3, shared, true)},
			want:  residency.Wanted{Seq: 4, Level: shared}, events: "NoRoom", told: 1,
		},
		"refused, wanted again": {
			steps: []func(*cluster){started, wants(scaling.Shared), answers(2, shared, false), wants(scaling.Hot), answers(3, shared, true), wants(scaling.Hot)},
			want:  residency.Wanted{Seq: 5, Level: hot}, events: "NoRoom", told: 1,
		},
		"refused twice": {
			steps: []func(*cluster){
				started, wants(scaling.Shared), answers(2, shared, false), wants(scaling.Hot), answers(3, shared, true), wants(scaling.Shared),
				wants(scaling.Hot), answers(5, shared, true), wants(scaling.Shared),
			},
			want: residency.Wanted{Seq: 6, Level: shared}, events: "NoRoom NoRoom", told: 2,
		},
		"to be parked":      {steps: []func(*cluster){started, wants(scaling.Warm), look}, want: residency.Wanted{Seq: 2, Level: warm, Drained: true}},
		"to be parked late": {steps: []func(*cluster){wants(scaling.Warm), started, look}, want: residency.Wanted{Seq: 2, Level: warm, Drained: true}},
		"gateways send": {
			steps: []func(*cluster){started, unheard, wants(scaling.Warm), look}, want: residency.Wanted{Seq: 2, Level: warm},
		},
		"wanted before the gateways have stopped": {
			steps: []func(*cluster){started, unheard, wants(scaling.Warm), look, wants(scaling.Shared)}, want: residency.Wanted{Seq: 3, Level: shared},
		},
		"wanted before it is parked": {
			steps: []func(*cluster){started, wants(scaling.Warm), look, wants(scaling.Hot), look}, want: residency.Wanted{Seq: 2, Level: warm, Drained: true},
		},
		"wanted as the gateways have stopped": {
			steps: []func(*cluster){started, unheard, wants(scaling.Warm), look, func(c *cluster) {
				c.pods.mu.Lock()
				i := c.pods.instances["ml/resnet50-1"]
				i.stopped, i.Residency = 2, scaling.Hot
				c.pods.mu.Unlock()
				c.pods.queue.Add(i.Name)
			}},
			want: residency.Wanted{Seq: 3, Level: hot},
		},
		"woken": {
			steps: []func(*cluster){started, wants(scaling.Warm), look, wants(scaling.Hot), answers(2, warm, false)}, want: residency.Wanted{Seq: 3, Level: hot},
		},
		"cannot be parked": {
			steps: []func(*cluster){started, wants(scaling.Warm), look, answers(2, hot, true)},
			want:  residency.Wanted{Seq: 3, Level: hot}, events: "CannotPark", told: 1,
		},
		"woken without room": {
			steps: []func(*cluster){started, wants(scaling.Warm), look, answers(2, warm, false), wants(scaling.Hot), answers(3, warm, true), look, look},
			want:  residency.Wanted{Seq: 4, Level: warm, Drained: true}, events: "NoRoom", told: 1,
		},
		"lowering, conflict": {steps: []func(*cluster){started, conflicts, wants(scaling.Shared)}, want: residency.Wanted{Seq: 2, Level: shared}},
		"malformed": {
			steps: []func(*cluster){
				func(c *cluster) {
					c.update(c.one(), func(p *v1.Pod) { p.Annotations[kube.AnnotationResidencyReached] = "Hot" })
				}, wants(scaling.Shared),
			},
			want: residency.Wanted{Seq: 1, Level: hot},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := newCluster(t)
				k.run(false)
				var kinds []string
				go func() {
					for {
						select {
						case e := <-k.pods.Events():
							if e.Kind != fleet.Starting {
								kinds = append(kinds, string(e.Kind))
							}
						case <-t.Context().Done():
							return
						}
					}
				}()
				k.pods.Create(instanceOfFunction(function(t, nil), 1))
				for _, step := range c.steps {
					synctest.Wait()
					step(k)
					time.Sleep(time.Second)
				}
				p := k.one()
				text := p.Annotations[kube.AnnotationResidency]
				if got, err := residency.DecodeWanted(text); err != nil || got != c.want {
					t.Errorf("wants %s, %v; want %+v", text, err, c.want)
				}
				if got := strings.Join(kinds, " "); got != c.events {
					t.Errorf("reports %q, want %q", got, c.events)
				}
				if n := len(k.recorder.Events); n != c.told {
					t.Errorf("%d events of the function, want %d", n, c.told)
				}
			})
		})
	}
}

// TestWaking: a parked replica that is to serve again accepts no requests before its agent reports that it can, although its pod may be Ready all the time. A
// replica that never wakes is ended, so that another one takes its place.
func TestWaking(t *testing.T) {
	for name, woken := range map[string]bool{"woken": true, "never woken": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				c.run(false)
				var mu sync.Mutex
				var heard []fleet.Event // guarded by mu
				go func() {
					for {
						select {
						case e := <-c.pods.Events():
							mu.Lock()
							heard = append(heard, e)
							mu.Unlock()
						case <-t.Context().Done():
							return
						}
					}
				}()
				last := func(want fleet.EventKind) fleet.Event {
					t.Helper()
					time.Sleep(time.Second)
					synctest.Wait()
					mu.Lock()
					e := heard[len(heard)-1]
					mu.Unlock()
					if e.Kind != want {
						t.Errorf("%+v, want %s", e, want)
					}
					return e
				}
				reaches := func(r residency.Reached) {
					c.update(c.one(), func(p *v1.Pod) {
						bind(p)
						makeReady(p)
						p.Status.Conditions = append(p.Status.Conditions, v1.PodCondition{Type: v1.PodScheduled, Status: v1.ConditionTrue, LastTransitionTime: metav1.Now()})
						setReached(p, r)
					})
				}
				c.pods.Create(instanceOfFunction(function(t, nil), 1))
				last(fleet.Starting)
				reaches(residency.Reached{Seq: 1, Level: residency.Hot})
				last(fleet.Ready)
				c.pods.setResidency("ml/resnet50-1", scaling.Warm)
				time.Sleep(time.Second)
				reaches(residency.Reached{Seq: 2, Level: residency.Warm})
				last(fleet.Ready)
				time.Sleep(time.Hour) // parked
				c.pods.setResidency("ml/resnet50-1", scaling.Hot)
				time.Sleep(time.Second)
				c.update(c.one(), func(*v1.Pod) {}) // as the watch reports it after the write
				if e := last(fleet.Starting); !strings.Contains(e.Message, "has its memory again") {
					t.Errorf("%+v", e)
				}
				if woken {
					reaches(residency.Reached{Seq: 3, Level: residency.Hot})
					time.Sleep(time.Hour)
					last(fleet.Ready)
					return
				}
				time.Sleep(9 * time.Minute)
				last(fleet.Starting)
				time.Sleep(2 * time.Minute)
				if e := last(fleet.Failed); !strings.Contains(e.Message, "has its memory again") || len(c.all()) != 0 {
					t.Errorf("%+v, %d pods are left", e, len(c.all()))
				}
			})
		})
	}
}

func TestStartRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.run(false)
		c.pods.Create(instanceOfFunction(function(t, nil), 1))
		c.event()
		c.update(c.one(), func(p *v1.Pod) { setReached(p, residency.Reached{Seq: 1, Refused: true}) })
		if e := c.event(); e.Kind != fleet.Failed || !strings.Contains(e.Message, "no room") {
			t.Errorf("got %+v, want that it has failed", e)
		}
		if all := c.all(); len(all) != 0 {
			t.Errorf("%d pods are left", len(all))
		}
	})
}

// agent plays the agents of all nodes until ctx ends: it reports what is wanted of pods as reached, after a delay. A pod for which full returns true cannot
// be raised. It returns the largest number of pods that existed at the same time.
func (c *cluster) agent(ctx context.Context, late time.Duration, full func(p *v1.Pod) bool) (most int) {
	before := map[types.UID]v1.Pod{}
	for ctx.Err() == nil {
		time.Sleep(late)
		now := map[types.UID]v1.Pod{}
		for _, p := range c.all() {
			now[p.UID] = p
			w, r, err := kube.ResidencyOf(&p)
			if err != nil {
				c.Error(err)
			}
			if r.Seq < w.Seq {
				answer := residency.Reached{Seq: w.Seq, Level: w.Level}
				if r.Seq > 0 && w.Level > r.Level && full(&p) {
					answer = residency.Reached{Seq: w.Seq, Level: r.Level, Refused: true}
				}
				setReached(&p, answer)
				if err := c.client.Update(ctx, &p); client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
					c.Error(err)
				}
				makeReady(&p)
				if err := c.client.Status().Update(ctx, &p); client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
					c.Error(err)
				}
			}
			c.pods.handler().OnUpdate(&p, &p)
		}
		for uid, p := range before {
			if _, there := now[uid]; !there {
				c.pods.handler().OnDelete(&p)
			}
		}
		before, most = now, max(most, len(now))
	}
	return most
}

// TestRestartWhileReplacing: a function needs its Shared or parked replica, which cannot become Hot, and the controller crashes after each of its writes in
// turn. The next controller continues. There are never more than two replicas, and in the end one that is Hot.
func TestRestartWhileReplacing(t *testing.T) {
	for _, has := range []residency.Wanted{{Seq: 2, Level: residency.Shared}, {Seq: 2, Level: residency.Warm, Drained: true}} {
		for after, complete := 1, false; !complete; after++ {
			t.Run(fmt.Sprintf("%v after write %d", has.Level, after), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { complete = restartWhileReplacing(t, has, after) })
			})
			if after > 20 {
				t.Fatal("the controller goes on to write")
			}
		}
	}
}

func restartWhileReplacing(t *testing.T, has residency.Wanted, after int) (complete bool) {
	f := running(t)
	fp := fastPodOf(f)
	fp.UID = "fp-1"
	full := functionPod(fp, "full", 1)
	full.UID = "full"
	makeReady(full)
	if err := setWanted(full, has); err != nil {
		t.Fatal(err)
	}
	setReached(full, residency.Reached{Seq: has.Seq, Level: has.Level})
	first := newCluster(t, f, fp, full)
	ended := first.serveUntil(f, after, 20*time.Second)
	second := newCluster(t, first.objects()...)
	second.uids.Store(first.uids.Load())
	second.serveUntil(f, 0, 200*time.Second)
	p := second.one()
	if w := wantedOf(p); p.Name == "full" || w.Level != residency.Hot {
		t.Errorf("%s is to be %+v, want another pod that is Hot", p.Name, w)
	}
	return ended < after
}

// TestRestartAfterReplacement: the controller crashes when the replacement exists, while the refused replica is still wanted Hot.
func TestRestartAfterReplacement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := running(t)
		fp := fastPodOf(f)
		fp.UID = "fp-1"
		full, other := functionPod(fp, "full", 1), functionPod(fp, "other", 2)
		full.UID, other.UID = "full", "other"
		makeReady(full)
		setReached(full, residency.Reached{Seq: 3, Level: residency.Shared, Refused: true})
		if err := errors.Join(setWanted(full, residency.Wanted{Seq: 3, Level: residency.Hot}), setWanted(other, residency.Created(residency.Hot))); err != nil {
			t.Fatal(err)
		}
		c := newCluster(t, f, fp, full, other)
		c.serveUntil(f, 0, 200*time.Second)
		if p := c.one(); p.Name != "other" {
			t.Errorf("%s is left", p.Name)
		}
	})
}

// objects returns all objects of the API server.
func (c *cluster) objects() (all []client.Object) {
	c.Helper()
	functions, fps := &api.GPUFunctionList{}, &api.FaSTPodList{}
	if err := errors.Join(c.client.List(c.Context(), functions), c.client.List(c.Context(), fps)); err != nil {
		c.Fatal(err)
	}
	for at := range functions.Items {
		all = append(all, &functions.Items[at])
	}
	for at := range fps.Items {
		all = append(all, &fps.Items[at])
	}
	for _, p := range c.all() {
		all = append(all, &p)
	}
	return all
}

// serveUntil runs the controller and an agent until the controller has made a number of writes, if it is not 0, or until a time has passed. It returns the
// number of writes. The pod with the name full cannot be raised.
func (c *cluster) serveUntil(f *api.GPUFunction, writes int, length time.Duration) int {
	c.Helper()
	ctx, cancel := context.WithCancel(c.Context())
	var mu sync.Mutex
	count := 0
	write := func(do func() error) error {
		mu.Lock()
		defer mu.Unlock()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		err := do()
		if count++; count == writes {
			cancel()
		}
		return err
	}
	c.calls.Create = func(ctx context.Context, w client.WithWatch, o client.Object, options ...client.CreateOption) error {
		return write(func() error { return w.Create(ctx, o, options...) })
	}
	c.calls.Patch = func(ctx context.Context, w client.WithWatch, o client.Object, p client.Patch, options ...client.PatchOption) error {
		return write(func() error { return w.Patch(ctx, o, p, options...) })
	}
	c.calls.Delete = func(ctx context.Context, w client.WithWatch, o client.Object, options ...client.DeleteOption) error {
		return write(func() error { return w.Delete(ctx, o, options...) })
	}
	var controller, agent sync.WaitGroup
	controller.Go(func() { c.pods.Run(ctx) })
	controller.Go(func() { c.known.fleet.Run(ctx) })
	agents, stop := context.WithCancel(c.Context())
	most := 0
	agent.Go(func() {
		most = c.agent(agents, time.Second, func(p *v1.Pod) bool { return p.Name == "full" })
	})
	c.reconcile(f)
	time.Sleep(length)
	cancel()
	controller.Wait()
	stop()
	agent.Wait()
	if most > 2 {
		c.Errorf("%d replicas at once", most)
	}
	return count
}
