package planner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/test/tracker"
	"github.com/gshare-dev/gshare/vgpu/share"
)

const profiles = `models:
- name: vision
  cpu:
    mean: [{alpha: 2.6, beta: 0.45, gamma: 0.21}]
    p99: [{alpha: 3.1, beta: 0.45, gamma: 0.27}]
    memoryMiB: {slope: 40, intercept: 700}
  share:
    curves:
    - {sm: 120, exclusive: {slope: 0.0060, intercept: 0.0030}}
    - {sm: 240, exclusive: {slope: 0.0033, intercept: 0.0027}}
    - {sm: 500, exclusive: {slope: 0.0018, intercept: 0.0025}}
    tail: {slope: 1.1, intercept: 0}
    window: 0.1
    memoryMiB: {slope: 30, intercept: 1500}
    maxBatch: 16
`

// otherModes are more latencies of the model.
const otherModes = `  gpu:
    exclusive: {slope: 0.0018, intercept: 0.0025}
    tail: {slope: 1.2, intercept: 0}
    cardGB: 24
    timeSlice: 0.002
    memoryMiB: {slope: 30, intercept: 600}
    hostMemoryMiB: {slope: 0, intercept: 512}
    maxBatch: 32
  partitioned:
    stages:
    - workers:
      - {mean: [{alpha: 0.6, beta: 0.4, gamma: 0.05}], p99: [{alpha: 0.7, beta: 0.4, gamma: 0.06}], memoryMiB: {slope: 30, intercept: 150}}
      - {mean: [{alpha: 0.6, beta: 0.4, gamma: 0.05}], p99: [{alpha: 0.7, beta: 0.4, gamma: 0.06}], memoryMiB: {slope: 30, intercept: 150}}
    - workers:
      - {mean: [{alpha: 0.9, beta: 0.4, gamma: 0.07}], p99: [{alpha: 1.1, beta: 0.4, gamma: 0.09}], memoryMiB: {slope: 20, intercept: 400}}
    transfer: {slope: 0.004, intercept: 0.012}
    master: {milliCPU: 100, memoryMiB: 128}
`

const prices = `source: a test
prices:
  currency: USD
  nanoPerVCPUSecond: 16000
  nanoPerGBSecond: 2400
  nanoPerCall: 120
  nanoPerSliceSecond: 500000
  nanoPerSliceGBSecond: 1500
`

// otherPrices are more prices.
const otherPrices = "  nanoPerGPUGBSecond: 34000\n"

// cluster is what the planner sees and writes.
type cluster struct {
	client   client.Client
	planner  *Planner
	releaser *Releaser
	events   *events.FakeRecorder
	running  map[string]*Running
	writes   int
	ends     int // the write after which the planner ends, which does not learn of it
}

// start returns a cluster with a plan for the functions checkout and search, which have objectives of 250 ms and 1 s.
func start(t *testing.T, change func(p *api.InferencePlan, data map[string]string)) *cluster {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := clientscheme.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	if err := api.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	plan := &api.InferencePlan{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: "vision", UID: "1", Generation: 1},
		Spec: api.InferencePlanSpec{
			Model: "vision", Functions: []api.PlannedFunction{{Name: "checkout"}, {Name: "search"}}, Modes: []api.ExecutionMode{api.ModeShare}, Mode: api.Recommend,
			Profiles: api.DataReference{ConfigMap: "data", Key: "profiles.yaml"}, Prices: api.DataReference{ConfigMap: "data", Key: "prices.yaml"},
		},
	}
	data := map[string]string{"profiles.yaml": profiles, "prices.yaml": prices}
	if change != nil {
		change(plan, data)
	}
	c := &cluster{running: map[string]*Running{}, events: events.NewFakeRecorder(10)}
	function := func(name string, slo api.Duration) *api.GPUFunction {
		return &api.GPUFunction{ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: name}, Spec: api.GPUFunctionSpec{SLO: api.SLO{Latency: slo}}}
	}
	c.client = fake.NewClientBuilder().WithScheme(scheme).WithObjectTracker(tracker.New(scheme)).WithStatusSubresource(plan, &api.GPUFunction{}).
		WithObjects(plan, function("checkout", "250ms"), function("search", "1s"),
			&v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: "data", Labels: map[string]string{api.LabelPlanData: ""}}, Data: data},
			&v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: "private"}, Data: map[string]string{"secret": "hush: hush"}}).Build()
	c.restart()
	return c
}

