package controller

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/serving/fleet"
	"github.com/gshare-dev/gshare/serving/gateway"
	"github.com/gshare-dev/gshare/serving/rules/tenancy"
	"github.com/gshare-dev/gshare/vgpu/kube"
)

// policy returns a SharePolicy that allows the pods of a namespace a number of replicas.
func policy(name, namespace string, replicas int32) *api.SharePolicy {
	return &api.SharePolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: api.SharePolicySpec{Tenants: []api.Tenant{{Namespace: namespace, MaxReplicas: &replicas}}},
	}
}

func named(t *testing.T, name string) *api.GPUFunction {
	return function(t, func(f *api.GPUFunction) { f.Name = name })
}

// recorded returns the next event of an object.
func (c *cluster) recorded() string {
	c.Helper()
	select {
	case e := <-c.recorder.Events:
		return e
	default:
		return "no event"
	}
}

// TestQuotaAtTheSameTime lets two functions grow before the API server has responded for either. The policy allows only one of them, and the other
// one once the first is gone.
func TestQuotaAtTheSameTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, policy("gold", "ml", 1))
		answer := make(chan struct{})
		c.calls.Create = func(ctx context.Context, w client.WithWatch, o client.Object, options ...client.CreateOption) error {
			if _, ok := o.(*v1.Pod); ok {
				<-answer
			}
			return w.Create(ctx, o, options...)
		}
		c.run(false)
		c.pods.Create(instanceOfFunction(named(t, "a"), 1))
		c.pods.Create(instanceOfFunction(named(t, "b"), 1))
		refused := c.event() // for the other function there is no response yet
		const why = "SharePolicy gold allows 1 replicas, of which 1 are held, and 1 more would be 1 too much"
		if refused.Kind != fleet.Starting || refused.Message != why {
			t.Fatalf("got %+v, want %s", refused, why)
		}
		if got, want := c.recorded(), "Warning QuotaExceeded Replica "+refused.Instance+" is not started: "+why; got != want {
			t.Errorf("%s\nwant %s", got, want)
		}
		close(answer)
		c.event()
		first := c.one()
		for range 3 {
			time.Sleep(quotaPause)
			synctest.Wait()
			c.one()
		}
		if got := c.recorded(); got != "no event" {
			t.Errorf("another event: %s", got)
		}
		name := gateway.FunctionName{Namespace: "ml", Name: strings.TrimSuffix(strings.TrimPrefix(refused.Instance, "ml/"), "-1")}
		if over := c.pods.quotas.overQuota(); len(over) != 1 || over[name] != "replica "+refused.Instance+": "+why {
			t.Errorf("over their quota: %v, want %s", over, name)
		}
		c.pods.quotas.handler(api.FaSTPodKind).OnAdd(first, false)
		if err := c.client.Delete(t.Context(), first); err != nil {
			t.Fatal(err)
		}
		c.pods.quotas.handler(api.FaSTPodKind).OnDelete(first)
		time.Sleep(quotaPause)
		if second := c.one(); second.Labels[api.LabelFunction] != name.Name {
			t.Errorf("pod of function %s, want %s", second.Labels[api.LabelFunction], name.Name)
		}
		if over := c.pods.quotas.overQuota(); len(over) != 0 {
			t.Errorf("over their quota: %v", over)
		}
	})
}

// TestQuotaLeavesNothing: no FaSTPod is kept for a replica that a policy does not allow, and the replica can be deleted.
func TestQuotaLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, policy("gold", "*", 0), policy("silver", "other", 9))
		c.run(false)
		c.pods.Create(instanceOfFunction(named(t, "a"), 1))
		c.event()
		list := &api.FaSTPodList{}
		if err := c.client.List(t.Context(), list); err != nil || len(list.Items) > 0 {
			t.Errorf("%d FaSTPods, %v", len(list.Items), err)
		}
		c.pods.Delete("ml/a-1")
		if e := c.event(); e.Kind != fleet.Gone {
			t.Errorf("got %+v, want that it is gone", e)
		}
		if over := c.pods.quotas.overQuota(); len(over) != 0 {
			t.Errorf("over their quota: %v", over)
		}
	})
}

