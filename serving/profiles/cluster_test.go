package profiles

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/serving/controller"
	"github.com/gshare-dev/gshare/serving/profiler"
	"github.com/gshare-dev/gshare/serving/rules/profile"
	"github.com/gshare-dev/gshare/test/tracker"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/share"
)

const gpuID = "GPU-5b2e3c1a-0000-4d2f-9a7e-1f6c8e0d4a01"

// gpuNode returns a node with a GPU.
func gpuNode(t *testing.T, name, model string, memoryMiB int64, changes ...func(*kube.Slice)) *v1.Node {
	t.Helper()
	s := kube.Slice{ID: gpuID, Device: gpuID, Model: model, SMs: 132, MemoryMiB: memoryMiB, Classes: []share.Isolation{share.MPS}, Healthy: true, MaxShares: 16}
	for _, change := range changes {
		change(&s)
	}
	text, err := kube.EncodeInventory(kube.Inventory{Rules: &kube.Rules{GammaPercent: 150, Window: metav1.Duration{Duration: kube.DefaultWindow}}, Slices: []kube.Slice{s}})
	if err != nil {
		t.Fatal(err)
	}
	return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{kube.AnnotationInventory: text}, Labels: map[string]string{labelDriver: "580.95.05"}}}
}

// someProfile returns a profile of a server with a template.
func someProfile(changes ...func(*api.GPUProfile)) *api.GPUProfile {
	p := &api.GPUProfile{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: "bert", UID: "1", Generation: 1},
		Spec: api.GPUProfileSpec{
			SLO: api.ProfileSLO{Latency: "20ms"}, Protocol: api.OIP, StaleAfter: "720h",
			Template: v1.PodTemplateSpec{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "server", Image: "bert"}}}},
		},
	}
	for _, change := range changes {
		change(p)
	}
	return p
}

// world is a cluster with an API server, a scheduler, a kubelet and servers whose batches take the time of a surface.
type world struct {
	*testing.T
	server   client.WithWatch
	client   client.WithWatch // that of the controller
	recorder *events.FakeRecorder
	key      client.ObjectKey
	batch    func(rows int, sm, quota int64) time.Duration

	writes  int // of the controller
	crash   func(write int) (before, after bool)
	steps   int                            // of the kubelet
	kill    func(step int, p *v1.Pod) bool // whether a pod that runs is killed
	ran     map[string]int                 // clients that were started, by what they measure
	servers int                            // that were started
	usedMiB int64                          // of device memory, by the agent
	old     bool                           // the agent is one that changes no quotas
	taken   bool                           // the GPU is somebody else's: servers get no node
	rate    func(sm int64) int             // kernels that a program launches in a second, as the agent counts; nil: it does not count
	counts  func(p *v1.Pod) bool           // whether the agent counts what the program does now; nil: it does
	hung    func(client *v1.Pod) bool      // whether a client that runs does not end; nil: it does
	image   string
	version string
}

// surface is one on which more than half of the SMs helps nobody.
func surface(rows int, sm, _ int64) time.Duration {
	return time.Duration(float64(1000+500*rows) * 100 / float64(min(sm, 50)) * float64(time.Microsecond))
}

