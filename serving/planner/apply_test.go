package planner

import (
	"errors"
	"flag"
	"fmt"
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
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
)

// startApplied returns a cluster with a plan in mode Apply, and functions whose replicas are such that checkout can serve search.
func startApplied(t *testing.T, change func(p *api.InferencePlan)) *cluster {
	t.Helper()
	c := start(t, func(p *api.InferencePlan, _ map[string]string) {
		p.Spec.Mode = api.Apply
		if change != nil {
			change(p)
		}
	})
	c.events = events.NewFakeRecorder(1000)
	c.restart()
	for _, name := range []string{"checkout", "search"} {
		f := &api.GPUFunction{}
		edit(t, c, name, f, func(f *api.GPUFunction) {
			f.Spec.Protocol, f.Spec.Batching.MaxBatch = api.OIP, 4
			f.Spec.Template.Spec.Containers = []v1.Container{{Name: "server", Image: "example.com/vision"}}
			f.Spec.Resources.Share = &api.Share{SM: new(int64(12)), Quota: new(int64(30)), Memory: "1620Mi"}
			f.Spec.Scaling.RequestsPerSecond = 15
		})
		c.status(t, name, func(s *api.GPUFunctionStatus) { s.ReadyReplicas = 1 })
	}
	return c
}

// status changes the status of a function, as others do.
func (c *cluster) status(t *testing.T, name string, change func(*api.GPUFunctionStatus)) {
	t.Helper()
	f := &api.GPUFunction{}
	if err := c.client.Get(t.Context(), client.ObjectKey{Namespace: "ml", Name: name}, f); err != nil {
		t.Fatal(err)
	}
	change(&f.Status)
	if err := c.client.Status().Update(t.Context(), f); err != nil {
		t.Fatal(err)
	}
}

// hosts returns who serves the functions, as "search<checkout".
func (c *cluster) hosts(t *testing.T) string {
	t.Helper()
	list := &api.GPUFunctionList{}
	if err := c.client.List(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, f := range list.Items {
		if f.Status.ServedBy != "" {
			all = append(all, f.Name+"<"+f.Status.ServedBy)
		}
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// release does what follows from a change of a plan for the functions.
func (c *cluster) release(t *testing.T) {
	t.Helper()
	for _, request := range c.releaser.Of(t.Context(), &api.InferencePlan{ObjectMeta: metav1.ObjectMeta{Namespace: "ml"}}) {
		if _, err := c.releaser.Reconcile(t.Context(), request); err != nil {
			t.Fatal(err)
		}
	}
}

func (c *cluster) recorded() (all []string) {
	for len(c.events.Events) > 0 {
		all = append(all, <-c.events.Events)
	}
	return all
}

func applied(p *api.InferencePlan) string {
	if c := meta.FindStatusCondition(p.Status.Conditions, api.ConditionApplied); c != nil {
		return string(c.Status) + " " + c.Reason + ": " + c.Message
	}
	return ""
}

// TestApply: once it is planned, the function with the tightest objective serves the others of its group, and the status and events say so. Nothing is
// written any more then.
func TestApply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startApplied(t, nil)
		if got := c.pass(t, 30*time.Second, usual); !strings.HasPrefix(applied(got), "False NotPlanned") || c.hosts(t) != "" {
			t.Errorf("%s, hosts %s", applied(got), c.hosts(t))
		}
		got := c.pass(t, time.Minute, usual)
		if want := "True Applied: 1 of 2 functions are served by others, which saves 50% of 0.147 USD/h; 0.15% of the requests are predicted to be late"; applied(got) != want || c.hosts(t) != "search<checkout" {
			t.Errorf("%s, hosts %s; want %s", applied(got), c.hosts(t), want)
		}
		if g := got.Status.Groups[0]; g.Host != "checkout" || g.Applied != "checkout serves all on 1 x 12% SM x 30% time, 1620 MiB, which saves 50% of 0.147/h apart; 0.15% are predicted to be late" {
			t.Errorf("%s: %s", g.Host, g.Applied)
		}
		if all := c.recorded(); len(all) != 1 || all[0] != "Normal ServedBy The replicas of checkout serve its requests. InferencePlan vision: first plan" {
			t.Errorf("events %q", all)
		}
		before := c.writes
		if c.pass(t, time.Hour, usual); c.writes > before {
			t.Errorf("%d writes in an hour without a change", c.writes-before)
		}
		c.restart()
		if c.pass(t, 10*time.Minute, usual); c.writes > before {
			t.Errorf("the next leader has written %d times", c.writes-before)
		}
		if c.release(t); c.hosts(t) != "search<checkout" {
			t.Errorf("hosts %q, although the plan is there", c.hosts(t))
		}
	})
}

