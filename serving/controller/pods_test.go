package controller

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/serving/fleet"
	"github.com/gshare-dev/gshare/serving/gateway"
	"github.com/gshare-dev/gshare/serving/rules/scaling"
	"github.com/gshare-dev/gshare/test/tracker"
	"github.com/gshare-dev/gshare/vgpu/residency"
)

// cluster is a fake API server with the components of a controller.
type cluster struct {
	*testing.T
	client   client.WithWatch
	pods     *Pods
	known    *functions
	moves    *moves
	recorder *events.FakeRecorder
	calls    interceptor.Funcs // calls of the API server, which tests may intercept
	uids     atomic.Int32
}

// newCluster must be called within synctest.Test.
func newCluster(t *testing.T, objects ...client.Object) *cluster {
	scheme, err := Scheme()
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{T: t, recorder: events.NewFakeRecorder(100)}
	builder := fake.NewClientBuilder().WithScheme(scheme).WithObjectTracker(tracker.New(scheme)).WithObjects(objects...).WithStatusSubresource(&api.GPUFunction{}, &api.FaSTPod{}, &api.SharePolicy{}).
		WithIndex(&v1.Pod{}, "spec.nodeName", func(o client.Object) []string { return []string{o.(*v1.Pod).Spec.NodeName} })
	for _, i := range indexes {
		builder = builder.WithIndex(i.object, i.field, i.values)
	}
	server := builder.Build()
	c.client = interceptor.NewClient(server, interceptor.Funcs{
		Create: func(ctx context.Context, w client.WithWatch, o client.Object, options ...client.CreateOption) error {
			o.SetUID(types.UID(strings.Repeat("u", int(c.uids.Add(1)))))
			o.SetCreationTimestamp(metav1.Now())
			if c.calls.Create != nil {
				return c.calls.Create(ctx, w, o, options...)
			}
			return w.Create(ctx, o, options...)
		},
		Patch: func(ctx context.Context, w client.WithWatch, o client.Object, p client.Patch, options ...client.PatchOption) error {
			if c.calls.Patch != nil {
				return c.calls.Patch(ctx, w, o, p, options...)
			}
			return w.Patch(ctx, o, p, options...)
		},
		Delete: func(ctx context.Context, w client.WithWatch, o client.Object, options ...client.DeleteOption) error {
			if c.calls.Delete != nil {
				return c.calls.Delete(ctx, w, o, options...)
			}
			return w.Delete(ctx, o, options...)
		},
	})
	c.lead()
	return c
}

// lead replaces the components by those of another controller, which knows nothing yet.
func (c *cluster) lead() {
	c.Helper()
	log := slog.New(slog.DiscardHandler)
	cached := slimmed(c.client)
	c.pods = NewPods(cached, c.client, c.recorder, log)
	loads := newLoads()
	gateways := &Gateways{loads: loads, client: cached, pods: c.pods, advisor: fleet.NewAdvisor(loads.Load, log), backOffs: map[gateway.FunctionName]backOff{}}
	gateways.expect(nil)
	c.pods.waitStopped = loads.waitStopped
	c.moves = &moves{pods: c.pods, recorder: c.recorder, log: log, atOnce: movesAtOnce}
	f, err := fleet.New(fleet.Config{Gateways: gateways, Platform: c.pods, Log: log, KeepReplicas: true, Moved: c.moves.note}, nil)
	if err != nil {
		c.Fatal(err)
	}
	c.moves.fleet = f
	c.known = &functions{client: cached, fleet: f, advisor: gateways.advisor, pods: c.pods, gateways: gateways,
		services: &services{client: c.client, live: c.client, gateway: "gateway.example"},
		networks: &networkPolicies{client: c.client, live: c.client, gateways: "gshare-system"}, recorder: c.recorder, known: map[gateway.FunctionName]known{}}
}

// run runs the component that manages pods, and also the fleet if fleetToo, until the test ends.
func (c *cluster) run(fleetToo bool) {
	ctx, cancel := context.WithCancel(c.Context())
	c.Cleanup(func() { cancel(); synctest.Wait() })
	go c.pods.Run(ctx)
	if fleetToo {
		go c.known.fleet.Run(ctx)
	}
}

// event returns the next event.
func (c *cluster) event() fleet.Event {
	c.Helper()
	select {
	case e := <-c.pods.Events():
		return e
	case <-time.After(time.Minute):
		c.Fatal("no event")
		return fleet.Event{}
	}
}

// all returns all pods.
func (c *cluster) all() []v1.Pod {
	c.Helper()
	list := &v1.PodList{}
	if err := c.client.List(c.Context(), list); err != nil {
		c.Fatal(err)
	}
	return list.Items
}

