package controller

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/serving/fleet"
	"github.com/gshare-dev/gshare/serving/gateway"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// TestTakeProfile: a function that names a profile gets that profile. It is Unprofiled until the profile recommends something, and keeps the
// recommendation from then on, even while the profile is measured anew or is deleted.
func TestTakeProfile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := function(t, nil)
		f.Spec.Resources.Share, f.Spec.Scaling = nil, api.Scaling{MaxReplicas: new(4)}
		f.Spec.Protocol, f.Spec.ProfileRef = api.OIP, &api.ProfileReference{Name: "measured"}
		c := newCluster(t, f, gpuNode(t, "node1"))
		c.run(true)
		key := client.ObjectKeyFromObject(f)
		name := gateway.FunctionName{Namespace: f.Namespace, Name: f.Name}
		look := func() known {
			t.Helper()
			synctest.Wait()
			if _, err := c.known.Reconcile(t.Context(), reconcile.Request{NamespacedName: key}); err != nil {
				t.Fatal(err)
			}
			return c.known.all()[name]
		}
		if k := look(); !k.unprofiled || k.profile != "measured" || k.profiled != nil || k.invalid != "" {
			t.Errorf("%+v", k)
		}
		p := &api.GPUProfile{}
		at := client.ObjectKey{Namespace: f.Namespace, Name: "measured"}
		if err := c.client.Get(t.Context(), at, p); err != nil {
			t.Fatal(err)
		}
		if !metav1.IsControlledBy(p, f) || p.Spec.FunctionRef.Name != f.Name {
			t.Errorf("%+v", p)
		}
		want := api.ProfileRecommendation{SM: 20, Quota: 100, Memory: "1152Mi", MaxBatch: 8, RequestsPerSecond: 34.9}
		p.Status.Recommended = &want
		if err := c.client.Update(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		k := look()
		if k.unprofiled || !cmp.Equal(k.profiled, &want) {
			t.Errorf("%+v", k)
		}
		var state *api.GPUFunctionStatus
		for _, s := range c.known.fleet.Status() {
			now := statusOf(f.Status, k, &s, backOff{}, "")
			state = &now
		}
		if state == nil || state.Share != "20% x 100%" || state.Profiled == nil || !cmp.Equal(*state.Profiled, want) {
			t.Errorf("status %+v", state)
		}
		object := &api.GPUFunction{}
		if err := c.client.Get(t.Context(), key, object); err != nil {
			t.Fatal(err)
		}
		object.Status = *state
		if err := c.client.Status().Update(t.Context(), object); err != nil {
			t.Fatal(err)
		}
		if err := c.client.Delete(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		if k := look(); k.unprofiled || !cmp.Equal(k.profiled, &want) {
			t.Errorf("without the profile: %+v", k)
		}
		if err := c.client.Get(t.Context(), at, p); err != nil {
			t.Errorf("the profile was not made again: %v", err)
		}
		complete, err := object.CompleteForCluster(0) // as gateways do
		if err != nil || complete.Spec.Batching.MaxBatch != 8 || *complete.Spec.Scaling.MaxReplicas != 4 {
			t.Errorf("%+v, %v", complete, err)
		}
		object.Spec.ProfileRef = nil
		if err := c.client.Update(t.Context(), object); err != nil {
			t.Fatal(err)
		}
		if k := look(); !k.unprofiled || k.profiled != nil {
			t.Errorf("without the reference: %+v", k)
		}
	})
}