// TestApplyEnds: the functions serve themselves again if the plan is deleted or is to recommend, is about others, has another group, or there is no load.
func TestApplyEnds(t *testing.T) {
	plan := func(t *testing.T, c *cluster, change func(p *api.InferencePlan)) {
		edit(t, c, "vision", &api.InferencePlan{}, func(p *api.InferencePlan) { p.Generation++; change(p) })
	}
	for name, test := range map[string]struct {
		change  func(t *testing.T, c *cluster)
		rates   map[string]float64
		applied string // afterwards
	}{
		"recommend": {func(t *testing.T, c *cluster) { plan(t, c, func(p *api.InferencePlan) { p.Spec.Mode = api.Recommend }) }, usual, ""},
		"the guest is no part of it": {func(t *testing.T, c *cluster) {
			plan(t, c, func(p *api.InferencePlan) { p.Spec.Functions = p.Spec.Functions[:1] })
		}, usual, "True Applied: each function serves itself"},
		"the host is no part of it": {func(t *testing.T, c *cluster) {
			plan(t, c, func(p *api.InferencePlan) { p.Spec.Functions = p.Spec.Functions[1:] })
		}, usual, "True Applied: each function serves itself"},
		"the host has another template": {func(t *testing.T, c *cluster) {
			edit(t, c, "checkout", &api.GPUFunction{}, func(f *api.GPUFunction) { f.Spec.Template.Spec.Containers[0].Image = "example.com/new" })
		}, usual, "False NotApplied: checkout and search have different templates"},
		"the host has fewer replicas": {func(t *testing.T, c *cluster) {
			edit(t, c, "checkout", &api.GPUFunction{}, func(f *api.GPUFunction) {
				f.Spec.Scaling.MaxReplicas, f.Spec.Scaling.RequestsPerSecond = new(1), 10
			})
		}, usual, "False NotApplied: checkout needs 2 replicas for the group: want scaling.maxReplicas of at least that, it is 1"},
		"no load": {func(*testing.T, *cluster) {}, nil, "True Applied: each function serves itself"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := startApplied(t, nil)
				if c.pass(t, 2*time.Minute, usual); c.hosts(t) != "search<checkout" {
					t.Fatalf("hosts %q", c.hosts(t))
				}
				c.recorded()
				test.change(t, c)
				c.release(t)
				got := c.pass(t, 5*time.Minute, test.rates)
				if c.hosts(t) != "" || !strings.HasPrefix(applied(got), test.applied) || test.applied == "" && applied(got) != "" {
					t.Errorf("%s, hosts %q; want %s", applied(got), c.hosts(t), test.applied)
				}
				for _, g := range got.Status.Groups {
					if g.Host != "" {
						t.Errorf("%s still serves %v", g.Host, g.Functions)
					}
				}
				all := slices.DeleteFunc(c.recorded(), func(e string) bool {
					return strings.HasPrefix(e, "Normal Planned") || strings.HasPrefix(e, "Warning NotApplied")
				})
				if len(all) != 1 || !strings.HasPrefix(all[0], "Normal ServedByOwn Its own replicas serve its requests again, and no more those of checkout. ") {
					t.Errorf("events %q", all)
				}
			})
		})
	}
}