// one returns the only pod.
func (c *cluster) one() *v1.Pod {
	c.Helper()
	synctest.Wait()
	all := c.all()
	if len(all) != 1 {
		c.Fatalf("%d pods, want 1: %v", len(all), all)
	}
	return &all[0]
}

// update changes a pod as somebody else would, and reports the change to the platform.
func (c *cluster) update(pod *v1.Pod, change func(p *v1.Pod)) {
	c.Helper()
	before := pod.DeepCopy()
	change(pod)
	status := pod.Status
	if err := c.client.Update(c.Context(), pod); err != nil {
		c.Fatal(err)
	}
	pod.Status = status
	if err := c.client.Status().Update(c.Context(), pod); err != nil {
		c.Fatal(err)
	}
	c.pods.handler().OnUpdate(before, pod)
}

func makeReady(p *v1.Pod) {
	p.Status = v1.PodStatus{PodIP: "10.0.0.1", Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}}}
}

// instanceOfFunction is the first instance of a function.
func instanceOfFunction(f *api.GPUFunction, id scaling.ID) fleet.Instance {
	name := gateway.FunctionName{Namespace: f.Namespace, Name: f.Name}
	return fleet.Instance{Name: fleet.InstanceName(name, id), ID: id, Function: f, Share: f.Share(), Residency: scaling.Hot}
}

func TestReadyThoughPodCannotBeChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.calls.Patch = func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
			return apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, "x", errors.New("changed"))
		}
		c.run(false)
		c.pods.Create(instanceOfFunction(function(t, nil), 1))
		c.event()
		c.pods.setResidency("ml/resnet50-1", scaling.Shared)
		c.update(c.one(), func(p *v1.Pod) { makeReady(p); setReached(p, residency.Reached{Seq: 1, Level: residency.Hot}) })
		if e := c.event(); e.Kind != fleet.Ready || e.Address != "10.0.0.1:8080" {
			t.Errorf("got %+v, want that it is ready", e)
		}
	})
}

func TestPodTakenAway(t *testing.T) {
	for what, take := range map[string]func(p *v1.Pod){
		"its labels":     func(p *v1.Pod) { delete(p.Labels, api.LabelFunction) },
		"its controller": func(p *v1.Pod) { p.OwnerReferences = nil },
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				c.run(false)
				f := function(t, nil)
				c.pods.Create(instanceOfFunction(f, 1))
				c.event()
				c.update(c.one(), makeReady)
				c.event()
				c.update(c.one(), take)
				if e := c.event(); e.Kind != fleet.Failed || !strings.Contains(e.Message, "labels") {
					t.Errorf("got %+v, want that it has failed: gateways send it no requests any more", e)
				}
				c.pods.Create(instanceOfFunction(f, 1))
				if e := c.event(); e.Kind != fleet.Starting {
					t.Errorf("got %+v, want a new pod", e)
				}
				if all := c.all(); len(all) != 2 {
					t.Errorf("%d pods, want the old one left alone and a new one", len(all))
				}
			})
		})
	}
}

func TestPodCreatedWithoutAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.calls.Create = func(ctx context.Context, w client.WithWatch, o client.Object, options ...client.CreateOption) error {
			if err := w.Create(ctx, o, options...); err != nil {
				return err
			}
			if _, ok := o.(*v1.Pod); ok {
				return apierrors.NewTimeoutError("no answer", 1)
			}
			return nil
		}
		c.run(false)
		c.pods.Create(instanceOfFunction(function(t, nil), 1))
		if e := c.event(); e.Kind != fleet.Starting {
			t.Fatalf("got %+v", e)
		}
		c.pods.Delete("ml/resnet50-1")
		if e := c.event(); e.Kind != fleet.Gone {
			t.Fatalf("got %+v, want that it is gone", e)
		}
		if all := c.all(); len(all) != 0 {
			t.Errorf("pod %s is left, and gets requests", all[0].Name)
		}
	})
}

func TestRefusedPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.calls.Create = func(ctx context.Context, w client.WithWatch, o client.Object, options ...client.CreateOption) error {
			if _, ok := o.(*v1.Pod); ok {
				return apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, o.GetName(), nil)
			}
			return w.Create(ctx, o, options...)
		}
		c.run(false)
		c.pods.Create(instanceOfFunction(function(t, nil), 1))
		if e := c.event(); e.Kind != fleet.Failed || !strings.Contains(e.Message, "cannot be created") {
			t.Errorf("got %+v, want that it has failed", e)
		}
		select {
		case e := <-c.recorder.Events:
			if !strings.Contains(e, "FailedCreate") {
				t.Errorf("event %s", e)
			}
		default:
			t.Error("no event of the function")
		}
	})
}

func TestSlowCreateHoldsUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		var slow atomic.Bool
		c.calls.Create = func(ctx context.Context, w client.WithWatch, o client.Object, options ...client.CreateOption) error {
			if _, ok := o.(*v1.Pod); ok && slow.CompareAndSwap(false, true) {
				time.Sleep(30 * time.Second)
			}
			return w.Create(ctx, o, options...)
		}
		c.run(false)
		c.pods.Create(instanceOfFunction(function(t, nil), 1))
		synctest.Wait()
		began := time.Now()
		c.pods.Create(instanceOfFunction(function(t, func(f *api.GPUFunction) { f.Name = "bert" }), 1))
		if e := c.event(); e.Instance != "ml/bert-1" || time.Since(began) >= time.Second {
			t.Errorf("got %+v after %v, want the second one at once", e, time.Since(began))
		}
		c.event()
	})
}

func TestWaitingToLeadQueuesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		defer c.pods.queue.ShutDown()
		fp := fastPodOf(function(t, nil))
		c.pods.handler().OnAdd(functionPod(fp, "x", 1), false)
		if n := c.pods.queue.Len(); n != 0 {
			t.Errorf("%d names wait for somebody who may never lead", n)
		}
	})
}

// reconcile runs the controller for the function of an object.
func (c *cluster) reconcile(f *api.GPUFunction) reconcile.Result {
	c.Helper()
	result, err := c.known.Reconcile(c.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(f)})
	if err != nil {
		c.Fatal(err)
	}
	synctest.Wait()
	return result
}

func running(t *testing.T) *api.GPUFunction {
	return function(t, func(f *api.GPUFunction) { f.Spec.Scaling.MinReplicas = 1 })
}

func TestFunctionMadeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := running(t)
		c := newCluster(t, f)
		c.run(true)
		c.reconcile(f)
		time.Sleep(1100 * time.Millisecond)
		old := c.one()
		c.update(old, makeReady)
		// Both changes are made before the controller sees either.
		again := f.DeepCopy()
		again.UID, again.ResourceVersion = "uid-2", ""
		if err := errors.Join(c.client.Delete(t.Context(), f), c.client.(client.Client).Create(t.Context(), again)); err != nil {
			t.Fatal(err)
		}
		c.reconcile(again)
		collect(c)
		c.pods.handler().OnDelete(old)
		time.Sleep(time.Minute)
		p := c.one()
		fp := &api.FaSTPod{}
		if err := c.client.Get(t.Context(), client.ObjectKey{Namespace: "ml", Name: p.OwnerReferences[0].Name}, fp); err != nil {
			t.Fatal(err)
		}
		if p.OwnerReferences[0].UID != fp.UID || !metav1.IsControlledBy(fp, again) {
			t.Errorf("pod %s of %v of %v: the garbage collector deletes it", p.Name, p.OwnerReferences, fp.OwnerReferences)
		}
	})
}

// collect deletes objects owned by functions and FaSTPods that no longer exist, as the garbage collector does.
func collect(c *cluster) {
	c.Helper()
	uids := map[types.UID]bool{}
	functions, fps := &api.GPUFunctionList{}, &api.FaSTPodList{}
	if err := errors.Join(c.client.List(c.Context(), functions), c.client.List(c.Context(), fps)); err != nil {
		c.Fatal(err)
	}
	for _, f := range functions.Items {
		uids[f.UID] = true
	}
	for _, fp := range fps.Items {
		if uids[fp.OwnerReferences[0].UID] {
			uids[fp.UID] = true
		} else if err := c.client.Delete(c.Context(), &fp); err != nil {
			c.Fatal(err)
		}
	}
	for _, p := range c.all() {
		if !uids[p.OwnerReferences[0].UID] {
			if err := c.client.Delete(c.Context(), &p); err != nil {
				c.Fatal(err)
			}
		}
	}
}

func TestForeignPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := function(t, nil)
		fp := fastPodOf(f)
		fp.UID = "fp-1"
		of := func(name string, instance int, change func(p *v1.Pod)) *v1.Pod {
			p := functionPod(fp, name, instance)
			p.UID = types.UID(name)
			change(p)
			return p
		}
		c := newCluster(t, f, fp,
			of("foreign", 1, func(p *v1.Pod) { p.OwnerReferences = nil }),
			of("deployed", 2, func(p *v1.Pod) { p.OwnerReferences[0].Kind = "ReplicaSet" }),
			of("earlier", 3, func(p *v1.Pod) { p.OwnerReferences[0].UID = "fp-0" }),
			of("ended", 4, func(p *v1.Pod) { p.Status.Phase = v1.PodFailed }),
			of("ours", 5, makeReady),
		)
		c.run(false)
		c.reconcile(f)
		if key, found := c.pods.keyOf("ml/resnet50-5"); !found || key.Name != "ours" {
			t.Errorf("instance 5 is %v, %t", key, found)
		}
		if n := len(c.pods.instances); n != 1 {
			t.Errorf("%d pods were adopted, want one", n)
		}
		if all := c.all(); len(all) != 4 {
			t.Errorf("%d pods are left, want four: the one that has ended is of no use", len(all))
		}
		<-c.pods.Events()
	})
}

