package controller

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/serving/fleet"
	"github.com/gshare-dev/gshare/serving/gateway"
	"github.com/gshare-dev/gshare/serving/rules/scaling"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/residency"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// turnSlice is a GPU with pods of class swap. The test plays their scheduler, agent and gateways.
type turnSlice struct {
	*cluster
	turns  *turns
	writes int // by the controller

	mu      sync.Mutex // guards the fields below
	waiting map[string]int
	served  map[string]int // turns of each function in which it was able to answer
	busy    map[string]int // requests in flight
	keeps   string         // function whose server cannot be parked
	refuses string         // function for whose pod the agent has no room, which it reports at once
	edited  bool           // somebody else has changed the residency of a pod
	sleeps  string         // function whose server cannot be woken, while its agent keeps trying
}

func newTurnSlice(t *testing.T, functions ...string) *turnSlice {
	s := &turnSlice{cluster: newCluster(t), waiting: map[string]int{}, served: map[string]int{}, busy: map[string]int{}}
	s.calls.Patch = func(ctx context.Context, w client.WithWatch, o client.Object, p client.Patch, options ...client.PatchOption) error {
		s.writes++
		return w.Patch(ctx, o, p, options...)
	}
	s.turns = &turns{pods: s.pods, load: s.load, began: time.Now(), known: map[string]turnOf{}}
	s.run(false)
	for _, name := range functions {
		s.create(name)
	}
	return s
}

func (s *turnSlice) load(f gateway.FunctionName) gateway.Load {
	s.mu.Lock()
	defer s.mu.Unlock()
	return gateway.Load{Waiting: s.waiting[f.Name], InFlight: s.busy[f.Name]}
}

func (s *turnSlice) create(name string) { s.createReplica(name, 1) }

func (s *turnSlice) createReplica(name string, id scaling.ID) {
	f := function(s.T, func(f *api.GPUFunction) {
		f.Name = name
		f.UID = types.UID("of-" + name)
		setAnnotation(&f.Spec.Template.ObjectMeta, kube.AnnotationIsolation, "swap")
	})
	s.pods.Create(instanceOfFunction(f, id))
}

// place binds the pods that have no node to the one slice, as the scheduler does.
func (s *turnSlice) place(p *v1.Pod) {
	bind(p)
	text, err := kube.EncodePlacement(kube.Placement{Node: p.Spec.NodeName, UID: p.UID, Model: kube.Slots, Containers: []kube.PlacedContainer{{
		Name: p.Spec.Containers[0].Name, VGPUs: []kube.PlacedVGPU{{Slice: "GPU-0", Class: share.Swap, Priority: share.BestEffort, Share: share.Share{
			SMRequest: share.Whole, SMLimit: share.Whole, QuotaRequest: share.Whole, QuotaLimit: share.Whole, Memory: share.MiB,
		}}},
	}}})
	if err != nil {
		s.Fatal(err)
	}
	setAnnotation(&p.ObjectMeta, kube.AnnotationPlacement, text)
}

