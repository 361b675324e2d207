package controller

import (
	"context"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/serving/fleet"
)

func fastPod(replicas int32, sm int64) *api.FaSTPod {
	return &api.FaSTPod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: "bert"},
		Spec: api.FaSTPodSpec{
			Replicas: &replicas, Share: api.Share{SM: &sm, Memory: "1Gi"},
			Template: v1.PodTemplateSpec{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "server", Image: "bert"}}}},
		},
	}
}

// simulated returns a pod that was created at the given time.
func simulated(fp *api.FaSTPod, number int, created int, ready bool) *v1.Pod {
	p := standalonePod(fp, number)
	p.CreationTimestamp = metav1.Unix(int64(created), 0)
	if ready {
		p.Status = v1.PodStatus{PodIP: "10.0.0.1", Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}}}
	}
	return p
}

// missing returns a pod that was created at 0, was Ready, and has missed its probes since the given time.
func missing(fp *api.FaSTPod, number int, since int) *v1.Pod {
	p := simulated(fp, number, 0, true)
	p.Status.StartTime = new(metav1.Unix(0, 0))
	p.Status.Conditions[0].Status, p.Status.Conditions[0].LastTransitionTime = v1.ConditionFalse, metav1.Unix(int64(since), 0)
	return p
}

// TestNextStep: the step for some pods, 100 s after time 0.
func TestNextStep(t *testing.T) {
	now, before, broken := fastPod(2, 24), fastPod(2, 12), fastPod(2, 18)
	cheap := simulated(now, 1, 1, true)
	cheap.Annotations = map[string]string{deletionCost: "-5"}
	ended := simulated(now, 3, 3, false)
	ended.Status.Phase = v1.PodFailed
	going := simulated(now, 4, 4, true)
	going.DeletionTimestamp = new(metav1.Now())
	for name, test := range map[string]struct {
		pods   []*v1.Pod
		step   step
		victim string
		again  int // seconds
	}{
		"none":                      {nil, createPod, "", 0},
		"one":                       {[]*v1.Pod{simulated(now, 1, 1, true)}, createPod, "", 0},
		"all":                       {[]*v1.Pod{simulated(now, 1, 1, true), simulated(now, 2, 2, false)}, keepPods, "", 0},
		"one being deleted is none": {[]*v1.Pod{simulated(now, 1, 1, true), going}, createPod, "", 0},
		"one ended":                 {[]*v1.Pod{simulated(now, 1, 1, true), simulated(now, 2, 2, true), ended}, deletePod, "bert-3", 0},
		"too many: the youngest":    {[]*v1.Pod{simulated(now, 1, 1, true), simulated(now, 2, 3, true), simulated(now, 3, 2, true)}, deletePod, "bert-2", 0},
		"one that is not ready":     {[]*v1.Pod{simulated(now, 1, 1, false), simulated(now, 2, 3, true), simulated(now, 3, 2, true)}, deletePod, "bert-1", 0},
		"the cheapest":              {[]*v1.Pod{cheap, simulated(now, 2, 3, true), simulated(now, 3, 2, true)}, deletePod, "bert-1", 0},
		"another template: one of the new beside": {[]*v1.Pod{simulated(before, 1, 1, true), simulated(before, 2, 2, true)}, createPod, "", 0},
		"waits until it is ready":                 {[]*v1.Pod{simulated(before, 1, 1, true), simulated(before, 2, 2, true), simulated(now, 3, 3, false)}, keepPods, "", 0},
		"then an old one goes":                    {[]*v1.Pod{simulated(before, 1, 1, true), simulated(before, 2, 2, true), simulated(now, 3, 3, true)}, deletePod, "bert-2", 0},
		"an old one that never became ready goes": {[]*v1.Pod{simulated(before, 1, 1, true), simulated(before, 2, 2, true), simulated(broken, 3, 3, false)}, deletePod, "bert-3", 0},
		"before one of the new is created":        {[]*v1.Pod{simulated(broken, 1, 1, false)}, deletePod, "bert-1", 0},
		"one too many, all of another template":   {[]*v1.Pod{simulated(before, 1, 1, true), simulated(before, 2, 2, true), simulated(before, 3, 3, true)}, deletePod, "bert-3", 0},
		"even while a new one starts":             {[]*v1.Pod{simulated(before, 1, 1, false), simulated(before, 2, 2, true), simulated(now, 3, 3, false)}, deletePod, "bert-1", 0},
		"unless it has only missed a probe":       {[]*v1.Pod{missing(before, 1, 70), simulated(before, 2, 2, true), simulated(now, 3, 3, false)}, keepPods, "", 30},
		"one by one, the first to be given up":    {[]*v1.Pod{missing(before, 1, 80), missing(before, 2, 50), simulated(now, 3, 3, false)}, keepPods, "", 10},
		"or has missed many":                      {[]*v1.Pod{missing(before, 1, 70), missing(before, 2, 40), simulated(now, 3, 3, false)}, deletePod, "bert-2", 0},
		"one of the new misses a probe":           {[]*v1.Pod{simulated(before, 1, 1, true), simulated(before, 2, 2, true), missing(now, 3, 70)}, keepPods, "", 0},
		"the last old one":                        {[]*v1.Pod{simulated(before, 1, 1, true), simulated(now, 2, 2, true), simulated(now, 3, 3, true)}, deletePod, "bert-1", 0},
	} {
		t.Run(name, func(t *testing.T) {
			step, victim, again := nextStep(now, test.pods, time.Unix(100, 0))
			if step != test.step || victim != nil && victim.Name != test.victim || victim == nil && test.victim != "" || again != time.Duration(test.again)*time.Second {
				t.Errorf("step %d of %v, again in %v, want %d of %s, and %d s", step, victim, again, test.step, test.victim, test.again)
			}
		})
	}
}

