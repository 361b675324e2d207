package controller

import (
	"context"
	"fmt"
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

	api "github.com/gshare-dev/gshare/vgpu/api/serving/v1alpha1"
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
	}{
		"none":                      {nil, createPod, ""},
		"one":                       {[]*v1.Pod{simulated(now, 1, 1, true)}, createPod, ""},
		"all":                       {[]*v1.Pod{simulated(now, 1, 1, true), simulated(now, 2, 2, false)}, keepPods, ""},
		"one being deleted is none": {[]*v1.Pod{simulated(now, 1, 1, true), going}, createPod, ""},
		"one ended":                 {[]*v1.Pod{simulated(now, 1, 1, true), simulated(now, 2, 2, true), ended}, deletePod, "bert-3"},
		"too many: the youngest":    {[]*v1.Pod{simulated(now, 1, 1, true), simulated(now, 2, 3, true), simulated(now, 3, 2, true)}, deletePod, "bert-2"},
		"one that is not ready":     {[]*v1.Pod{simulated(now, 1, 1, false), simulated(now, 2, 3, true), simulated(now, 3, 2, true)}, deletePod, "bert-1"},
		"the cheapest":              {[]*v1.Pod{cheap, simulated(now, 2, 3, true), simulated(now, 3, 2, true)}, deletePod, "bert-1"},
		"another template: one of the new beside": {[]*v1.Pod{simulated(before, 1, 1, true), simulated(before, 2, 2, true)}, createPod, ""},
		"waits until it is ready":                 {[]*v1.Pod{simulated(before, 1, 1, true), simulated(before, 2, 2, true), simulated(now, 3, 3, false)}, keepPods, ""},
		"then an old one goes":                    {[]*v1.Pod{simulated(before, 1, 1, true), simulated(before, 2, 2, true), simulated(now, 3, 3, true)}, deletePod, "bert-2"},
		"an old one that never became ready goes": {[]*v1.Pod{simulated(before, 1, 1, true), simulated(before, 2, 2, true), simulated(broken, 3, 3, false)}, deletePod, "bert-3"},
		"even while a new one starts":             {[]*v1.Pod{simulated(before, 1, 1, false), simulated(before, 2, 2, true), simulated(now, 3, 3, false)}, deletePod, "bert-1"},
		"the last old one":                        {[]*v1.Pod{simulated(before, 1, 1, true), simulated(now, 2, 2, true), simulated(now, 3, 3, true)}, deletePod, "bert-1"},
	} {
		t.Run(name, func(t *testing.T) {
			step, victim := nextStep(now, test.pods)
			if step != test.step || victim != nil && victim.Name != test.victim || victim == nil && test.victim != "" {
				t.Errorf("step %d of %v, want %d of %s", step, victim, test.step, test.victim)
			}
		})
	}
}

// TestRollout replaces pods of random templates, which become ready at random times, except a pod of a broken template that half of the rollouts begin
// with. Once there are as many ready pods as wanted, there are never fewer, and never more than one pod too many. In the end, all pods have the current
// template.
func TestRollout(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 0))
	for run := range 500 {
		wanted := int32(random.IntN(4))
		before, broken, now := fastPod(wanted, 12), fastPod(wanted, 18), fastPod(wanted, 24)
		var pods []*v1.Pod
		for n := range wanted {
			pods = append(pods, simulated(before, int(n)+1, 0, true))
		}
		if wanted > 0 && random.IntN(2) == 0 {
			pods = append(pods, simulated(broken, 100, 0, false))
		}
		for clock := 1; ; clock++ {
			switch step, victim := nextStep(now, pods); step {
			case createPod:
				pods = append(pods, simulated(now, 100+clock, clock, false))
			case deletePod:
				pods = slices.DeleteFunc(pods, func(p *v1.Pod) bool { return p == victim })
			case keepPods:
				waiting := slices.IndexFunc(pods, func(p *v1.Pod) bool { return !isReady(p) && p.Labels[api.LabelTemplate] == hashOf(&now.Spec) })
				if waiting < 0 {
					clock = 1 << 30
					break
				}
				pods[waiting] = simulated(now, clock, clock, true)
			}
			ready := 0
			for _, p := range pods {
				if isReady(p) {
					ready++
				}
			}
			if ready < int(wanted) || len(pods) > int(wanted)+1 || clock < 1<<30 && clock > 100 {
				t.Fatalf("run %d: %d of %d pods are ready, want %d (step %d)", run, ready, len(pods), wanted, clock)
			}
			if clock >= 1<<30 {
				break
			}
		}
		for _, p := range pods {
			if p.Labels[api.LabelTemplate] != hashOf(&now.Spec) {
				t.Fatalf("run %d: an earlier template remains: %s", run, fmt.Sprint(p.Labels))
			}
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

// TestStandalonePodIsNoInstance: a standalone FaSTPod's pod with a function's label is a replica of a function that another autoscaler
// scales, and never an instance of the fleet.
func TestStandalonePodIsNoInstance(t *testing.T) {
	fp := fastPod(1, 24)
	fp.Spec.Template.Labels = map[string]string{api.LabelFunction: "chat", api.LabelInstance: "1", "team": "vision"}
	if p := standalonePod(fp, 1); p.Labels[api.LabelFunction] != "chat" || p.Labels[api.LabelInstance] != "" || p.Labels["team"] != "vision" {
		t.Errorf("labels %v", p.Labels)
	}
}