// tick simulates one second: the controller decides, the agent takes the next step for each pod, and the function that has the turn answers 5 requests.
func (s *turnSlice) tick() {
	s.Helper()
	time.Sleep(time.Second)
	s.turns.review(s.Context())
	synctest.Wait()
	for name := range s.pods.inTurn {
		if s.pods.instances[name] == nil {
			s.Fatalf("%s has ended, and still takes turns", name)
		}
	}
	having := 0
	all := s.all()
	for at := range all {
		p := &all[at]
		_, placed := p.Annotations[kube.AnnotationPlacement]
		w, r, err := kube.ResidencyOf(p)
		if err != nil && !s.edited {
			s.Fatal(err)
		}
		var others []residency.Holder
		for i := range all {
			if _, o, _ := kube.ResidencyOf(&all[i]); i != at && o.Level != residency.Cold {
				others = append(others, residency.Holder{Level: o.Level, Memory: share.MiB})
			}
		}
		name := p.Labels[api.LabelFunction]
		s.mu.Lock()
		cannot := s.keeps == name
		s.mu.Unlock()
		fits := func(residency.Level) bool { return residency.FitsTurn(share.MiB, share.MiB, others) }
		if s.refuses == name && w.Level.Serves() && r.Level == residency.Warm {
			s.update(p, func(p *v1.Pod) {
				setReached(p, residency.Reached{Seq: w.Seq, Level: residency.Warm, Refused: true})
			})
			synctest.Wait()
			if err := s.client.Get(s.Context(), client.ObjectKeyFromObject(p), p); err != nil {
				s.Fatal(err)
			}
			w = wantedOf(p) // with this the controller ends the turn
			s.update(p, func(p *v1.Pod) { setReached(p, residency.Reached{Seq: w.Seq, Level: residency.Warm}) })
			continue
		}
		s.update(p, func(p *v1.Pod) {
			switch {
			case !placed:
				s.place(p)
			case s.edited && (err != nil || w.Level == residency.Cold):
			case s.sleeps == name && r.Level == residency.Warm:
			case r.Level == residency.Cold:
				if w.Level.Serves() && fits(w.Level) {
					makeReady(p)
					setReached(p, residency.Reached{Seq: w.Seq, Level: w.Level})
				}
			default:
				i := residency.Instance{Wanted: w, Reached: r, Record: r, Enforced: r.Level, CannotPark: cannot}
				if step := residency.Next(i, fits); step.Effect == residency.Enforce {
					i.Enforced = step.Level
					setReached(p, residency.Next(i, fits).Record)
				} else if step.Effect == residency.Save {
					setReached(p, step.Record)
				}
			}
		})
		if _, r, _ := kube.ResidencyOf(p); r.Level > residency.Warm && len(p.Status.Conditions) == 0 {
			s.update(p, makeReady)
		}
		if w, r, _ := kube.ResidencyOf(p); r.Level > residency.Warm {
			having++
			if residency.MaySend(w, r) && r.Answers(w) {
				s.mu.Lock()
				if s.waiting[name] > 0 {
					s.served[name]++
				}
				s.waiting[name] = max(0, s.waiting[name]-5)
				s.mu.Unlock()
			}
		}
	}
	if having > 1 {
		s.Fatalf("%d pods hold the memory", having)
	}
	synctest.Wait()
}

// ticks simulates seconds until a condition holds, or up to a limit.
func (s *turnSlice) ticks(limit int, until func() bool) (took int) {
	s.Helper()
	for took = range limit {
		if until() {
			return took
		}
		s.tick()
	}
	if until == nil || !until() {
		s.Fatalf("not within %d s: %+v", limit, s.levels())
	}
	return limit
}

// levels returns the wanted levels of the pods.
func (s *turnSlice) levels() map[string]residency.Level {
	levels := map[string]residency.Level{}
	for _, p := range s.all() {
		w, _, _ := kube.ResidencyOf(&p)
		levels[p.Labels[api.LabelFunction]] = w.Level
	}
	return levels
}

func (s *turnSlice) ask(requests int, functions ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range functions {
		s.waiting[f] += requests
	}
}

func (s *turnSlice) waits() (sum int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range s.waiting {
		sum += n
	}
	return sum
}