// TestUnreadyOfEarlierLeader: a leader takes over pods of an earlier template that have missed their probes for a moment, and gives them time to
// be ready again. Those that were never ready are replaced at once.
func TestUnreadyOfEarlierLeader(t *testing.T) {
	for name, test := range map[string]struct {
		started time.Duration // before they became unready, which is now
		left    int
	}{"missed a probe": {time.Minute, 1}, "never ready": {0, 0}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := running(t)
				before := f.DeepCopy()
				before.Spec.Resources.Share.SM = new(*f.Spec.Resources.Share.SM + 1)
				fp := fastPodOf(before)
				fp.UID = "fp-1"
				pod := functionPod(fp, "earlier", 1)
				pod.UID = "earlier"
				startContainer(pod)
				pod.Status.StartTime = new(metav1.NewTime(time.Now().Add(-test.started)))
				c := newCluster(t, f, fp, pod)
				c.run(true)
				c.reconcile(f)
				time.Sleep(fleet.Recovery / 2)
				if left := slices.DeleteFunc(c.all(), func(p v1.Pod) bool { return p.Name != pod.Name }); len(left) != test.left {
					t.Errorf("%d are left, want %d", len(left), test.left)
				}
			})
		})
	}
}

func TestFunctionWaitsForGPU(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := function(t, nil)
		f.Spec.Resources.Share = nil
		c := newCluster(t, f)
		defer c.pods.queue.ShutDown()
		for range 3 {
			if result := c.reconcile(f); result.RequeueAfter <= 0 {
				t.Error("nobody looks at it again when there is a GPU")
			}
		}
		if n := len(c.recorder.Events); n != 1 {
			t.Errorf("%d events, want one", n)
		}
	})
}

func TestFastPodOfSomebodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := function(t, nil)
		foreign := fastPodOf(f)
		foreign.OwnerReferences, foreign.UID = nil, "foreign"
		c := newCluster(t, f, foreign)
		c.run(false)
		c.pods.Create(instanceOfFunction(f, 1))
		if e := c.event(); !strings.Contains(e.Message, "is not of this function") || len(c.all()) != 0 {
			t.Errorf("got %+v and %d pods", e, len(c.all()))
		}
	})
}

// TestFastPodWithoutFunction: a FaSTPod whose controller is a function, but whose spec does not name that function, was created by somebody who knew the
// function's name. Such an object used to crash gshare-controller for all users.
func TestFastPodWithoutFunction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := function(t, nil)
		forged := fastPodOf(f)
		forged.UID, forged.Spec.FunctionRef = "forged", nil
		c := newCluster(t, f, forged)
		c.run(false)
		c.pods.Create(instanceOfFunction(f, 1))
		if e := c.event(); !strings.Contains(e.Message, "is not of this function") || len(c.all()) != 0 {
			t.Errorf("got %+v and %d pods", e, len(c.all()))
		}
	})
}

// TestReplicasThatStartTogether: several replicas of a function create its FaSTPod at the same time. Each gets its pod at once, without a pause after a
// failure.
func TestReplicasThatStartTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		wait := make(chan struct{})
		c.calls.Create = func(ctx context.Context, w client.WithWatch, o client.Object, options ...client.CreateOption) error {
			if _, ok := o.(*api.FaSTPod); ok {
				<-wait // none sees the FaSTPod that another one creates
			}
			return w.Create(ctx, o, options...)
		}
		c.run(false)
		for id := range 4 {
			c.pods.Create(instanceOfFunction(running(t), scaling.ID(id+1)))
		}
		synctest.Wait()
		began := time.Now()
		close(wait)
		for range 4 {
			if e := c.event(); e.Kind != fleet.Starting || !strings.Contains(e.Message, "waits for the scheduler") {
				t.Errorf("%+v, want a pod that waits for the scheduler", e)
			}
		}
		if pods := c.all(); len(pods) != 4 || time.Since(began) != 0 {
			t.Errorf("%d pods after %v, want all at once", len(pods), time.Since(began))
		}
	})
}