func newWorld(t *testing.T, p *api.GPUProfile, objects ...client.Object) *world {
	t.Helper()
	scheme, err := controller.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	w := &world{T: t, recorder: events.NewFakeRecorder(1000), key: client.ObjectKeyFromObject(p), batch: surface, ran: map[string]int{}, usedMiB: 1000, image: "bert@sha256:1", version: "v1"}
	if len(objects) == 0 {
		objects = []client.Object{gpuNode(t, "node1", "H200", 40960)}
	}
	w.server = fake.NewClientBuilder().WithScheme(scheme).WithObjectTracker(tracker.New(scheme)).WithObjects(append(objects, p)...).WithStatusSubresource(&api.GPUProfile{}).Build()
	write := func(do func() error) error {
		w.writes++
		before, after := false, false
		if w.crash != nil {
			before, after = w.crash(w.writes)
		}
		if before {
			return errCrash
		}
		if err := do(); err != nil || !after {
			return err
		}
		return errCrash
	}
	w.client = interceptor.NewClient(w.server, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
			return write(func() error {
				o.SetUID(types.UID(fmt.Sprint("pod-", w.writes)))
				o.SetCreationTimestamp(metav1.Now())
				return c.Create(ctx, o, options...)
			})
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, options ...client.PatchOption) error {
			return write(func() error { return c.Patch(ctx, o, patch, options...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.DeleteOption) error {
			return write(func() error { return c.Delete(ctx, o, options...) })
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
			return write(func() error { return c.SubResource(sub).Patch(ctx, o, patch, options...) })
		},
	})
	return w
}

var errCrash = errors.New("the controller was killed")

// reconcile lets a new controller, which knows nothing, look once.
func (w *world) reconcile() (reconcile.Result, error) {
	r := &Reconciler{
		Client: w.client, Pods: w.client, Live: w.client, Quotas: controller.NewQuotas(w.client, w.client), Events: w.recorder, Log: slog.New(slog.DiscardHandler), Version: w.version,
		Image: func(context.Context) (string, error) { return "gshare-controller:v1", nil },
	}
	return r.Reconcile(w.Context(), reconcile.Request{NamespacedName: w.key})
}

// run runs the cluster until nothing changes any more, and returns the profile.
func (w *world) run() *api.GPUProfile {
	w.Helper()
	for quiet := 0; quiet < 3; {
		before := w.writes
		result, err := w.reconcile()
		if err != nil && !errors.Is(err, errCrash) {
			w.Fatal(err)
		}
		moved := w.kubelet()
		if quiet++; moved || w.writes > before || err != nil || result.RequeueAfter > 0 && result.RequeueAfter < stalePause {
			quiet = 0
		}
		time.Sleep(max(time.Second, min(result.RequeueAfter, time.Minute)))
		if w.writes > 1500 || w.steps > 1500 {
			w.Fatalf("it does not end: %+v, %d pods", w.profile().Status, len(w.pods()))
		}
	}
	return w.profile()
}

func (w *world) profile() *api.GPUProfile {
	w.Helper()
	p := &api.GPUProfile{}
	if err := w.server.Get(w.Context(), w.key, p); err != nil {
		w.Fatal(err)
	}
	return p
}

func (w *world) pods() []v1.Pod {
	w.Helper()
	list := &v1.PodList{}
	if err := w.server.List(w.Context(), list); err != nil {
		w.Fatal(err)
	}
	return list.Items
}

// kubelet takes each pod one step further, and reports whether there was one to take.
func (w *world) kubelet() bool {
	w.Helper()
	moved := false
	for _, p := range w.pods() {
		if kube.Ended(&p) || p.Labels[api.LabelFunction] != "" { // replicas are the test's
			continue
		}
		isClient := p.Spec.Containers[0].Name == clientName
		if isClient || p.Status.Phase == "" {
			moved = true
		}
		w.steps++
		switch killed := p.Status.Phase != "" && w.kill != nil && w.kill(w.steps, &p); {
		case killed:
			w.end(&p, v1.PodFailed, 137, "")
		case p.Status.Phase == "" && isClient:
			p.Status.Phase = v1.PodRunning
			p.Status.ContainerStatuses = []v1.ContainerStatus{{Name: clientName, State: v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: metav1.Now()}}}}
		case isClient && w.hung != nil && w.hung(&p):
			continue
		case p.Status.Phase == "" && w.taken:
			p.Status.Conditions = []v1.PodCondition{{Type: v1.PodScheduled, Status: v1.ConditionFalse, Reason: v1.PodReasonUnschedulable, Message: "0/1 nodes"}}
		case p.Status.Phase == "":
			w.place(&p)
		case !isClient && !w.old && wantedQuota(&p) != enforcedQuota(&p):
			w.enforce(&p)
			moved = true
		case isClient:
			w.end(&p, v1.PodSucceeded, 0, w.measure(&p))
		case w.rate != nil && !w.old && (w.counts == nil || w.counts(&p)):
			w.count(&p)
		default:
			continue
		}
		status := p.Status
		if err := w.server.Update(w.Context(), &p); err != nil {
			w.Fatal(err)
		}
		p.Status = status
		if err := w.server.Status().Update(w.Context(), &p); err != nil {
			w.Fatal(err)
		}
	}
	return moved
}

func (w *world) end(p *v1.Pod, phase v1.PodPhase, code int32, message string) {
	started := metav1.NewTime(startOf(p))
	p.Status.Phase = phase
	p.Status.Conditions = nil
	p.Status.ContainerStatuses = []v1.ContainerStatus{{Name: p.Spec.Containers[0].Name, ImageID: w.image, State: v1.ContainerState{
		Terminated: &v1.ContainerStateTerminated{ExitCode: code, Reason: "Ended", Message: message, StartedAt: started, FinishedAt: metav1.Now()},
	}}}
}

// place puts a server on the GPU and makes it ready.
func (w *world) place(p *v1.Pod) {
	w.Helper()
	request, asks, err := kube.RequestOf(p)
	if err != nil || !asks {
		w.Fatal(asks, err)
	}
	class := share.MPS
	if request.Isolation == share.AnyIsolation && request.Containers[0].Share.IsWhole() {
		class = share.Exclusive
	}
	text, err := kube.EncodePlacement(kube.Placement{Node: "node1", UID: p.UID, Model: kube.Slots, Containers: []kube.PlacedContainer{{
		Name: "server", VGPUs: []kube.PlacedVGPU{{Slice: gpuID, Class: class, Priority: request.Priority, Share: request.Containers[0].Share}},
	}}})
	if err != nil {
		w.Fatal(err)
	}
	w.servers++
	w.enforce(p)
	p.Annotations[kube.AnnotationPlacement] = text
	p.Spec.NodeName = "node1"
	p.Status = v1.PodStatus{
		Phase: v1.PodRunning, PodIP: fmt.Sprintf("10.0.%d.%d", w.servers/250, w.servers%250+1),
		Conditions:        []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}, {Type: v1.PodScheduled, Status: v1.ConditionTrue, LastTransitionTime: metav1.Now()}},
		ContainerStatuses: []v1.ContainerStatus{{Name: "server", ImageID: w.image, State: v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: metav1.Now()}}}},
	}
}