// drain consumes the events meant for the fleet, and makes the gateways stop at once.
func (s *turnSlice) drain(ctx context.Context) (failed *[]string) {
	failed = new([]string)
	go func() {
		for {
			select {
			case e := <-s.pods.Events():
				if e.Kind == fleet.Failed {
					*failed = append(*failed, e.Message)
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	return failed
}

// TestTurnsOfFunctions: the replicas of three functions start one after another on one slice. Then each gets its turn when requests wait for it, and another
// controller continues where this one ends.
func TestTurnsOfFunctions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		names := []string{"a", "b", "c"}
		s := newTurnSlice(t, names...)
		s.drain(t.Context())
		took := s.ticks(60, func() bool {
			ready := 0
			for _, p := range s.all() {
				if _, r, _ := kube.ResidencyOf(&p); r.Level != residency.Cold {
					ready++
				}
			}
			return ready == 3
		})
		t.Logf("three have started after %d s, with %d writes", took, s.writes)
		s.ask(60, names...)
		before := s.writes
		took = s.ticks(300, func() bool { return s.waits() == 0 })
		t.Logf("180 requests at 5 per second are answered after %d s, with %d writes", took, s.writes-before)
		if took > 90 || s.writes-before > 40 {
			t.Errorf("it took %d s and %d writes", took, s.writes-before)
		}
		if served := slices.Sorted(maps.Keys(s.served)); !slices.Equal(served, names) {
			t.Errorf("served are %v", served)
		}
		before = s.writes
		for range 20 {
			s.tick()
		}
		if s.writes != before {
			t.Errorf("%d writes while nobody waits", s.writes-before)
		}
		s.turns = &turns{pods: s.pods, load: s.load, began: time.Now(), known: map[string]turnOf{}} // as a new leader
		s.ask(10, "a")
		s.ask(10, "b")
		s.ticks(60, func() bool { return s.waits() == 0 })
	})
}

// TestTurnIsNotLongerForALook: a replica without requests gives up its turn a second after it was seen to serve, even if reviews come slightly early or late.
func TestTurnIsNotLongerForALook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTurnSlice(t, "a", "b")
		s.drain(t.Context())
		s.ticks(60, func() bool { return len(s.all()) == 2 && started(&s.all()[0]) && started(&s.all()[1]) })
		s.ticks(5, func() bool { return s.levels()["b"] == residency.Hot })
		s.ask(1, "a")
		s.ticks(60, func() bool { return s.served["a"] > 0 })
		time.Sleep(time.Second + time.Millisecond)
		s.turns.review(t.Context()) // sees it serve
		s.ask(1, "b")
		time.Sleep(time.Second - 2*time.Millisecond)
		s.turns.review(t.Context())
		synctest.Wait()
		if level := s.levels()["a"]; level != residency.Warm {
			t.Errorf("it is to be %v", level)
		}
	})
}

// TestTurnsOfAnotherLeader: a controller that finds parked replicas, which are not Ready, gives them their turns.
func TestTurnsOfAnotherLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTurnSlice(t, "a", "b")
		s.drain(t.Context())
		s.ask(5, "a", "b")
		s.ticks(60, func() bool { return s.served["a"] > 0 && s.served["b"] > 0 && s.waits() == 0 })
		s.ask(5, "a")
		s.ticks(60, func() bool { return s.levels()["a"] == residency.Warm || s.waits() == 0 })
		next := NewPods(s.client, s.client, s.recorder, s.pods.log)
		next.waitStopped = s.pods.waitStopped
		all := s.all()
		for at := range all {
			p := &all[at]
			p.Status.Conditions = nil
			w, err := residency.Wanted{Seq: 20, Level: residency.Warm, Drained: true}.Encode()
			if err != nil {
				t.Fatal(err)
			}
			setAnnotation(&p.ObjectMeta, kube.AnnotationResidency, w)
			setReached(p, residency.Reached{Seq: 20, Level: residency.Warm})
			s.update(p, func(p *v1.Pod) { p.Status.Conditions = nil })
			name := gateway.FunctionName{Namespace: p.Namespace, Name: p.Labels[api.LabelFunction]}
			i := s.pods.instances[fleet.InstanceName(name, 1)]
			next.Adopt(i.Instance, p)
			defer next.Report(i.Name)
		}
		s.pods = next
		s.turns = &turns{pods: s.pods, load: s.load, began: time.Now(), known: map[string]turnOf{}}
		s.run(false)
		for at := range all {
			next.Report(fleet.InstanceName(gateway.FunctionName{Namespace: all[at].Namespace, Name: all[at].Labels[api.LabelFunction]}, 1))
		}
		s.drain(t.Context())
		before := s.served["b"]
		s.ask(20, "a", "b")
		s.ticks(60, func() bool { return s.waits() == 0 && s.served["b"] > before })
	})
}