// TestQuotaAnswers: what is counted for a pod is released at once if the API server refuses the pod, and, if it does not respond, once the pod turns
// out not to exist.
func TestQuotaAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fp := fastPod(9, 24)
		fp.UID = "fp-1"
		c := newCluster(t, policy("gold", "ml", 1))
		defer c.pods.queue.ShutDown()
		q := c.pods.quotas
		var answer error
		c.calls.Create = func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error { return answer }
		create := func(number int) error { return q.Create(t.Context(), standalonePod(fp, number)) }
		answer = apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "bert-1", nil)
		for range 2 {
			if err := create(1); !apierrors.IsForbidden(err) {
				t.Fatal(err)
			}
		}
		answer = apierrors.NewTimeoutError("no answer", 1)
		if err := create(1); !apierrors.IsTimeout(err) {
			t.Fatal(err)
		}
		if err := create(2); OverQuota(err) == "" {
			t.Errorf("%v, want that the first one may be there", err)
		}
		if err := create(1); OverQuota(err) != "" {
			t.Errorf("tried again, it is in its own way: %v", err)
		}
		q.confirm(t.Context())
		if err := create(2); OverQuota(err) == "" {
			t.Errorf("%v, want that the request may still be on its way", err)
		}
		time.Sleep(confirmPause + time.Second)
		q.confirm(t.Context())
		if answer = nil; create(2) != nil {
			t.Error("what is not there is in the way")
		}
	})
}

// TestQuotaCounts: pods of FaSTPods, also of deleted ones, are counted according to their specification, not their annotations.
func TestQuotaCounts(t *testing.T) {
	fp := fastPod(1, 24)
	fp.UID = "fp-1"
	counted := standalonePod(fp, 1)
	counted.UID = "1"
	lying := counted.DeepCopy()
	lying.Annotations = map[string]string{"gshare.dev/quota-limit": "nonsense"}
	orphaned := counted.DeepCopy() // kubectl delete --cascade=orphan
	orphaned.OwnerReferences = nil
	free := orphaned.DeepCopy()
	free.Labels = nil
	ended := counted.DeepCopy()
	ended.Status.Phase = v1.PodSucceeded
	all := tenancy.Amount{Replicas: 1, Area: 240 * 1000, Memory: 1024}
	digest := "sha256:" + strings.Repeat("a", 64)
	declaring := counted.DeepCopy()
	declaring.Annotations = map[string]string{kube.AnnotationWeights: digest + "=100Mi"}
	loaded := all
	loaded.Memory += 100
	placed := declaring.DeepCopy() // later the user removes the declaration
	placed.Annotations = map[string]string{kube.AnnotationPlacement: `{"v":1,"node":"n","uid":"1","model":"slots","containers":[{"name":"` +
		placed.Spec.Containers[0].Name + `","vgpus":[{"slice":"g","class":"mps","priority":"slo","sm":240,"quota":1000,"memory":1073741824}]}],` +
		`"weights":[{"digest":"` + digest + `","memory":104857600}]}`}
	for name, test := range map[string]struct {
		then *v1.Pod
		want tenancy.Amount
	}{
		"as it is": {counted, all}, "with an annotation": {lying, all},
		"with weights": {declaring, loaded}, "placed with weights": {placed, loaded}, "orphaned": {orphaned, all}, "of nobody": {free, tenancy.Amount{}}, "ended": {ended, tenancy.Amount{}},
	} {
		t.Run(name, func(t *testing.T) {
			q := NewQuotas(nil, nil)
			q.handler(api.FaSTPodKind).OnAdd(counted, true)
			q.handler(api.FaSTPodKind).OnUpdate(counted, test.then)
			if got := q.account.Held("ml"); got != test.want {
				t.Errorf("held %+v, want %+v", got, test.want)
			}
			again := test.then.DeepCopy()
			again.UID = "2"
			if text, is := again.Annotations[kube.AnnotationPlacement]; is {
				again.Annotations[kube.AnnotationPlacement] = strings.Replace(text, `"uid":"1"`, `"uid":"2"`, 1)
			}
			q.handler(api.FaSTPodKind).OnUpdate(test.then, again)
			if got := q.account.Held("ml"); got != test.want {
				t.Errorf("made again, held %+v, want %+v", got, test.want)
			}
			q.handler(api.FaSTPodKind).OnDelete(again)
			if got := q.account.Held("ml"); got != (tenancy.Amount{}) {
				t.Errorf("held %+v in the end", got)
			}
		})
	}
}