// TestApplyTies: of the functions with the tightest objective the first one that can is the host, and the one that is it already before the others. What it may do
// no more, such as grow, does not end what it does.
func TestApplyTies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startApplied(t, nil)
		edit(t, c, "search", &api.GPUFunction{}, func(f *api.GPUFunction) { f.Spec.SLO.Latency = "250ms" })
		edit(t, c, "checkout", &api.GPUFunction{}, func(f *api.GPUFunction) { f.Spec.Scaling.MaxReplicas, f.Spec.Scaling.RequestsPerSecond = new(1), 10 })
		rates := map[string]float64{"checkout": 6, "search": 6}
		if got := c.pass(t, 2*time.Minute, rates); c.hosts(t) != "checkout<search" {
			t.Errorf("hosts %q, %s", c.hosts(t), applied(got))
		}
		edit(t, c, "checkout", &api.GPUFunction{}, func(f *api.GPUFunction) { f.Spec.Scaling.MaxReplicas = new(5) })
		c.status(t, "search", func(s *api.GPUFunctionStatus) {
			meta.SetStatusCondition(&s.Conditions, metav1.Condition{Type: api.ConditionQuotaExceeded, Status: metav1.ConditionTrue, Reason: "SharePolicy"})
		})
		if got := c.pass(t, 2*time.Minute, rates); c.hosts(t) != "checkout<search" || !strings.HasPrefix(applied(got), "True Applied") {
			t.Errorf("hosts %q, %s", c.hosts(t), applied(got))
		}
		edit(t, c, "search", &api.GPUFunction{}, func(f *api.GPUFunction) { f.Spec.Resources.Share.Quota = new(int64(10)) })
		if got := c.pass(t, time.Minute, rates); c.hosts(t) != "search<checkout" {
			t.Errorf("hosts %q, %s", c.hosts(t), applied(got))
		}
	})
}

// TestReleaser: a function whose plan is gone serves itself again, whoever has seen the plan last.
func TestReleaser(t *testing.T) {
	for name, gone := range map[string]func(t *testing.T, c *cluster){
		"deleted": func(t *testing.T, c *cluster) {
			if err := c.client.Delete(t.Context(), &api.InferencePlan{ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: "vision"}}); err != nil {
				t.Fatal(err)
			}
		},
		"being deleted": func(t *testing.T, c *cluster) {
			edit(t, c, "vision", &api.InferencePlan{}, func(p *api.InferencePlan) { p.Finalizers = []string{"example.com/other"} })
			if err := c.client.Delete(t.Context(), &api.InferencePlan{ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: "vision"}}); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := startApplied(t, nil)
				c.pass(t, 2*time.Minute, usual)
				gone(t, c)
				c.restart() // the one that knew the plan
				if c.release(t); c.hosts(t) != "" {
					t.Errorf("hosts %q", c.hosts(t))
				}
				before := c.writes
				if c.release(t); c.writes > before {
					t.Error("written again")
				}
				if _, err := c.planner.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "ml", Name: "vision"}}); err != nil || c.hosts(t) != "" {
					t.Errorf("hosts %q, %v", c.hosts(t), err)
				}
			})
		})
	}
}