// TestRollout replaces pods of random templates, which become ready at random times, except a pod of a broken template that some of the rollouts begin
// with; others begin with one pod too many. In half of the rollouts the present template is broken, too. Ready pods miss their probes at times, for less than fleet.Recovery. Once as many
// pods as wanted serve, there are never fewer, and never more than one pod too many. In the end, all pods have the present template if that works.
func TestRollout(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 0))
	for run := range 500 {
		wanted := int32(random.IntN(4))
		before, broken, now := fastPod(wanted, 12), fastPod(wanted, 18), fastPod(wanted, 24)
		works, blips := wanted == 0 || random.IntN(2) == 0, random.IntN(2) == 0
		var pods []*v1.Pod
		for n := range wanted {
			pods = append(pods, simulated(before, int(n)+1, 0, true))
		}
		switch random.IntN(3) {
		case 0:
			pods = append(pods, simulated(broken, 100, 0, false))
		case 1:
			pods = append(pods, simulated(before, 100, 0, true))
		}
		done := false
		for clock := 1; !done && clock <= 1000; clock++ {
			switch step, victim, _ := nextStep(now, pods, time.Unix(int64(clock), 0)); step {
			case createPod:
				pods = append(pods, simulated(now, 100+clock, clock, false))
			case deletePod:
				pods = slices.DeleteFunc(pods, func(p *v1.Pod) bool { return p == victim })
			case keepPods:
				waiting := slices.IndexFunc(pods, func(p *v1.Pod) bool { return p.Status.PodIP == "" })
				if waiting >= 0 && works {
					pods[waiting] = simulated(now, clock, clock, true)
				}
				done = waiting < 0 && !slices.ContainsFunc(pods, func(p *v1.Pod) bool { return !isReady(p) })
			}
			serving := 0
			for _, p := range pods {
				switch since := unreadySince(p); {
				case isReady(p) && blips && random.IntN(10) == 0:
					p.Status = missing(now, 1, clock).Status
				case !since.IsZero() && (random.IntN(20) == 0 || int64(clock)-since.Unix() >= 50):
					p.Status = simulated(now, 1, clock, true).Status
				}
				if p.Status.PodIP != "" {
					serving++
				}
			}
			if serving < int(wanted) || len(pods) > int(wanted)+1 {
				t.Fatalf("run %d: %d of %d pods serve, want %d (step %d)", run, serving, len(pods), wanted, clock)
			}
		}
		isLast := func(p *v1.Pod) bool { return p.Labels[api.LabelTemplate] == hashOf(&now.Spec) }
		if works && (!done || slices.ContainsFunc(pods, func(p *v1.Pod) bool { return !isLast(p) })) {
			t.Fatalf("run %d: an earlier template remains among %d pods", run, len(pods))
		}
	}
}