// errEnds is what a planner gets that ends.
var errEnds = errors.New("the process ends")

// restart starts a planner, as the next leader does. It may write the status of objects alone.
func (c *cluster) restart() {
	none := func(what string) error { return fmt.Errorf("the planner must not %s", what) }
	only := interceptor.NewClient(c.client.(client.WithWatch), interceptor.Funcs{
		Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
			return none("create")
		},
		Delete: func(context.Context, client.WithWatch, client.Object, ...client.DeleteOption) error {
			return none("delete")
		},
		Update: func(context.Context, client.WithWatch, client.Object, ...client.UpdateOption) error {
			return none("update")
		},
		Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
			return none("patch")
		},
		SubResourcePatch: func(ctx context.Context, inner client.Client, _ string, o client.Object, p client.Patch, options ...client.SubResourcePatchOption) error {
			err := inner.Status().Patch(ctx, o, p, options...)
			if c.writes++; c.writes == c.ends {
				return errEnds
			}
			return err
		},
	})
	c.releaser = NewReleaser(only, c.events)
	c.planner = New(only, func(of types.NamespacedName) Running {
		if r := c.running[of.Name]; r != nil && of.Namespace == "ml" {
			return *r
		}
		return Running{}
	}, c.events)
}

// pass lets time pass in which the functions get requests at rates.
func (c *cluster) pass(t *testing.T, d time.Duration, rates map[string]float64) *api.InferencePlan {
	t.Helper()
	key := types.NamespacedName{Namespace: "ml", Name: "vision"}
	for passed := time.Duration(0); passed < d; passed += period {
		time.Sleep(period)
		for name, rate := range rates {
			if c.running[name] == nil {
				c.running[name] = &Running{}
			}
			c.running[name].Received += uint64(rate * period.Seconds())
		}
		c.follow(t)
		if result, err := c.planner.Reconcile(t.Context(), reconcile.Request{NamespacedName: key}); err != nil || result.RequeueAfter != period {
			t.Fatal(result, err)
		}
	}
	got := &api.InferencePlan{}
	if err := c.client.Get(t.Context(), key, got); err != nil {
		t.Fatal(err)
	}
	return got
}

