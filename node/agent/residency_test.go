package agent

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gshare-dev/gshare/node/grant"
	"github.com/gshare-dev/gshare/node/tokenserver"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/residency"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// wants sets the level that is wanted of a pod, with what it has reported last.
func (r *fixture) wants(pod *v1.Pod, seq int64, l residency.Level) {
	r.t.Helper()
	text, err := residency.Wanted{Seq: seq, Level: l, Drained: !l.Serves()}.Encode()
	if err != nil {
		r.t.Fatal(err)
	}
	pod.Annotations[kube.AnnotationResidency] = text
	r.cluster.mu.Lock()
	if reached := r.cluster.reached[pod.UID]; reached != "" {
		pod.Annotations[kube.AnnotationResidencyReached] = reached
	}
	r.cluster.mu.Unlock()
	r.kubelet.AddPod(pod)
}

// instance adds a pod that is an instance of a function, with 60 % of the SMs for 90 % of the time, and starts it as Hot.
func (r *fixture) instance(uid string) *v1.Pod {
	r.t.Helper()
	pod := placed(uid, "GPU-0", 60, 90)
	r.wants(pod, 1, residency.Hot)
	r.mustCreate(uid, r.admitted(uid), "GPU-0")
	return pod
}

func (r *fixture) reached(uid string) residency.Reached {
	r.cluster.mu.Lock()
	defer r.cluster.mu.Unlock()
	reached, err := residency.DecodeReached(r.cluster.reached[types.UID(uid)])
	if err != nil {
		return residency.Reached{}
	}
	return reached
}

// awaitReached blocks until a level is reported of a pod, and checks that the record on disk is the same and the token server serves it so.
func (r *fixture) awaitReached(uid string, want residency.Reached) {
	r.t.Helper()
	defer func() {
		if r.t.Failed() {
			r.t.Logf("pod %s: reported %+v", uid, r.reached(uid))
		}
	}()
	r.wait("report of pod "+uid, func() bool { return r.reached(uid) == want })
	record := r.record(uid)
	if record.Residency != want {
		r.t.Errorf("pod %s: the record is %+v, reported %+v", uid, record.Residency, want)
	}
	service, served := r.granter.grants.serviceOf(record.ID())
	if !served || service.container.Status().VGPUs[0].IdleOnly != (want.Level < residency.Hot) {
		r.t.Errorf("pod %s: served %t, not as %v", uid, served, want.Level)
	}
}

// record returns the grant of a pod's container main on disk.
func (r *fixture) record(uid string) grant.Grant {
	r.t.Helper()
	id := grant.Owner{UID: types.UID(uid), Container: "main"}.ID()
	text, err := os.ReadFile(filepath.Join(r.dir, "grants", id, recordName))
	if err != nil {
		r.t.Fatal(err)
	}
	granted, err := grant.Decode(text)
	if err != nil {
		r.t.Fatal(err)
	}
	return granted
}

// TestResidency: an instance gives its SM-time up and gets it back; another container starts with it meanwhile, and the instance is refused
// it until that has ended.
func TestResidency(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	pod := r.instance("a")
	r.awaitReached("a", residency.Reached{Seq: 1, Level: residency.Hot})
	r.wants(pod, 2, residency.Shared)
	r.awaitReached("a", residency.Reached{Seq: 2, Level: residency.Shared})
	r.wait("enforcement status", func() bool { return r.enforced("a", "in time that others leave") })
	r.wants(pod, 3, residency.Hot)
	r.awaitReached("a", residency.Reached{Seq: 3, Level: residency.Hot})
	r.wait("enforcement status", func() bool { return !r.enforced("a", "in time that others leave") })
	r.wants(pod, 4, residency.Shared)
	r.awaitReached("a", residency.Reached{Seq: 4, Level: residency.Shared})

	r.mustCreate("b", r.pod("b", "GPU-0", 60, 90), "GPU-0")
	if r.record("b").Residency != (residency.Reached{}) || r.reached("b") != (residency.Reached{}) {
		t.Errorf("of a pod that is no instance a level is recorded: %+v", r.record("b").Residency)
	}
	r.wants(pod, 5, residency.Hot)
	r.awaitReached("a", residency.Reached{Seq: 5, Level: residency.Shared, Refused: true})
	r.wait("event", func() bool { return r.cluster.hasEvent("pod-a GPUResidencyRefused") })

	r.stop()
	r.start() // the next agent serves it as recorded, beside the other one
	r.wait("restored service", func() bool { _, ok := r.granter.grants.serviceOf(r.record("a").ID()); return ok })
	r.awaitReached("a", residency.Reached{Seq: 5, Level: residency.Shared, Refused: true})

	r.kubelet.RemovePod("b")
	r.wait("release", func() bool { return len(r.grants()) == 1 })
	r.wants(pod, 6, residency.Hot)
	r.awaitReached("a", residency.Reached{Seq: 6, Level: residency.Hot})
}