// TestNotApplied: why a group has no host is in the plan, and what to write for it to have one.
func TestNotApplied(t *testing.T) {
	checkout := func(change func(f *api.GPUFunction)) func(*testing.T, *cluster) {
		return func(t *testing.T, c *cluster) { edit(t, c, "checkout", &api.GPUFunction{}, change) }
	}
	for name, test := range map[string]struct {
		change func(t *testing.T, c *cluster)
		want   string
	}{
		"template": {checkout(func(f *api.GPUFunction) { f.Spec.Template.Spec.Containers[0].Image = "example.com/other" }), "checkout and search have different templates"},
		"protocol": {checkout(func(f *api.GPUFunction) { f.Spec.Protocol, f.Spec.Batching.MaxBatch = api.HTTP, 1 }), "checkout and search have the protocols HTTP and OIP"},
		"autoscaler": {checkout(func(f *api.GPUFunction) {
			f.Spec.Scaling.Autoscaler, f.Spec.Template, f.Spec.Resources = api.External, v1.PodTemplateSpec{}, api.Resources{}
		}), "checkout and search: want scaling.autoscaler Native of both"},
		"no profile":                   {checkout(func(f *api.GPUFunction) { f.Spec.Resources.Share, f.Spec.Scaling.RequestsPerSecond = nil, 0 }), "checkout has a whole GPU for each replica: want resources.share, or a profile that is complete"},
		"small share":                  {checkout(func(f *api.GPUFunction) { f.Spec.Resources.Share.Quota = new(int64(10)) }), "checkout has 1 x 12% SM x 10% time, 1620 MiB, in batches of up to 4, which does not keep the group's objectives by the profile: want resources.share {sm: 12, quota: 30, memory: 1620Mi} and batching.maxBatch 4, as the plan"},
		"SMs that nobody has measured": {checkout(func(f *api.GPUFunction) { f.Spec.Resources.Share.SM = new(int64(13)) }), "checkout has 1 x 13% SM"},
		"little memory":                {checkout(func(f *api.GPUFunction) { f.Spec.Resources.Share.Memory = "1600Mi" }), "checkout has 1 x 12% SM x 30% time, 1600 MiB"},
		"few replicas":                 {checkout(func(f *api.GPUFunction) { f.Spec.Scaling.MaxReplicas, f.Spec.Scaling.RequestsPerSecond = new(1), 10 }), "checkout needs 2 replicas"},
		"a dear host": {checkout(func(f *api.GPUFunction) {
			f.Spec.Resources.Share.SM, f.Spec.Resources.Share.Quota = new(int64(50)), new(int64(100))
		}), "checkout on its 1 x 50% SM x 100% time, 1620 MiB would save 7% of what the functions of the group cost apart on theirs: want more than 0%, and 10% at first"},
		"quota": {func(t *testing.T, c *cluster) {
			c.status(t, "checkout", func(s *api.GPUFunctionStatus) {
				meta.SetStatusCondition(&s.Conditions, metav1.Condition{Type: api.ConditionQuotaExceeded, Status: metav1.ConditionTrue, Reason: "SharePolicy", Message: "SharePolicy small lets the namespace have 50 % of a GPU"})
			})
		}, "checkout may have no more replicas: SharePolicy small lets the namespace have 50 % of a GPU"},
		"an older plan": {func(t *testing.T, c *cluster) {
			older := &api.InferencePlan{ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: "a", UID: "2"}, Spec: api.InferencePlanSpec{Mode: api.Apply, Functions: []api.PlannedFunction{{Name: "search"}}}}
			if err := c.client.Create(t.Context(), older); err != nil {
				t.Fatal(err)
			}
		}, "search is in the InferencePlan a, which is older"},
		"mode": {func(t *testing.T, c *cluster) {
			edit(t, c, "vision", &api.InferencePlan{}, func(p *api.InferencePlan) { p.Spec.Modes = []api.ExecutionMode{api.ModeCPU} })
			for _, name := range []string{"checkout", "search"} {
				edit(t, c, name, &api.GPUFunction{}, func(f *api.GPUFunction) { f.Spec.SLO.Latency = "9s" })
			}
		}, "gshare makes no pods in mode CPU"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := startApplied(t, func(p *api.InferencePlan) { p.Spec.Replan.MinSavingPercent = new(int32(10)) })
				test.change(t, c)
				got := c.pass(t, 2*time.Minute, usual)
				if want := "False NotApplied: " + test.want; !strings.HasPrefix(applied(got), want) || c.hosts(t) != "" {
					t.Errorf("%s, hosts %q; want %s", applied(got), c.hosts(t), want)
				}
				if g := got.Status.Groups[0]; g.Host != "" || !strings.HasPrefix(g.Applied, "no: "+test.want) {
					t.Errorf("%s: %s", g.Host, g.Applied)
				}
				all := slices.DeleteFunc(c.recorded(), func(e string) bool { return strings.HasPrefix(e, "Normal Planned") })
				if len(all) != 1 || !strings.HasPrefix(all[0], "Warning NotApplied "+test.want) {
					t.Errorf("events %q", all)
				}
			})
		})
	}
}

