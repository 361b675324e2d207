package controller

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	autoscaling "k8s.io/api/autoscaling/v2"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/serving/gateway"
)

// scaler returns an autoscaler that is configured to scale an object of gshare's API group.
func scaler(name, kind, target string) *autoscaling.HorizontalPodAutoscaler {
	return &autoscaling.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: name},
		Spec: autoscaling.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscaling.CrossVersionObjectReference{APIVersion: api.APIVersion, Kind: kind, Name: target}, MaxReplicas: 3,
		},
	}
}

// TestForeignScalers finds the autoscalers that are configured to scale the function resnet50.
func TestForeignScalers(t *testing.T) {
	ours := function(t, nil)
	fp := fastPodOf(ours)
	others := fastPodOf(named(t, "bert"))
	alone := fastPod(1, 24)
	keda := scaler("keda-hpa-queue", api.FaSTPodKind, fp.Name)
	keda.OwnerReferences = []metav1.OwnerReference{{APIVersion: "keda.sh/v1alpha1", Kind: "ScaledObject", Name: "queue", UID: "so-1", Controller: new(true)}}
	elsewhere := scaler("cpu", api.FaSTPodKind, fp.Name)
	elsewhere.Namespace = "other"
	deployment := scaler("cpu", "Deployment", ours.Name)
	deployment.Spec.ScaleTargetRef.APIVersion = "apps/v1"
	sameKind := scaler("cpu", api.Kind, ours.Name)
	sameKind.Spec.ScaleTargetRef.APIVersion = "functions.example/v1"
	later := scaler("cpu", api.FaSTPodKind, fp.Name)
	later.Spec.ScaleTargetRef.APIVersion = "serving.gshare.dev/v1"
	for name, test := range map[string]struct {
		scaler *autoscaling.HorizontalPodAutoscaler
		want   string
	}{
		"its FaSTPod":              {scaler("cpu", api.FaSTPodKind, fp.Name), "HorizontalPodAutoscaler cpu is told to scale FaSTPod " + fp.Name},
		"another version":          {later, "HorizontalPodAutoscaler cpu is told to scale FaSTPod " + fp.Name},
		"the function":             {scaler("cpu", api.Kind, ours.Name), "HorizontalPodAutoscaler cpu is told to scale GPUFunction resnet50"},
		"KEDA":                     {keda, "ScaledObject queue is told to scale FaSTPod " + fp.Name},
		"a FaSTPod of another":     {scaler("cpu", api.FaSTPodKind, others.Name), ""},
		"a FaSTPod of a user":      {scaler("cpu", api.FaSTPodKind, alone.Name), ""},
		"a FaSTPod that is none":   {scaler("cpu", api.FaSTPodKind, "gone"), ""},
		"another function":         {scaler("cpu", api.Kind, "bert"), ""},
		"of another namespace":     {elsewhere, ""},
		"a Deployment":             {deployment, ""},
		"a kind of another group":  {sameKind, ""},
		"a target that is no name": {scaler("cpu", "", ""), ""},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, fp.DeepCopy(), others, alone.DeepCopy(), test.scaler)
			defer c.pods.queue.ShutDown()
			found, err := c.known.foreignScalers(t.Context(), ours)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, s := range found {
				got = append(got, s.String())
			}
			want := []string{test.want}
			if test.want == "" {
				want = nil
			}
			if !slices.Equal(got, want) {
				t.Errorf("%q, want %q", got, want)
			}
			asked := c.known.scaledBy(t.Context(), test.scaler)
			if looks := len(asked) == 1 && asked[0].NamespacedName == client.ObjectKeyFromObject(ours); looks != (test.want != "") {
				t.Errorf("has %v looked at", asked)
			}
			external := ours.DeepCopy()
			external.Spec.Scaling.Autoscaler = api.External
			if found, err := c.known.foreignScalers(t.Context(), external); err != nil || len(found) > 0 {
				t.Errorf("%v, %v of a function that others are to scale", found, err)
			}
		})
	}
}

// TestConflict: a function that is scaled by gshare and by another autoscaler reports that once, and continues to be scaled. The conflict ends when the
// other autoscaler is deleted.
func TestConflict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := function(t, func(f *api.GPUFunction) { f.Spec.Scaling.MinReplicas = 1 })
		cpu := scaler("cpu", api.FaSTPodKind, fastPodOf(f).Name)
		c := newCluster(t, f.DeepCopy())
		c.run(true)
		reconciled := func() *metav1.Condition {
			t.Helper()
			if _, err := c.known.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(f)}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Second)
			synctest.Wait()
			status := statusOf(api.GPUFunctionStatus{}, c.known.all()[gateway.FunctionName{Namespace: f.Namespace, Name: f.Name}], &c.known.fleet.Status()[0], backOff{}, "")
			return meta.FindStatusCondition(status.Conditions, api.ConditionScalingConflict)
		}
		conflicts := func() (n int) {
			for len(c.recorder.Events) > 0 {
				if e := <-c.recorder.Events; strings.Contains(e, "Warning ForeignScaler "+writtenAs(cpu).Kind+" cpu is told to scale FaSTPod "+fastPodOf(f).Name) {
					n++
				}
			}
			return n
		}
		if got := reconciled(); got != nil {
			t.Errorf("before there is the other autoscaler: %+v", got)
		}
		c.one()
		if err := c.client.Create(t.Context(), cpu); err != nil {
			t.Fatal(err)
		}
		for pass, events := range []int{1, 0} {
			got := reconciled()
			if got == nil || got.Status != metav1.ConditionTrue || got.Reason != "ForeignScaler" || !strings.HasPrefix(got.Message, "HorizontalPodAutoscaler cpu is told to scale FaSTPod") {
				t.Errorf("pass %d: %+v", pass, got)
			}
			if n := conflicts(); n != events {
				t.Errorf("pass %d: %d events, want %d", pass, n, events)
			}
		}
		if pod := c.one(); pod.Labels[api.LabelFunction] != f.Name {
			t.Errorf("pod %s", pod.Name)
		}
		if err := c.client.Delete(t.Context(), cpu); err != nil {
			t.Fatal(err)
		}
		if got := reconciled(); got != nil {
			t.Errorf("after it is gone: %+v", got)
		}
	})
}

func TestTargetChanged(t *testing.T) {
	before := scaler("cpu", api.FaSTPodKind, "a")
	status := before.DeepCopy()
	status.Status.CurrentReplicas = 2
	if targetChanged.Update(event.UpdateEvent{ObjectOld: before, ObjectNew: status}) {
		t.Error("its status has changed, and functions are looked at")
	}
	if !targetChanged.Update(event.UpdateEvent{ObjectOld: before, ObjectNew: scaler("cpu", api.FaSTPodKind, "b")}) {
		t.Error("its target has changed, and functions are not looked at")
	}
	if comeAndGone.Update(event.UpdateEvent{ObjectOld: &v1.Pod{}, ObjectNew: &v1.Pod{}}) || !comeAndGone.Create(event.CreateEvent{}) || !comeAndGone.Delete(event.DeleteEvent{}) {
		t.Error("want beginning and end")
	}
}