// TestTurnsAreBounded: a function that always has requests does not keep others from their turns, even if its own requests have waited longest.
func TestTurnsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTurnSlice(t, "a", "b", "c")
		s.drain(t.Context())
		s.ask(10_000, "a")
		s.ticks(30, func() bool { return s.served["a"] > 0 })
		for _, name := range []string{"b", "c"} {
			s.ask(5, name)
		}
		for _, name := range []string{"b", "c"} {
			took := s.ticks(60, func() bool { return s.served[name] > 0 })
			t.Logf("%s has its turn after %d s", name, took)
		}
		before := s.served["a"]
		s.ticks(30, func() bool { return s.served["a"] > before })
	})
}

// TestTurnOfOneThatKeepsItsMemory: a server that cannot be parked is ended, so that the other function gets its turn.
func TestTurnOfOneThatKeepsItsMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTurnSlice(t, "a", "b")
		failed := s.drain(t.Context())
		s.keeps = "a"
		s.ask(1000, "a")
		s.ticks(20, func() bool { return s.served["a"] > 0 })
		s.ask(5, "b")
		s.ticks(60, func() bool { return s.served["b"] > 0 })
		if len(*failed) != 1 || !strings.Contains((*failed)[0], "does not give its memory back") {
			t.Errorf("failed: %q", *failed)
		}
	})
}

// TestParkedServerFails: a server that fails while another one has the turn has no memory to start with, so another replica takes its place.
func TestParkedServerFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTurnSlice(t, "a")
		failed := s.drain(t.Context())
		s.ticks(20, func() bool { return s.levels()["a"] == residency.Hot })
		s.create("b")
		s.ticks(20, func() bool { return s.levels()["b"] == residency.Hot })
		for _, p := range s.all() {
			if p.Labels[api.LabelFunction] != "a" {
				continue
			}
			s.update(&p, func(p *v1.Pod) {
				p.Status.Conditions = nil
				p.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "server", State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}}}
			})
		}
		synctest.Wait()
		if all := s.levels(); len(all) != 1 || len(*failed) != 1 || !strings.Contains((*failed)[0], "while it waited for its turn") {
			t.Errorf("there are %v; failed: %q", all, *failed)
		}
	})
}

// TestTurnThatDoesNotBegin: if a replica's container does not start, for example because its image is missing, its turn is taken back.
func TestTurnThatDoesNotBegin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTurnSlice(t, "a")
		s.drain(t.Context())
		s.ticks(5, func() bool {
			return s.levels()["a"] == residency.Warm && len(s.all()) == 1 && s.all()[0].Spec.NodeName != ""
		})
		s.turns.review(t.Context())
		s.update(s.one(), func(p *v1.Pod) { // the agent does not learn of it
			if err := setWanted(p, residency.Wanted{Seq: 2, Level: residency.Hot}); err != nil && !apierrors.IsConflict(err) {
				t.Fatal(err)
			}
		})
		all := []residency.InTurn{{ID: "ml/a-1", Stage: residency.Beginning, Since: 0}, {ID: "other", Waiting: 1}}
		if _, keeps := residency.NextTurn(turnPolicy.Begin, all, turnPolicy); keeps {
			t.Fatal("it keeps its turn for ever")
		}
		setTurn(s.pods, "ml/a-1", residency.Hot)
		setTurn(s.pods, "ml/a-1", residency.Warm)
		time.Sleep(time.Second)
		synctest.Wait()
		if w := wantedOf(s.one()); w != (residency.Wanted{Seq: 3, Level: residency.Warm}) {
			t.Errorf("wanted is %+v", w)
		}
	})
}