// TestApplyOff: where plans are not applied, a plan in mode Apply is planned and says why it is not applied, and functions that others serve after
// earlier plans serve themselves again.
func TestApplyOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startApplied(t, nil)
		if c.pass(t, 2*time.Minute, usual); c.hosts(t) != "search<checkout" {
			t.Fatalf("hosts %q", c.hosts(t))
		}
		c.recorded()
		c.planner.NotApplied = errors.New("spec.mode: off")
		got := c.pass(t, time.Minute, usual)
		if applied(got) != "False NotApplied: spec.mode: off" || c.hosts(t) != "" || got.Status.Groups[0].Host != "" {
			t.Errorf("%s, hosts %q, group %+v", applied(got), c.hosts(t), got.Status.Groups[0])
		}
		if all := strings.Join(c.recorded(), "; "); !strings.Contains(all, "Warning NotApplied spec.mode: off") {
			t.Errorf("events %s", all)
		}
	})
}

// TestPlannedOnCPUs: a function that is planned on CPUs is served as planned by pods that another autoscaler scales, and by gshare's it is not.
func TestPlannedOnCPUs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startApplied(t, func(p *api.InferencePlan) {
			p.Spec.Functions, p.Spec.Modes = []api.PlannedFunction{{Name: "search"}}, []api.ExecutionMode{api.ModeCPU}
		})
		edit(t, c, "search", &api.GPUFunction{}, func(f *api.GPUFunction) { f.Spec.SLO.Latency = "9s" })
		got := c.pass(t, 2*time.Minute, usual)
		if want := "False NotApplied: gshare makes no pods in mode CPU: want scaling.autoscaler External for search, and pods of yours with its label, "; !strings.HasPrefix(applied(got), want) {
			t.Errorf("%s; want %s", applied(got), want)
		}
		edit(t, c, "search", &api.GPUFunction{}, func(f *api.GPUFunction) {
			f.Spec.Scaling.Autoscaler, f.Spec.Template, f.Spec.Resources = api.External, v1.PodTemplateSpec{}, api.Resources{}
		})
		got = c.pass(t, 2*time.Minute, usual)
		if want := "True Applied: each function serves itself, as the plan says"; applied(got) != want || got.Status.Groups[0].Applied != "by itself, on the pods with its label, which gshare does not make" {
			t.Errorf("%s, %+v; want %s", applied(got), got.Status.Groups, want)
		}
	})
}

// TestApplyWaits: a function whose host cannot be there for its requests waits, and so do those whose host still has one.
func TestApplyWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startApplied(t, nil)
		for _, name := range []string{"checkout", "search"} {
			c.status(t, name, func(s *api.GPUFunctionStatus) { s.ReadyReplicas = 0 })
		}
		if got := c.pass(t, 2*time.Minute, usual); applied(got) != "False Applying: search is to be served by checkout, once either has a replica that is ready" || c.hosts(t) != "" {
			t.Errorf("%s, hosts %q", applied(got), c.hosts(t))
		}
		c.status(t, "checkout", func(s *api.GPUFunctionStatus) { s.ReadyReplicas, s.ServedBy = 1, "search" }) // as after a plan whose objectives were the other way round
		if got := c.pass(t, period, usual); !strings.Contains(applied(got), "False Applying: checkout is to serve itself") || c.hosts(t) != "" {
			t.Errorf("%s, hosts %q", applied(got), c.hosts(t))
		}
		c.pass(t, period, usual)
		key := reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "ml", Name: "vision"}}
		if _, err := c.planner.Reconcile(t.Context(), key); err != nil {
			t.Fatal(err)
		}
		plan := &api.InferencePlan{}
		if err := c.client.Get(t.Context(), key.NamespacedName, plan); err != nil || applied(plan) != "False Applying: search has its own replicas until checkout has those for both" {
			t.Errorf("%s, %v", applied(plan), err)
		}
		if got := c.pass(t, period, usual); !strings.HasPrefix(applied(got), "True Applied") || c.hosts(t) != "search<checkout" {
			t.Errorf("%s, hosts %q", applied(got), c.hosts(t))
		}
	})
}