func TestFastPodStatus(t *testing.T) {
	fp := fastPod(2, 24)
	fp.Generation = 7
	s := fastPodStatus(fp, []*v1.Pod{simulated(fp, 1, 1, true), simulated(fp, 2, 2, false)})
	if s.Replicas != 2 || s.ReadyReplicas != 1 || s.Selector != "serving.gshare.dev/fastpod=bert" || s.ObservedGeneration != 7 || s.Residency.Hot != 2 {
		t.Errorf("%+v", s)
	}
	c := s.Conditions[0]
	if c.Status != metav1.ConditionFalse || c.Reason != "NotReady" || c.Message != "pod bert-2: waits for the scheduler" {
		t.Errorf("%+v", c)
	}
	s = fastPodStatus(fp, []*v1.Pod{simulated(fp, 1, 1, true), simulated(fp, 2, 2, true)})
	if c := s.Conditions[0]; c.Status != metav1.ConditionTrue || c.Reason != "AllReady" {
		t.Errorf("%+v", c)
	}
}

// reconcileFastPod runs the controller for a FaSTPod a number of times, and returns the last result.
func reconcileFastPod(c *cluster, fp *api.FaSTPod, steps int) (result reconcile.Result) {
	c.Helper()
	r := &fastPods{client: slimmed(c.client), live: c.client, quotas: c.pods.quotas, recorder: c.recorder}
	for range steps {
		var err error
		if result, err = r.Reconcile(c.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(fp)}); err != nil {
			c.Fatal(err)
		}
	}
	return result
}

func TestNameOfSomebodyElsesPod(t *testing.T) {
	fp := fastPod(2, 24)
	fp.UID = "fp-1"
	c := newCluster(t, fp, &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: "bert-1"}})
	defer c.pods.queue.ShutDown()
	reconcileFastPod(c, fp, 5)
	var names []string
	for _, p := range c.all() {
		names = append(names, p.Name)
	}
	if want := []string{"bert-1", "bert-2", "bert-3"}; !slices.Equal(names, want) {
		t.Errorf("pods %v, want %v", names, want)
	}
}

// TestPodWithoutItsLabel: a pod whose label was removed, as one does to look into a pod that fails, is no longer in the set, and another one is
// created in its place under another name.
func TestPodWithoutItsLabel(t *testing.T) {
	fp := fastPod(1, 24)
	fp.UID = "fp-1"
	removed := simulated(fp, 1, 0, true)
	delete(removed.Labels, api.LabelFaSTPod)
	c := newCluster(t, fp, removed)
	defer c.pods.queue.ShutDown()
	reconcileFastPod(c, fp, 3)
	var names []string
	for _, p := range c.all() {
		names = append(names, p.Name)
	}
	if want := []string{"bert-1", "bert-2"}; !slices.Equal(names, want) {
		t.Errorf("pods %v, want %v", names, want)
	}
}