// TestResidencyWaiting: a container that is bound to the node and has not started keeps its room from a raise.
func TestResidencyWaiting(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	pod := r.instance("a")
	r.wants(pod, 2, residency.Shared)
	r.awaitReached("a", residency.Reached{Seq: 2, Level: residency.Shared})
	r.kubelet.AddPod(placed("b", "GPU-0", 60, 90))
	r.wants(pod, 3, residency.Hot)
	r.awaitReached("a", residency.Reached{Seq: 3, Level: residency.Shared, Refused: true})
}

// TestResidencyCapacity: what an instance gives up is advertised in addition, for kube-scheduler and kubelet add up the requests of all pods.
func TestResidencyCapacity(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	pod := r.instance("a")
	resources := &pod.Spec.Containers[0].Resources
	resources.Requests = resources.Limits // as the API server does
	smTime := func() int64 {
		r.cluster.mu.Lock()
		defer r.cluster.mu.Unlock()
		return r.cluster.has.Name(kube.ResourceSMTime, resource.DecimalSI).Value()
	}
	r.awaitReached("a", residency.Reached{Seq: 1, Level: residency.Hot})
	r.wants(pod, 1, residency.Hot)
	whole := smTime()
	r.wants(pod, 2, residency.Shared)
	r.awaitReached("a", residency.Reached{Seq: 2, Level: residency.Shared})
	r.wants(pod, 2, residency.Shared) // with the report, which the scheduler counts by
	r.wait("capacity with what is given up", func() bool { return smTime() == whole+60*90 })
	r.wants(pod, 3, residency.Hot)
	r.wait("capacity without it", func() bool { return smTime() == whole })
}

// TestLoweredPodsInAnyOrder: the node is not published anew each time that the kubelet lists the same pods in another order.
func TestLoweredPodsInAnyOrder(t *testing.T) {
	t.Parallel()
	lowered := func(uid string) *v1.Pod {
		pod := placed(uid, "GPU-0", 10, 10)
		pod.Annotations[kube.AnnotationResidency] = `{"v":1,"residency":{"seq":2,"level":"Shared"}}`
		pod.Annotations[kube.AnnotationResidencyReached] = pod.Annotations[kube.AnnotationResidency]
		return pod
	}
	a, b, c := lowered("a"), lowered("b"), lowered("c")
	var l loweredPods
	for _, step := range []struct {
		pods    []*v1.Pod
		changed bool
	}{{[]*v1.Pod{a, b}, true}, {[]*v1.Pod{b, a}, false}, {[]*v1.Pod{c, a}, true}, {[]*v1.Pod{a}, true}} {
		if changed := l.set(step.pods); changed != step.changed || len(l.get()) != len(step.pods) {
			t.Errorf("%d pods: changed %t, want %t", len(l.get()), changed, step.changed)
		}
	}
}

// TestResidencyUnanswered: what cannot be read leaves an instance as it is without an answer.
func TestResidencyUnanswered(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	pod := r.instance("a")
	r.awaitReached("a", residency.Reached{Seq: 1, Level: residency.Hot})
	pod.Annotations[kube.AnnotationResidency] = "Shared"
	r.kubelet.AddPod(pod)
	r.wants(pod, 3, residency.Shared) // a later answer shows that the agent has seen the pod
	r.awaitReached("a", residency.Reached{Seq: 3, Level: residency.Shared})
	keeper := newResidencyKeeper(r.granter)
	pod.Annotations[kube.AnnotationResidency] = "Hot"
	keeper.settle(r.ctx, []*v1.Pod{pod})
	if len(keeper.logged) != 1 {
		t.Errorf("logged: %q", keeper.logged)
	}
	keeper.settle(r.ctx, nil)
	if len(keeper.logged) != 0 {
		t.Errorf("of a pod that is not there any more it is known what was logged: %q", keeper.logged)
	}
	r.awaitReached("a", residency.Reached{Seq: 3, Level: residency.Shared})
}