// follow lets hosts serve, as the fleet does.
func (c *cluster) follow(t *testing.T) {
	t.Helper()
	list := &api.GPUFunctionList{}
	if err := c.client.List(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	for i := range list.Items {
		if f := &list.Items[i]; f.Status.Host != f.Status.ServedBy {
			f.Status.Host = f.Status.ServedBy
			if err := c.client.Status().Update(t.Context(), f); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// edit changes an object.
func edit[T client.Object](t *testing.T, c *cluster, name string, o T, change func(T)) {
	t.Helper()
	if err := c.client.Get(t.Context(), client.ObjectKey{Namespace: "ml", Name: name}, o); err != nil {
		t.Fatal(err)
	}
	change(o)
	if err := c.client.Update(t.Context(), o); err != nil {
		t.Fatal(err)
	}
}

func reason(p *api.InferencePlan) string {
	if c := meta.FindStatusCondition(p.Status.Conditions, api.ConditionPlanned); c != nil {
		return string(c.Status) + " " + c.Reason + ": " + c.Message
	}
	return ""
}

func names(p *api.InferencePlan) string {
	var all []string
	for _, g := range p.Status.Groups {
		for _, f := range g.Functions {
			all = append(all, f.Name+"="+f.RequestsPerSecond)
		}
		all = append(all, "/")
	}
	return strings.Join(all, " ")
}

var usual = map[string]float64{"checkout": 2, "search": 12}

// TestRecommend: once the rates are known for as long as the plan says, it has groups, sizes, batches, costs and predicted misses; and nothing but
// its status is written, rarely.
func TestRecommend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, nil)
		whole := share.Share{SMRequest: 1000, QuotaRequest: 1000, Memory: 2 << 30}
		half := share.Share{SMRequest: 500, QuotaRequest: 1000, Memory: 2 << 30}
		c.running["checkout"] = &Running{Replicas: []share.Share{whole, half, half, {Memory: 2 << 30}}}
		if got := c.pass(t, 55*time.Second, usual); !strings.Contains(reason(got), "False RateUnknown: the rate of checkout is not known for 1m0s yet") || len(got.Status.Groups) > 0 {
			t.Errorf("%s, groups %v", reason(got), got.Status.Groups)
		}
		got := c.pass(t, 15*time.Second, usual)
		if !strings.HasPrefix(reason(got), "True Planned: first plan") {
			t.Fatal(reason(got))
		}
		s := got.Status
		if names(got) != "checkout=2 search=12 /" || s.GroupCount != 1 || s.ObservedGeneration != 1 {
			t.Errorf("groups %s", names(got))
		}
		g := s.Groups[0]
		if g.Mode != api.ModeShare || g.Share == nil || !slices.Contains([]int64{12, 24, 50}, *g.Share.SM) || g.Replicas < 1 || g.Batch < 1 || g.P99.Value() <= 0 || g.P99.Value() > 250*time.Millisecond {
			t.Errorf("group %+v", g)
		}
		// A whole GPU and two halves with 2 GiB each, and the memory of one in reserve: (2*500000+4*3000)*3600/1e9.
		if s.Cost.Now != "3.64" || s.Cost.Currency != "USD" || number(s.Cost.Planned) <= 0 || number(s.Cost.Separate) < number(s.Cost.Planned) || !strings.HasSuffix(s.Cost.Saving, "%") || s.Cost.Saving[0] == '-' {
			t.Errorf("cost %+v", s.Cost)
		}
		if s.Misses == "" || number(strings.TrimSuffix(s.Misses, "%")) > 3 {
			t.Errorf("misses %s", s.Misses)
		}
		before := c.writes
		if c.pass(t, time.Hour, usual); c.writes > before {
			t.Errorf("%d writes in an hour without a change", c.writes-before)
		}
	})
}

// TestDriftReplans: a rate that stays higher is planned for after as long as the plan says, not before; and one that does not is not.
func TestDriftReplans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, nil)
		first := c.pass(t, 2*time.Minute, usual)
		c.pass(t, 45*time.Second, map[string]float64{"checkout": 2, "search": 40})
		peak := c.pass(t, 3*time.Minute, usual)
		if names(peak) != names(first) || !peak.Status.PlannedAt.Equal(&first.Status.PlannedAt) {
			t.Errorf("planned again for a peak: %s", names(peak))
		}
		if early := c.pass(t, 2*time.Minute, map[string]float64{"checkout": 2, "search": 80}); names(early) != names(first) {
			t.Errorf("planned again too early: %s", names(early))
		}
		more := c.pass(t, 30*time.Second, map[string]float64{"checkout": 2, "search": 80})
		if more.Status.Because != "the rate of search went from 12 to 80 a second" || !strings.Contains(names(more), "search=80") {
			t.Fatalf("%s: %s", more.Status.Because, names(more))
		}
		if number(more.Status.Cost.Planned) <= number(first.Status.Cost.Planned) {
			t.Errorf("%s/h for more requests than for %s/h", more.Status.Cost.Planned, first.Status.Cost.Planned)
		}
		if idle := c.pass(t, 5*time.Minute, nil); !strings.Contains(reason(idle), "False NoRequests") || len(idle.Status.Groups) > 0 {
			t.Errorf("without requests: %s, %s", reason(idle), names(idle))
		}
	})
}