// TestManyNamesOfSomebodyElsesPods: whoever makes pods with the names that a FaSTPod or a function may use costs the API server few requests, of which
// all share those of the controller, and a name is found beside a thousand of them.
func TestManyNamesOfSomebodyElsesPods(t *testing.T) {
	for name, test := range map[string]struct {
		others int
		pod    bool // is made
	}{
		"a thousand in a row": {1000, true},
		"all":                 {1 << 30, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fp, f := fastPod(1, 24), function(t, nil)
				fp.UID = "fp-1"
				c := newCluster(t, fp)
				defer c.pods.queue.ShutDown()
				creates := 0
				c.calls.Create = func(ctx context.Context, w client.WithWatch, o client.Object, options ...client.CreateOption) error {
					if _, is := o.(*v1.Pod); !is {
						return w.Create(ctx, o, options...)
					}
					creates++
					number, err := strconv.Atoi(o.GetName()[strings.LastIndexByte(o.GetName(), '-')+1:])
					if err == nil && number <= test.others {
						foreign := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: o.GetNamespace(), Name: o.GetName()}}
						if err := w.Create(ctx, foreign); err != nil {
							return err
						}
					}
					return w.Create(ctx, o, options...)
				}
				r := &fastPods{client: slimmed(c.client), live: c.client, quotas: c.pods.quotas, recorder: c.recorder}
				_, err := r.Reconcile(c.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(fp)})
				if (err == nil) != test.pod || creates > mostNames {
					t.Errorf("FaSTPod: error %v after %d requests", err, creates)
				}
				creates = 0
				i := &podInstance{Instance: instanceOfFunction(f, 1)}
				if err := c.pods.create(c.Context(), i); (err == nil) != test.pod || (i.uid != "") != test.pod || creates > mostNames {
					t.Errorf("function: error %v after %d requests", err, creates)
				}
			})
		})
	}
}

func TestPodsThatEndAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fp := fastPod(1, 24)
		fp.UID = "fp-1"
		ended := simulated(fp, 1, 0, false)
		ended.CreationTimestamp, ended.Status.Phase = metav1.Now(), v1.PodFailed
		c := newCluster(t, fp, ended)
		defer c.pods.queue.ShutDown()
		if r := reconcileFastPod(c, fp, 1); r.RequeueAfter != endedPause || len(c.all()) != 1 {
			t.Errorf("looks again after %v, %d pods: want that the pod stays for a while", r.RequeueAfter, len(c.all()))
		}
		time.Sleep(endedPause)
		if reconcileFastPod(c, fp, 1); len(c.all()) != 0 {
			t.Error("the pod that has ended is not replaced")
		}
	})
}

// TestPodThatMissesProbes: a pod of an earlier template that misses its probes is looked at again when it is to be given up, and then makes way.
func TestPodThatMissesProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before, now := fastPod(1, 12), fastPod(1, 24)
		before.UID, now.UID = "fp-1", "fp-1"
		c := newCluster(t, now, missing(before, 1, int(time.Now().Unix())), simulated(now, 2, 0, false))
		defer c.pods.queue.ShutDown()
		if r := reconcileFastPod(c, now, 1); r.RequeueAfter != fleet.Recovery || len(c.all()) != 2 {
			t.Errorf("looks again after %v, %d pods: want that both stay for a while", r.RequeueAfter, len(c.all()))
		}
		time.Sleep(fleet.Recovery)
		if reconcileFastPod(c, now, 1); c.one().Name != "bert-2" {
			t.Errorf("%s is left", c.one().Name)
		}
	})
}

// TestStandalonePodIsNoInstance: a standalone FaSTPod's pod with a function's label is a replica of a function that another autoscaler
// scales, and never an instance of the fleet.
func TestStandalonePodIsNoInstance(t *testing.T) {
	fp := fastPod(1, 24)
	fp.Spec.Template.Labels = map[string]string{api.LabelFunction: "chat", api.LabelInstance: "1", "team": "vision"}
	if p := standalonePod(fp, 1); p.Labels[api.LabelFunction] != "chat" || p.Labels[api.LabelInstance] != "" || p.Labels["team"] != "vision" {
		t.Errorf("labels %v", p.Labels)
	}
}