// TestResidencyNotEnforced: a change that the token server cannot make is an event of the pod, and is made when it can.
func TestResidencyNotEnforced(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	pod := r.instance("a")
	r.awaitReached("a", residency.Reached{Seq: 1, Level: residency.Hot})
	service, _ := r.granter.grants.serviceOf(r.record("a").ID())
	policy := filepath.Join(service.container.Dir, tokenserver.PolicyName)
	if err := errors.Join(os.Remove(policy), os.MkdirAll(filepath.Join(policy, "in the way"), 0o755)); err != nil {
		t.Fatal(err)
	}
	r.wants(pod, 2, residency.Shared)
	r.wait("event", func() bool { return r.cluster.hasEvent("pod-a GPUResidencyNotEnforced") })
	if err := os.RemoveAll(policy); err != nil {
		t.Fatal(err)
	}
	r.wants(pod, 3, residency.Shared)
	r.awaitReached("a", residency.Reached{Seq: 3, Level: residency.Shared})
}

// TestResidencyConflict: a report is repeated until the API server takes it.
func TestResidencyConflict(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	r.cluster.mu.Lock()
	r.cluster.conflicts = 2
	r.cluster.mu.Unlock()
	r.instance("a")
	r.awaitReached("a", residency.Reached{Seq: 1, Level: residency.Hot})
}

// TestRefusedReports: a report on a pod whose owner leaves no room for it is repeated with longer and longer pauses, and at once when the pod changes.
func TestRefusedReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const many = 1 << 30
		c := &cluster{conflicts: many}
		k := newResidencyKeeper(&granter{Options: &Options{Cluster: c, Log: slog.New(slog.DiscardHandler)}})
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u", Annotations: map[string]string{kube.AnnotationResidency: "w"}}}
		record := residency.Reached{Seq: 1, Level: residency.Hot}
		for range time.Minute / instancePeriod {
			k.report(t.Context(), pod, record)
			time.Sleep(instancePeriod)
		}
		tries := many - c.conflicts
		if tries < 4 || tries > 12 {
			t.Errorf("%d tries in a minute", tries)
		}
		pod.Annotations[kube.AnnotationResidency] = "x"
		k.report(t.Context(), pod, record)
		if got := many - c.conflicts; got != tries+1 {
			t.Errorf("%d tries after the pod has changed, want one", got-tries)
		}
		c.conflicts = 0
		time.Sleep(instancePeriod)
		k.report(t.Context(), pod, record)
		if c.reached["u"] == "" || len(k.refused) != 0 {
			t.Errorf("reached %v, refused %v", c.reached, k.refused)
		}
	})
}

// TestRefusedStart: an instance for which the slice has no room is reported as refused, and has no grant.
func TestRefusedStart(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	r.mustCreate("b", r.pod("b", "GPU-0", 60, 90), "GPU-0")
	pod := placed("a", "GPU-0", 60, 90)
	r.wants(pod, 1, residency.Hot)
	if spec, err := r.create("a", r.admitted("a")); err == nil {
		t.Fatalf("started: %s", spec)
	}
	r.wait("report", func() bool { return r.reached("a") == residency.Reached{Seq: 1, Refused: true} })
	if got := strings.Join(r.grants(), " "); got != "pod-b" {
		t.Errorf("grants of %s", got)
	}
}

var errKilled = errors.New("killed")

// TestResidencyKilled: an agent that ends between two steps of a change leaves what the next one completes, with no more enforced than
// recorded and no more recorded than fits.
func TestResidencyKilled(t *testing.T) {
	for _, c := range []struct {
		name   string
		to     residency.Level
		at     string // the kill point; empty: before the first step
		before residency.Level
		record residency.Level // that the killed agent leaves
	}{
		{"lowered, nothing done", residency.Shared, "", residency.Hot, residency.Hot},
		{"lowered, enforced", residency.Shared, "enforced", residency.Hot, residency.Hot},
		{"lowered, recorded", residency.Shared, "residency", residency.Hot, residency.Shared},
		{"raised, nothing done", residency.Hot, "", residency.Shared, residency.Shared},
		{"raised, recorded", residency.Hot, "residency", residency.Shared, residency.Hot},
		{"raised, enforced", residency.Hot, "enforced", residency.Shared, residency.Hot},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newFixture(t)
			pod := r.instance("a")
			seq := int64(1)
			if c.before == residency.Shared {
				seq++
				r.wants(pod, seq, residency.Shared)
			}
			r.awaitReached("a", residency.Reached{Seq: seq, Level: c.before})
			r.wants(pod, seq, c.before) // with the report
			r.stop()
			r.killed(func() { r.changeOffline(pod, seq+1, c.to) }, c.at)
			if got := r.record("a"); got.Level() != c.record {
				t.Errorf("the record is %v, want %v", got.Level(), c.record)
			}
			if service, _ := r.granter.grants.serviceOf(r.record("a").ID()); c.at != "" {
				if hot := !service.container.Status().VGPUs[0].IdleOnly; hot && c.record == residency.Shared {
					t.Error("more is enforced than recorded")
				}
			}
			r.granter.slices.Close()
			r.start()
			r.wants(pod, seq+1, c.to)
			r.awaitReached("a", residency.Reached{Seq: seq + 1, Level: c.to})
		})
	}
}