// TestQuotaOfTrials: of a GPUProfile's pods, those of servers are counted, also once the profile is deleted without them, and those of clients are not.
func TestQuotaOfTrials(t *testing.T) {
	profile := &api.GPUProfile{ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: "bert", UID: "profile"}}
	server := standalonePod(fastPod(1, 24), 1)
	server.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(profile, api.GroupVersion.WithKind(api.ProfileKind))}
	server.UID = "server"
	sends := server.DeepCopy()
	sends.Name, sends.UID, sends.Spec = "sends", "sends", v1.PodSpec{Containers: []v1.Container{{Name: "client"}}}
	q := NewQuotas(nil, nil)
	trials, functions := q.handler(api.ProfileKind), q.handler(api.FaSTPodKind)
	trials.OnAdd(server, true)
	trials.OnAdd(sends, true)
	functions.OnAdd(server, true) // its template has the labels of both
	functions.OnDelete(server)
	if got, want := q.account.Held("ml"), (tenancy.Amount{Replicas: 1, Area: 240 * 1000, Memory: 1024}); got != want {
		t.Errorf("held %+v, want %+v", got, want)
	}
	orphaned := server.DeepCopy()
	orphaned.OwnerReferences, orphaned.Labels = nil, map[string]string{api.LabelProfile: profile.Name}
	trials.OnUpdate(server, orphaned)
	if got, want := q.account.Held("ml"), (tenancy.Amount{Replicas: 1, Area: 240 * 1000, Memory: 1024}); got != want {
		t.Errorf("without its profile, held %+v, want %+v", got, want)
	}
	ended := orphaned.DeepCopy()
	ended.Status.Phase = v1.PodFailed
	trials.OnUpdate(orphaned, ended)
	if got := q.account.Held("ml"); got != (tenancy.Amount{}) {
		t.Errorf("held %+v in the end", got)
	}
}

// TestQuotaOfSidecars: whatever a template requests in addition to the share is counted, no matter what its annotations make the scheduler do.
func TestQuotaOfSidecars(t *testing.T) {
	sidecar := func(limits v1.ResourceList) func(*v1.PodTemplateSpec) {
		return func(template *v1.PodTemplateSpec) {
			template.Spec.InitContainers = []v1.Container{{
				Name: "greedy", Image: "greedy", RestartPolicy: new(v1.ContainerRestartPolicyAlways), Resources: v1.ResourceRequirements{Limits: limits},
			}}
		}
	}
	annotated := func(name, value string, change func(*v1.PodTemplateSpec)) func(*v1.PodTemplateSpec) {
		return func(template *v1.PodTemplateSpec) {
			change(template)
			setAnnotation(&template.ObjectMeta, name, value)
		}
	}
	number := func(n int64) resource.Quantity { return *resource.NewQuantity(n, resource.DecimalSI) }
	half := sidecar(v1.ResourceList{kube.ResourceSM: number(100), kube.ResourceVGPU: number(2), kube.ResourceMemory: number(2000)})
	const whole, share = 1000 * 1000, 240 * 1000
	for name, test := range map[string]struct {
		change func(*v1.PodTemplateSpec)
		want   tenancy.Amount
	}{
		"nothing beside":       {func(*v1.PodTemplateSpec) {}, tenancy.Amount{Replicas: 1, Area: share, Memory: 1024}},
		"two halves":           {half, tenancy.Amount{Replicas: 1, Area: share + whole, Memory: 3024}},
		"two exclusive halves": {annotated(kube.AnnotationIsolation, "exclusive", half), tenancy.Amount{Replicas: 1, Area: 3 * whole, Memory: 3024}},
		"alone on a GPU": {
			annotated(kube.AnnotationIsolation, "exclusive", func(*v1.PodTemplateSpec) {}), tenancy.Amount{Replicas: 1, Area: whole, Memory: 1024},
		},
		"memory by an annotation": {
			annotated(kube.AnnotationMemory, "80Gi", sidecar(v1.ResourceList{kube.ResourceSM: number(100)})),
			tenancy.Amount{Replicas: 1, Area: share + whole, Memory: 1024 + 80*1024},
		},
		"what no node has": {sidecar(v1.ResourceList{kube.ResourceSM: number(-1)}), tenancy.Amount{Replicas: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			fp := fastPod(1, 24)
			test.change(&fp.Spec.Template)
			if got := amountOf(standalonePod(fp, 1)); got != test.want {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
	}
}

func TestQuotaOfUnknownPods(t *testing.T) {
	c := newCluster(t)
	defer c.pods.queue.ShutDown()
	c.pods.quotas.synced = append(c.pods.quotas.synced, func() bool { return false })
	if err := c.pods.quotas.Create(t.Context(), standalonePod(fastPod(1, 24), 1)); err == nil || len(c.all()) > 0 {
		t.Errorf("%v, and %d pods: want none before those that there are are known", err, len(c.all()))
	}
}

// TestQuotaOfFastPods: a user's FaSTPod gets as many pods as the policy allows, and reports why it gets no more.
func TestQuotaOfFastPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fp := fastPod(3, 24)
		fp.UID = "fp-1"
		c := newCluster(t, fp, policy("gold", "ml", 2))
		defer c.pods.queue.ShutDown()
		if r := reconcileFastPod(c, fp, 6); r.RequeueAfter != quotaPause || len(c.all()) != 2 {
			t.Errorf("%d pods, and looks again after %v", len(c.all()), r.RequeueAfter)
		}
		status := func() *metav1.Condition {
			now := &api.FaSTPod{}
			if err := c.client.Get(t.Context(), client.ObjectKeyFromObject(fp), now); err != nil {
				t.Fatal(err)
			}
			return meta.FindStatusCondition(now.Status.Conditions, api.ConditionQuotaExceeded)
		}
		const why = "SharePolicy gold allows 2 replicas, of which 2 are held, and 1 more would be 1 too much"
		if over := status(); over == nil || over.Status != metav1.ConditionTrue || over.Message != why {
			t.Errorf("%+v, want %s", over, why)
		}
		var said []string
		for len(c.recorder.Events) > 0 {
			if e := <-c.recorder.Events; strings.Contains(e, "QuotaExceeded") {
				said = append(said, e)
			}
		}
		if want := "Warning QuotaExceeded Pod bert-3 is not created: " + why; len(said) != 1 || said[0] != want {
			t.Errorf("events %q, want one: %s", said, want)
		}
		if err := c.client.Delete(t.Context(), policy("gold", "ml", 2)); err != nil {
			t.Fatal(err)
		}
		if reconcileFastPod(c, fp, 2); len(c.all()) != 3 || status() != nil {
			t.Errorf("%d pods without the policy, %+v", len(c.all()), status())
		}
	})
}