// TestChangesReplan: an objective, a profile, a price, a function or a rate that somebody has set is planned for at once.
func TestChangesReplan(t *testing.T) {
	for name, test := range map[string]struct {
		change func(t *testing.T, c *cluster)
		want   string // part of the reason
	}{
		"objective": {func(t *testing.T, c *cluster) {
			edit(t, c, "search", &api.GPUFunction{}, func(f *api.GPUFunction) { f.Spec.SLO.Latency = "2s" })
		}, "the objective of search went from 1 s to 2 s"},
		"profile": {func(t *testing.T, c *cluster) {
			edit(t, c, "data", &v1.ConfigMap{}, func(m *v1.ConfigMap) { m.Data["profiles.yaml"] = strings.ReplaceAll(profiles, "0.0033", "0.0043") })
		}, "profiles"},
		"price": {func(t *testing.T, c *cluster) {
			edit(t, c, "data", &v1.ConfigMap{}, func(m *v1.ConfigMap) { m.Data["prices.yaml"] = strings.ReplaceAll(prices, "500000", "600000") })
		}, "prices"},
		"modes": {func(t *testing.T, c *cluster) {
			edit(t, c, "vision", &api.InferencePlan{}, func(p *api.InferencePlan) { p.Spec.Modes = []api.ExecutionMode{api.ModeCPU} })
		}, "modes"},
		"function gone": {func(t *testing.T, c *cluster) {
			edit(t, c, "vision", &api.InferencePlan{}, func(p *api.InferencePlan) { p.Spec.Functions = p.Spec.Functions[:1] })
		}, "search was removed"},
		"given rate": {func(t *testing.T, c *cluster) {
			edit(t, c, "vision", &api.InferencePlan{}, func(p *api.InferencePlan) { p.Spec.Functions[1].RequestsPerSecond = 100 })
		}, "given rates"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := start(t, nil)
				c.pass(t, 2*time.Minute, usual)
				test.change(t, c)
				if got := c.pass(t, period, usual); !strings.Contains(got.Status.Because, test.want) {
					t.Errorf("planned because %q, want %q", got.Status.Because, test.want)
				}
			})
		})
	}
}

// TestSmallSavingChangesNothing: after a change of a price, the groups and sizes of the plan stay if others would save less than it says, and the
// costs are those of the new price.
func TestSmallSavingChangesNothing(t *testing.T) {
	for name, test := range map[string]struct {
		least int32 // percent
		stays bool
	}{
		"less than asked for": {100, true},
		"any":                 {0, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := start(t, func(p *api.InferencePlan, data map[string]string) {
					p.Spec.Replan.MinSavingPercent = &test.least
					p.Spec.Modes = []api.ExecutionMode{api.ModeShare, api.ModeCPU}
				})
				edit(t, c, "search", &api.GPUFunction{}, func(f *api.GPUFunction) { f.Spec.SLO.Latency = "9s" })
				edit(t, c, "checkout", &api.GPUFunction{}, func(f *api.GPUFunction) { f.Spec.SLO.Latency = "9s" })
				first := c.pass(t, 2*time.Minute, usual)
				edit(t, c, "data", &v1.ConfigMap{}, func(m *v1.ConfigMap) { m.Data["prices.yaml"] = strings.ReplaceAll(prices, "500000", "50000000") })
				then := c.pass(t, period, usual)
				if on := then.Status.Groups[0].On; (on == first.Status.Groups[0].On) != test.stays {
					t.Errorf("on %s, before on %s", on, first.Status.Groups[0].On)
				}
				if number(then.Status.Cost.Planned) <= number(first.Status.Cost.Planned) {
					t.Errorf("%s/h, before the price rose %s/h", then.Status.Cost.Planned, first.Status.Cost.Planned)
				}
			})
		})
	}
}

// TestNextLeader: the next leader keeps the plan until it knows the rates itself, and then has no reason to change it.
func TestNextLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, nil)
		first := c.pass(t, 2*time.Minute, usual)
		c.restart()
		for name := range c.running {
			c.running[name].Received = 0
		}
		before := c.writes
		got := c.pass(t, 10*time.Minute, usual)
		if c.writes > before || names(got) != names(first) || reason(got) != reason(first) {
			t.Errorf("%d writes: %s, %s; before: %s, %s", c.writes-before, reason(got), names(got), reason(first), names(first))
		}
	})
}