// changeOffline restores the node's grants in an agent that serves nothing else, and changes the level of an instance.
func (r *fixture) changeOffline(pod *v1.Pod, seq int64, to residency.Level) {
	if err := r.granter.restore(); err != nil {
		r.t.Fatal(err)
	}
	if err := r.devices.firstRefresh(r.ctx); err != nil {
		r.t.Fatal(err)
	}
	text, err := residency.Wanted{Seq: seq, Level: to, Drained: !to.Serves()}.Encode()
	if err != nil {
		r.t.Fatal(err)
	}
	pod = pod.DeepCopy()
	metav1.SetMetaDataAnnotation(&pod.ObjectMeta, kube.AnnotationResidency, text)
	keeper := newResidencyKeeper(r.granter)
	for range 1000 { // servers answer when they like
		keeper.settle(r.ctx, []*v1.Pod{pod})
		time.Sleep(10 * time.Millisecond)
	}
	r.t.Error("it was not killed")
}

// killed runs a new agent's operation until it reaches a kill point; empty: it is not begun.
func (r *fixture) killed(run func(), at string) {
	r.t.Helper()
	if at == "" {
		return
	}
	o := *r.Options
	agent, err := New(o)
	if err != nil {
		r.t.Fatal(err)
	}
	r.Agent = agent
	before := killPoint
	killPoint = func(point string) {
		if point == at {
			panic(errKilled)
		}
	}
	defer func() { killPoint = before }()
	defer func() {
		if err := recover(); err != errKilled {
			r.t.Errorf("killed by %v", err)
		}
	}()
	run()
}

// TestExclusiveResidency: an instance that has its slice alone changes its level without a token server.
func TestExclusiveResidency(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	pod := placed("a", "GPU-0", 100, 100)
	r.wants(pod, 1, residency.Hot)
	r.mustCreate("a", r.admitted("a"), "GPU-0")
	for seq, l := range []residency.Level{residency.Shared, residency.Hot} {
		want := residency.Reached{Seq: int64(seq) + 2, Level: l}
		r.wants(pod, want.Seq, l)
		r.wait("report", func() bool { return r.reached("a") == want })
		if got := r.record("a"); got.Residency != want || got.Class() != share.Exclusive {
			t.Errorf("the record is %+v, class %s", got.Residency, got.Class())
		}
	}
}

// TestRaiseIsBooked: a raise counts in the book before it is recorded, so that nothing else is granted its SM-time; a reduction only after.
func TestRaiseIsBooked(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	pod := r.instance("a")
	r.awaitReached("a", residency.Reached{Seq: 1, Level: residency.Hot})
	r.kubelet.RemovePod(pod.UID)
	r.wait("release", func() bool { return len(r.grants()) == 0 })
	r.stop()
	id := grant.Owner{UID: pod.UID, Container: "main"}.ID()
	placed := grant.Placed(pod, "n")[0]
	for _, to := range []residency.Level{residency.Hot, residency.Shared} {
		from := residency.Hot + residency.Shared - to
		placed.Residency = residency.Reached{Seq: 1, Level: from}
		r.granter.grants.restore(placed)
		r.granter.grants.setEnforced(id, min(from, to), parkedState{})
		_, step, ok := r.granter.grants.nextStep(id, residency.Wanted{Seq: 2, Level: to}, residency.Reached{}, nil)
		if booked, _ := r.granter.grants.book.Get(id); !ok || step.Effect != residency.Save || booked.Level() != residency.Hot {
			t.Errorf("to %v: %+v, %t; the book has %v", to, step, ok, booked.Level())
		}
	}
}