// TestFirstProfile: a function that states only its objective gets a profile of the same name, and then what that profile recommends. A function that
// states more, or whose requests are unknown, gets none.
func TestFirstProfile(t *testing.T) {
	want := api.ProfileRecommendation{SM: 20, Quota: 100, Memory: "1152Mi", MaxBatch: 8, RequestsPerSecond: 34.9}
	for name, test := range map[string]struct {
		change    func(f *api.GPUFunction)
		off, none bool
		other     *api.GPUProfile // existed before
		problem   string
	}{
		"only the objective": {},
		"says its share":     {change: func(f *api.GPUFunction) { f.Spec.Resources.Share = &api.Share{SM: new(int64(24)), Memory: "1Gi"} }, none: true},
		"says its rate":      {change: func(f *api.GPUFunction) { f.Spec.Scaling.RequestsPerSecond = 32 }, none: true},
		"HTTP":               {change: func(f *api.GPUFunction) { f.Spec.Protocol = api.HTTP }, none: true},
		"HTTP, with a request": {change: func(f *api.GPUFunction) {
			f.Spec.Protocol, f.Spec.Request = api.HTTP, &api.ProfileRequest{Path: "/predict", Body: "{}"}
		}},
		"a request and a share": {change: func(f *api.GPUFunction) {
			f.Spec.Request, f.Spec.Resources.Share = &api.ProfileRequest{}, &api.Share{SM: new(int64(24)), Memory: "1Gi"}
		}, none: true},
		"not wanted":            {off: true, none: true},
		"a profile of its own":  {other: &api.GPUProfile{Spec: api.GPUProfileSpec{FunctionRef: &api.FunctionReference{Name: "resnet50"}, Memory: "2Gi"}}},
		"a profile of another":  {other: &api.GPUProfile{Spec: api.GPUProfileSpec{FunctionRef: &api.FunctionReference{Name: "bert"}}}, problem: "measures something else"},
		"a profile without one": {other: &api.GPUProfile{Spec: api.GPUProfileSpec{SLO: api.ProfileSLO{Latency: "1s"}}}, problem: "measures something else"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := function(t, nil)
				f.Spec.Resources.Share, f.Spec.Scaling, f.Spec.Protocol = nil, api.Scaling{MaxReplicas: new(4)}, api.OIP
				if test.change != nil {
					test.change(f)
				}
				c := newCluster(t, f, gpuNode(t, "node1"))
				c.known.profileUnasked = !test.off
				at := client.ObjectKeyFromObject(f)
				if test.other != nil {
					test.other.Namespace, test.other.Name = at.Namespace, at.Name
					test.other.Status.Recommended = &want
					if err := c.client.Create(t.Context(), test.other); err != nil {
						t.Fatal(err)
					}
				}
				c.run(true)
				look := func() known {
					t.Helper()
					if _, err := c.known.Reconcile(t.Context(), reconcile.Request{NamespacedName: at}); err != nil {
						t.Fatal(err)
					}
					return c.known.all()[gateway.FunctionName{Namespace: f.Namespace, Name: f.Name}]
				}
				k, p := look(), &api.GPUProfile{}
				err := c.client.Get(t.Context(), at, p)
				switch {
				case test.none:
					if !apierrors.IsNotFound(err) || k.profile != "" || len(c.known.functionsOf(t.Context(), &api.GPUProfile{ObjectMeta: f.ObjectMeta})) > 0 {
						t.Errorf("profile: %v, %+v", err, k)
					}
					return
				case test.problem != "":
					if got := c.recorded(); !strings.Contains(got, test.problem) || !k.unprofiled || k.profiled != nil {
						t.Errorf("event %q, %+v", got, k)
					}
					return
				case err != nil:
					t.Fatal(err)
				case test.other == nil && p.Spec.Remeasure != api.RemeasureNewImage:
					t.Errorf("it is not measured again for a new image: %+v", p.Spec)
				}
				if test.other == nil {
					if !metav1.IsControlledBy(p, f) || p.Spec.FunctionRef.Name != f.Name || !k.unprofiled || k.profile != f.Name {
						t.Errorf("%+v, %+v", p, k)
					}
					p.Status.Recommended = &want
					if err := c.client.Update(t.Context(), p); err != nil {
						t.Fatal(err)
					}
				}
				if found := c.known.functionsOf(t.Context(), p); len(found) != 1 || found[0].NamespacedName != at {
					t.Errorf("the profile is that of %v", found)
				}
				if k := look(); k.unprofiled || !cmp.Equal(k.profiled, &want) {
					t.Errorf("%+v", k)
				}
			})
		})
	}
}

// TestProfileRefused: if the API server refuses a function's profile, for example because of a ResourceQuota, the function is served nevertheless,
// and creating the profile is retried.
func TestProfileRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := function(t, func(f *api.GPUFunction) { f.Spec.ProfileRef = &api.ProfileReference{Name: "measured"} })
		c := newCluster(t, f, gpuNode(t, "node1"))
		c.calls.Create = func(ctx context.Context, w client.WithWatch, o client.Object, options ...client.CreateOption) error {
			if _, ok := o.(*api.GPUProfile); ok {
				return apierrors.NewForbidden(schema.GroupResource{Resource: "gpuprofiles"}, "measured", errors.New("exceeded quota"))
			}
			return w.Create(ctx, o, options...)
		}
		c.run(true)
		result, err := c.known.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(f)})
		if err != nil || result.RequeueAfter != objectPause {
			t.Errorf("looks again after %v, %v", result.RequeueAfter, err)
		}
		if name := (gateway.FunctionName{Namespace: f.Namespace, Name: f.Name}); !c.known.fleet.Has(name) || c.known.all()[name].profile != "measured" {
			t.Errorf("not served: %+v", c.known.all())
		}
		if got := c.recorded(); !strings.HasPrefix(got, "Warning NoProfile ") {
			t.Errorf("event %q", got)
		}
	})
}