// TestProblems: what is wrong is in the condition, with the field to change; data that is not labelled for plans is not there.
func TestProblems(t *testing.T) {
	for name, test := range map[string]struct {
		change func(p *api.InferencePlan, data map[string]string)
		rates  map[string]float64
		want   string
	}{
		"no ConfigMap": {func(p *api.InferencePlan, _ map[string]string) { p.Spec.Prices.ConfigMap = "none" }, usual, "False NoData: spec.prices: there is no ConfigMap none with the label"},
		"somebody else's": {func(p *api.InferencePlan, _ map[string]string) {
			p.Spec.Profiles = api.DataReference{ConfigMap: "private"}
		}, usual, "False NoData: spec.profiles: there is no ConfigMap private with the label"},
		"no key":                {func(p *api.InferencePlan, _ map[string]string) { p.Spec.Prices.Key = "x" }, usual, "False NoData: spec.prices.key: ConfigMap data has no x"},
		"which key":             {func(p *api.InferencePlan, _ map[string]string) { p.Spec.Prices.Key = "" }, usual, "False NoData: spec.prices.key: is not set, and ConfigMap data has 2 keys"},
		"profiles: no YAML":     {func(_ *api.InferencePlan, data map[string]string) { data["profiles.yaml"] = "{" }, usual, "False InvalidData: spec.profiles:"},
		"prices: a misspelling": {func(_ *api.InferencePlan, data map[string]string) { data["prices.yaml"] = "prices: {nanoPerVcpu: 1}" }, usual, "False InvalidData: spec.prices:"},
		"no such model":         {func(p *api.InferencePlan, _ map[string]string) { p.Spec.Model = "text" }, usual, "False InvalidData: spec.model: there are 0 profiles of text"},
		"no whole percent": {func(_ *api.InferencePlan, data map[string]string) {
			data["profiles.yaml"] = strings.Replace(profiles, "120", "125", 1)
		}, usual, "spec.profiles: share.curves[0].sm: 125 is no whole percent"},
		"a free mode": {func(_ *api.InferencePlan, data map[string]string) {
			data["prices.yaml"] = strings.Replace(prices, "500000", "0", 1)
		}, usual, "False InvalidData: prices.nanoPerSliceSecond"},
		"no function": {func(p *api.InferencePlan, _ map[string]string) { p.Spec.Functions[1].Name = "none" }, usual, "False NoFunction: none:"},
		"no requests": {nil, nil, "False NoRequests"},
		"too tight": {func(_ *api.InferencePlan, data map[string]string) {
			data["profiles.yaml"] = strings.ReplaceAll(profiles, "intercept: 0.00", "intercept: 0.3")
		}, usual, "False NotFeasible: checkout: 0.25 s is less than"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := start(t, test.change)
				got := c.pass(t, 2*time.Minute, test.rates)
				if !strings.Contains(reason(got), test.want) || strings.Contains(reason(got), "hush") {
					t.Errorf("%s\nwant %s", reason(got), test.want)
				}
				if name == "no function" && names(got) != "checkout=2 /" {
					t.Errorf("the others are not planned: %s", names(got))
				}
			})
		})
	}
}