// TestQuotaOfBrokenPod: a pod that was never Ready and holds all that the policy allows makes way for one of the corrected template.
func TestQuotaOfBrokenPod(t *testing.T) {
	broken, fp := fastPod(1, 12), fastPod(1, 24)
	broken.UID, fp.UID = "fp-1", "fp-1"
	pod := simulated(broken, 1, 0, false)
	pod.UID = "pod-1"
	c := newCluster(t, fp, policy("gold", "ml", 1), pod)
	defer c.pods.queue.ShutDown()
	c.pods.quotas.handler(api.FaSTPodKind).OnAdd(pod, false)
	if reconcileFastPod(c, fp, 1); len(c.all()) != 0 {
		t.Fatalf("%d pods, want none before the next is created", len(c.all()))
	}
	c.pods.quotas.handler(api.FaSTPodKind).OnDelete(pod)
	if reconcileFastPod(c, fp, 1); len(c.all()) != 1 || c.all()[0].Labels[api.LabelTemplate] != hashOf(&fp.Spec) {
		t.Errorf("%d pods, want one of the corrected template", len(c.all()))
	}
}

func TestPolicyStatus(t *testing.T) {
	p := policy("gold", "ml", 2)
	p.Generation = 3
	c := newCluster(t, p)
	defer c.pods.queue.ShutDown()
	fp := fastPod(3, 24)
	fp.UID = "fp-1"
	reconciled := func() api.SharePolicyStatus {
		t.Helper()
		r, err := (&policies{client: c.client, quotas: c.pods.quotas}).Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: "gold"}})
		if err != nil || r.RequeueAfter != policyPeriod {
			t.Fatal(r, err)
		}
		now := &api.SharePolicy{}
		if err := c.client.Get(t.Context(), client.ObjectKey{Name: "gold"}, now); err != nil {
			t.Fatal(err)
		}
		return now.Status
	}
	if s := reconciled(); s.ObservedGeneration != 3 || s.Namespaces != 0 || s.Memory != "0Mi" || meta.IsStatusConditionTrue(s.Conditions, api.ConditionExceeded) {
		t.Errorf("without pods: %+v", s)
	}
	for number := range 3 { // before the policy existed
		pod := standalonePod(fp, number)
		pod.UID = types.UID(pod.Name)
		c.pods.quotas.handler(api.FaSTPodKind).OnAdd(pod, false)
	}
	s := reconciled()
	if s.Namespaces != 1 || s.Replicas != 3 || s.SMPercent != 72 || s.Memory != "3072Mi" {
		t.Errorf("%+v, want 3 replicas with 72%% and 3072Mi", s)
	}
	const why = "namespace ml: SharePolicy gold allows 2 replicas, and 3 are held: 1 too much"
	if over := meta.FindStatusCondition(s.Conditions, api.ConditionExceeded); over == nil || over.Status != metav1.ConditionTrue || over.Message != why || over.ObservedGeneration != 3 {
		t.Errorf("%+v, want %s", over, why)
	}
}