// TestProfileOfTraining: the profile of a training has no effect on a function that names it.
func TestProfileOfTraining(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := function(t, nil)
		f.Spec.Resources.Share, f.Spec.Scaling, f.Spec.ProfileRef = nil, api.Scaling{}, &api.ProfileReference{Name: "train"}
		p := &api.GPUProfile{ObjectMeta: metav1.ObjectMeta{Namespace: f.Namespace, Name: "train"}, Spec: api.GPUProfileSpec{Training: &api.ProfileTraining{}}}
		p.Status.Recommended = &api.ProfileRecommendation{SM: 20, Quota: 100, Memory: "1152Mi", MaxBatch: 1, KernelsPerSecond: 1000}
		c := newCluster(t, f, p, gpuNode(t, "node1"))
		c.run(true)
		synctest.Wait()
		if _, err := c.known.takeProfile(t.Context(), f); err == nil || !strings.Contains(err.Error(), "measures a training") {
			t.Error(err)
		}
	})
}

// TestTakesLimit: a function gets an SM limit only from a bisection, which has measured that the SMs are of use, and not from other searches, which
// merely allow them.
func TestTakesLimit(t *testing.T) {
	for strategy, want := range map[api.ProfileStrategy]int64{api.Bisection: 40, api.HybridGrowth: 0} {
		t.Run(string(strategy), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := function(t, nil)
				f.Spec.Resources.Share, f.Spec.Scaling, f.Spec.ProfileRef = nil, api.Scaling{}, &api.ProfileReference{Name: "measured"}
				p := &api.GPUProfile{ObjectMeta: metav1.ObjectMeta{Namespace: f.Namespace, Name: "measured"}, Spec: api.GPUProfileSpec{Search: api.ProfileSearch{Strategy: strategy}}}
				p.Status.Recommended = &api.ProfileRecommendation{SM: 20, SMLimit: 40, Quota: 100, Memory: "1152Mi", MaxBatch: 1, RequestsPerSecond: 9}
				c := newCluster(t, f, p, gpuNode(t, "node1"))
				c.run(true)
				synctest.Wait()
				got, err := c.known.takeProfile(t.Context(), f)
				if err != nil || got.Status.Profiled.SMLimit != want || p.Status.Recommended.SMLimit != 40 {
					t.Fatalf("%+v, %v", got.Status.Profiled, err)
				}
				if complete, err := got.CompleteForCluster(0); err != nil || int64(complete.Share().SMLimit) != 10*min(max(want, 20), 30) {
					t.Errorf("%+v, %v", complete.Share(), err)
				}
			})
		})
	}
}

// TestShareText: a share is printed with its limits.
func TestShareText(t *testing.T) {
	for want, s := range map[string]fleet.Status{
		"":                {GPUs: 1},
		"24% x 40%":       {GPUs: 1, Share: share.Share{SMRequest: 240, SMLimit: 240, QuotaRequest: 400, QuotaLimit: 400}},
		"24% x 40%-80%":   {GPUs: 1, Share: share.Share{SMRequest: 240, SMLimit: 240, QuotaRequest: 400, QuotaLimit: 800}},
		"20%-40% x 100%":  {GPUs: 1, Share: share.Share{SMRequest: 200, SMLimit: 400, QuotaRequest: 1000, QuotaLimit: 1000}},
		"2 x 100% x 100%": {GPUs: 2, Share: share.Share{SMRequest: 1000, SMLimit: 1000, QuotaRequest: 1000, QuotaLimit: 1000}},
	} {
		if got := shareText(&s); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestRecommends: a function is reconciled for those changes of its profile that matter to it.
func TestRecommends(t *testing.T) {
	none, one, other := &api.GPUProfile{}, &api.GPUProfile{}, &api.GPUProfile{}
	one.Status.Recommended = &api.ProfileRecommendation{SM: 10}
	other.Status.Recommended = &api.ProfileRecommendation{SM: 20}
	for _, test := range []struct {
		before, now *api.GPUProfile
		want        bool
	}{{none, one, true}, {one, other, true}, {one, one.DeepCopy(), false}, {none, none, false}, {one, none, false}} {
		if got := recommends(test.before, test.now); got != test.want {
			t.Errorf("%+v, then %+v: %t", test.before.Status.Recommended, test.now.Status.Recommended, got)
		}
	}
}