// TestModes: each mode is planned if it alone may be, with its resources, and the next leader keeps the plan.
func TestModes(t *testing.T) {
	for mode, has := range map[api.ExecutionMode]func(g *api.PlanGroup) bool{
		api.ModeShare:       func(g *api.PlanGroup) bool { return g.Share != nil && g.Replicas > 0 && g.MilliCPU == 0 },
		api.ModeCPU:         func(g *api.PlanGroup) bool { return g.MilliCPU > 0 && g.Memory != "" && g.Share == nil },
		api.ModeGPU:         func(g *api.PlanGroup) bool { return g.GPUGB > 0 && g.MilliCPU > 0 },
		api.ModePartitioned: func(g *api.PlanGroup) bool { return len(g.Stages) == 2 && len(g.Stages[0].MilliCPUs) == 2 },
	} {
		t.Run(string(mode), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := start(t, func(p *api.InferencePlan, data map[string]string) {
					data["profiles.yaml"], data["prices.yaml"] = profiles+otherModes, prices+otherPrices
					p.Spec.Modes = []api.ExecutionMode{mode}
				})
				edit(t, c, "checkout", &api.GPUFunction{}, func(f *api.GPUFunction) { f.Spec.SLO.Latency = "700ms" })
				first := c.pass(t, 2*time.Minute, usual)
				if !strings.HasPrefix(reason(first), "True") {
					t.Fatal(reason(first))
				}
				for _, g := range first.Status.Groups {
					if g.Mode != mode || !has(&g) {
						t.Errorf("group %+v", g)
					}
				}
				c.restart()
				before := c.writes
				if c.pass(t, 10*time.Minute, usual); c.writes > before {
					t.Errorf("the next leader has written %d times", c.writes-before)
				}
			})
		})
	}
}

// TestTemplates: a model whose layers are in the profiles is planned with the measurements of its best partition, and if there are none, which to
// measure is said.
func TestTemplates(t *testing.T) {
	const chain = `chains:
- model: vision
  input: 600000
  layers:
  - {name: stem, work: 2, weights: 400000000, output: 800000}
  - {name: middle, work: 2, weights: 400000000, output: 800000}
  - {name: head, work: 2, weights: 400000000, output: 4000}
`
	synctest.Test(t, func(t *testing.T) {
		c := start(t, func(p *api.InferencePlan, data map[string]string) {
			data["profiles.yaml"] = profiles + chain
			p.Spec.Modes = []api.ExecutionMode{api.ModeShare, api.ModePartitioned}
		})
		got := c.pass(t, 2*time.Minute, usual)
		if !strings.HasPrefix(reason(got), "True") || len(got.Status.Notes) != 1 || !strings.HasPrefix(got.Status.Notes[0], "vision: its best partition was not measured: measure stages up to layers [") {
			t.Errorf("%s, notes %q", reason(got), got.Status.Notes)
		}
	})
}

// TestExternalCost: what the pods of another autoscaler cost is not known, and that is said.
func TestExternalCost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, nil)
		c.running["search"] = &Running{Others: 3}
		if got := c.pass(t, 2*time.Minute, usual); len(got.Status.Notes) != 1 || !strings.Contains(got.Status.Notes[0], "search: cost.now leaves out") || got.Status.Cost.Now != "0" {
			t.Errorf("notes %v, cost %+v", got.Status.Notes, got.Status.Cost)
		}
	})
}

// TestPriceLists: the price lists of the documentation can be read, say where they are from, and have prices for what they say.
func TestPriceLists(t *testing.T) {
	const folder = "../../docs/prices/"
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	read := 0
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".yaml") {
			continue
		}
		read++
		t.Run(e.Name(), func(t *testing.T) {
			text, err := os.ReadFile(folder + e.Name())
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(text), "\nsource: ") || !strings.Contains(string(text), "\ndate: ") {
				t.Error("want a source and a date")
			}
			synctest.Test(t, func(t *testing.T) {
				c := start(t, func(p *api.InferencePlan, data map[string]string) {
					data["prices.yaml"] = string(text)
					p.Spec.Modes = []api.ExecutionMode{api.ModeCPU}
					if strings.Contains(string(text), "nanoPerSliceSecond") {
						p.Spec.Modes = append(p.Spec.Modes, api.ModeShare)
					}
				})
				edit(t, c, "checkout", &api.GPUFunction{}, func(f *api.GPUFunction) { f.Spec.SLO.Latency = "900ms" })
				if got := c.pass(t, 2*time.Minute, usual); !strings.HasPrefix(reason(got), "True") {
					t.Error(reason(got))
				}
			})
		})
	}
	if read < 3 {
		t.Errorf("%d price lists", read)
	}
}