// enforce has the agent report what it enforces of a server.
func (w *world) enforce(p *v1.Pod) {
	w.Helper()
	status := kube.ContainerEnforcement{Name: "server", MemoryPeakMiB: w.usedMiB}
	if quota := wantedQuota(p); quota < ownQuota(p) && !w.old {
		status.QuotaPercent = quota
	}
	text, err := kube.EncodeEnforcementStatus(kube.EnforcementStatus{Containers: []kube.ContainerEnforcement{status}})
	if err != nil {
		w.Fatal(err)
	}
	p.Annotations[kube.AnnotationEnforcementStatus] = text
}

// count has the agent report what a program has done: it launches nothing for ten seconds, and keeps the GPU busy for half of the time then.
func (w *world) count(p *v1.Pod) {
	w.Helper()
	status, _, err := kube.EnforcementStatusOf(p)
	if err != nil {
		w.Fatal(err)
	}
	limits := p.Spec.Containers[0].Resources.Limits
	sm := limits[kube.ResourceSM]
	seconds := max(0, time.Since(startOf(p))-10*time.Second)
	c := &status.Containers[0]
	c.Work, _ = c.Work.Counted(time.Now(), seconds/2, uint64(seconds.Seconds()*float64(w.rate(sm.Value()))))
	text, err := kube.EncodeEnforcementStatus(status)
	if err != nil {
		w.Fatal(err)
	}
	p.Annotations[kube.AnnotationEnforcementStatus] = text
}

// measure returns what the client finds on the server that it was given: an end without a result if that is gone.
func (w *world) measure(p *v1.Pod) string {
	w.Helper()
	j, err := profiler.DecodeJob([]byte(strings.ReplaceAll(p.Spec.Containers[0].Env[0].Value, "$$", "$")))
	if err != nil {
		w.Fatal(err)
	}
	pods := w.pods()
	at := slices.IndexFunc(pods, func(o v1.Pod) bool {
		return o.Status.PodIP != "" && strings.HasPrefix(j.Address, o.Status.PodIP+":") && o.Status.Phase == v1.PodRunning
	})
	o := profiler.Outcome{Version: profiler.JobVersion, Failed: "10 of 10 requests failed: connection refused"}
	if at >= 0 {
		limits := pods[at].Spec.Containers[0].Resources.Limits
		sm, quota := limits[kube.ResourceSM], enforcedQuota(&pods[at])
		mean := w.batch(j.Batch, sm.Value(), quota)
		w.ran[fmt.Sprintf("%d x %d, %d, again %t", sm.Value(), quota, j.Batch, j.Confirm > 0)]++
		t := &profiler.Trial{Point: profile.Point{Batch: j.Batch}}
		if j.Confirm > 0 {
			t.Point.Throughput, t.Confirmed = j.Confirm*0.99, true
		} else {
			t.Point.Mean, t.Point.P95, t.Point.P99 = mean, mean, mean
			t.Plateau = float64(j.Batch) / mean.Seconds()
			if mean <= j.Load.Bound {
				t.Point.Throughput, t.P99 = 0.75*t.Plateau, 19
			}
		}
		o = profiler.Outcome{Version: profiler.JobVersion, Trial: t}
	}
	text, err := o.Encode()
	if err != nil {
		w.Fatal(err)
	}
	return string(text)
}

// measurements is how many clients have measured.
func (w *world) measurements() int {
	n := 0
	for _, times := range w.ran {
		n += times
	}
	return n
}

// result is what must not depend on what was killed.
func result(w *world, p *api.GPUProfile) string {
	w.Helper()
	c := meta.FindStatusCondition(p.Status.Conditions, api.ConditionComplete)
	if c == nil || c.Status != metav1.ConditionTrue || p.Status.Attempt != nil || p.Status.Target != nil || len(w.pods()) > 0 {
		w.Fatalf("not complete: %+v, %d pods", p.Status, len(w.pods()))
	}
	points := slices.Clone(p.Status.Points)
	for at := range points {
		points[at].GPUSeconds = 0
	}
	slices.SortFunc(points, func(a, b api.ProfilePoint) int {
		return cmp.Or(cmp.Compare(a.SM, b.SM), cmp.Compare(a.Quota, b.Quota), cmp.Compare(a.Batch, b.Batch))
	})
	text, err := json.MarshalIndent([]any{c.Reason, points, p.Status.Recommended}, "", " ")
	if err != nil {
		w.Fatal(err)
	}
	return string(text)
}

// inBubble runs a test with a clock of its own.
func inBubble(t *testing.T, f func(t *testing.T)) { synctest.Test(t, f) }