// TestApplyStays: without data, and until the next leader has seen the rates, functions are served as they were.
func TestApplyStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startApplied(t, nil)
		before := applied(c.pass(t, 2*time.Minute, usual))
		edit(t, c, "data", &v1.ConfigMap{}, func(m *v1.ConfigMap) { m.Labels = nil })
		got := c.pass(t, 5*time.Minute, usual)
		if !strings.HasPrefix(reason(got), "False NoData") || applied(got) != before || c.hosts(t) != "search<checkout" || got.Status.Groups[0].Host != "checkout" {
			t.Errorf("%s, %s, hosts %q", reason(got), applied(got), c.hosts(t))
		}
		c.restart()
		if got := c.pass(t, 30*time.Second, usual); applied(got) != before || c.hosts(t) != "search<checkout" {
			t.Errorf("the next leader: %s, hosts %q", applied(got), c.hosts(t))
		}
	})
}

var full = flag.Bool("full", false, "end the planner after each write, not after one of three")

// TestApplyCrashes: wherever a planner ends, the next one comes to the same hosts and the same plan, and to them again when host and guest have to swap.
func TestApplyCrashes(t *testing.T) {
	swap := func(t *testing.T, c *cluster) {
		edit(t, c, "checkout", &api.GPUFunction{}, func(f *api.GPUFunction) { f.Spec.SLO.Latency = "1s" })
		edit(t, c, "search", &api.GPUFunction{}, func(f *api.GPUFunction) { f.Spec.SLO.Latency = "250ms" })
	}
	run := func(t *testing.T, ends int) (result string, writes int) {
		synctest.Test(t, func(t *testing.T) {
			c := startApplied(t, nil)
			c.ends = ends
			rates := map[string]float64{"checkout": 6, "search": 6}
			until := func(d time.Duration) {
				for passed := time.Duration(0); passed < d; passed += period {
					time.Sleep(period)
					for name, rate := range rates {
						if c.running[name] == nil {
							c.running[name] = &Running{}
						}
						c.running[name].Received += uint64(rate * period.Seconds())
					}
					c.follow(t)
					_, err := c.planner.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "ml", Name: "vision"}})
					if errors.Is(err, errEnds) {
						c.restart()
					} else if err != nil {
						t.Fatal(err)
					}
					if hosts := c.hosts(t); strings.Contains(hosts, " ") {
						t.Errorf("a host has a host: %s", hosts)
					}
				}
			}
			until(5 * time.Minute)
			result = c.hosts(t)
			swap(t, c)
			until(10 * time.Minute)
			got := c.pass(t, period, nil)
			result += fmt.Sprintf(", then %s; %s; %s", c.hosts(t), applied(got), got.Status.Groups[0].Host)
			writes = c.writes
		})
		return result, writes
	}
	want, writes := run(t, 0)
	if !strings.HasPrefix(want, "search<checkout, then checkout<search; True Applied") || writes < 6 {
		t.Fatalf("%s, %d writes", want, writes)
	}
	for ends := 1; ends <= writes; ends++ {
		if !*full && ends%3 != 0 {
			continue
		}
		if got, _ := run(t, ends); got != want {
			t.Errorf("ended after write %d: %s, want %s", ends, got, want)
		}
	}
}
