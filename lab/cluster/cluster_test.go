package cluster

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gshare-dev/gshare/vgpu/packing"
)

// node has so many CPUs and GPUs of model T4.
func node(cpus packing.MilliCPU, gpus int) Node {
	return Node{Name: "n", CPU: 1000 * cpus, RAM: 1 << 40, GPUs: gpus, Model: "T4"}
}

// pod asks for CPUs and for a part of a GPU, or for several whole ones.
func pod(cpus packing.MilliCPU, gpus int, milli packing.MilliGPU, models ...string) Pod {
	return Pod{CPU: 1000 * cpus, RAM: 1, GPUs: gpus, Milli: milli, Models: models}
}

func simulation(t testing.TB, c Config) *Simulation {
	t.Helper()
	if c.Load == 0 {
		c.Load = 1.3
	}
	if c.Order == "" {
		c.Order = FileOrder
	}
	s, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func run(t testing.TB, c Config) Result {
	t.Helper()
	r, err := simulation(t, c).Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// small returns a cluster of unlike nodes and pods that do not all fit.
func small(policy string, seed uint64) Config {
	nodes := []Node{node(16, 2), node(8, 2), node(96, 8), node(64, 4), node(4, 1)}
	nodes[3].Model = "V100M32"
	var pods []Pod
	for i := range 40 {
		pods = append(pods, pod(packing.MilliCPU(1+i%7), 1, packing.MilliGPU(100+37*(i%9))), pod(2, 0, 0))
	}
	pods = append(pods, pod(16, 2, 1000), pod(8, 1, 1000), pod(8, 1, 1000), pod(4, 1, 500, "V100M32"), pod(32, 4, 1000))
	return Config{Nodes: nodes, Pods: pods, Policy: policy, Order: RandomOrder, Load: 1.3, Seed: seed}
}

func TestLoadAndCurve(t *testing.T) {
	r := run(t, Config{Nodes: []Node{node(8, 1)}, Pods: []Pod{pod(1, 1, 500)}, Policy: "firstfit"})
	if r.Decisions != 2 || r.AllocatedFull != 100 || r.AllocatedEnd != 100 || len(r.Curve) != 131 {
		t.Errorf("halves of a GPU up to 1.3: %d decisions, %v %% and %v %%, %d points", r.Decisions, r.AllocatedFull, r.AllocatedEnd, len(r.Curve))
	}
	for _, p := range r.Curve {
		if want := map[bool]float64{p.Arrived < 50: 0, p.Arrived >= 50 && p.Arrived < 100: 50, p.Arrived >= 100: 100}[true]; p.Allocated != want {
			t.Errorf("at %v %%: %v %% allocated, want %v %%", p.Arrived, p.Allocated, want)
		}
	}
}

// A list that asks for more is cut; one that asks for less is topped up from itself; what does not fit is dropped.
func TestListIsCutOrToppedUp(t *testing.T) {
	for name, c := range map[string]struct {
		pods []Pod
		load float64
		want int
	}{
		"cut":         {slices.Repeat([]Pod{pod(1, 1, 250)}, 100), 2, 8},
		"topped up":   {[]Pod{pod(1, 1, 250)}, 2, 8},
		"below a pod": {[]Pod{pod(1, 1, 250)}, 0.2, 0},
		"dropped":     {[]Pod{pod(100, 1, 250)}, 2, 8},
	} {
		t.Run(name, func(t *testing.T) {
			r := run(t, Config{Nodes: []Node{node(8, 1)}, Pods: c.pods, Policy: "firstfit", Load: c.load})
			if r.Decisions != c.want {
				t.Errorf("%d decisions, want %d", r.Decisions, c.want)
			}
			if name == "dropped" && r.AllocatedEnd != 0 {
				t.Errorf("%v %% allocated", r.AllocatedEnd)
			}
		})
	}
}

func TestEqualSeedsGiveEqualResults(t *testing.T) {
	for _, policy := range Policies() {
		first := run(t, small(policy, 1))
		if diff := cmp.Diff(first, run(t, small(policy, 1))); diff != "" {
			t.Errorf("%s: %s", policy, diff)
		}
		if cmp.Equal(first, run(t, small(policy, 2))) {
			t.Errorf("%s: another seed gives the same", policy)
		}
	}
}

// No policy gives away what a machine does not have, and what is counted as used is what the machines miss.
func TestMachinesAreNeverOverfull(t *testing.T) {
	for _, policy := range Policies() {
		for seed := range uint64(5) {
			s := simulation(t, small(policy, seed))
			r, err := s.Run(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			var left packing.MilliGPU
			for _, m := range s.machines {
				if m.cpu < 0 || m.ram < 0 || slices.Min(m.free) < 0 || m.left != sum(m.free) {
					t.Errorf("%s, seed %d: machine %+v", policy, seed, m)
				}
				left += m.left
			}
			if s.used != s.capacity-left || r.AllocatedEnd != s.percent(s.used) || s.used == 0 {
				t.Errorf("%s, seed %d: %d used of %d, %d left, %v %%", policy, seed, s.used, s.capacity, left, r.AllocatedEnd)
			}
		}
	}
}

func sum(free []packing.MilliGPU) (total packing.MilliGPU) {
	for _, f := range free {
		total += f
	}
	return total
}

// gshare's own books say the same as the machines.
func TestBalanceKeepsTheSameBooks(t *testing.T) {
	s := simulation(t, small("gshare", 3))
	if _, err := s.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	b := s.policy.(*gsharePolicy)
	total := packing.Capacity{Models: map[string]packing.MilliGPU{}}
	for i, m := range s.machines {
		n := b.nodes[i]
		if n.CPU != m.cpu || n.RAM != m.ram {
			t.Errorf("node %d: %d CPU and %d RAM, machine %d and %d", i, n.CPU, n.RAM, m.cpu, m.ram)
		}
		for g := range n.Loads {
			if used := packing.MilliGPU(n.Loads[g].Requested() / 1000); used != packing.WholeGPU-m.free[g] {
				t.Errorf("node %d, GPU %d: %d used, machine has %d free", i, g, used, m.free[g])
			}
		}
		total.Add(packing.CapacityOf(n, b.cpu[i]), 1)
	}
	if diff := cmp.Diff(total, b.total); diff != "" {
		t.Error(diff)
	}
}

func TestRefuses(t *testing.T) {
	good := Config{Nodes: []Node{node(8, 1)}, Pods: []Pod{pod(1, 1, 500)}, Policy: "fgd", Order: FileOrder, Load: 1}
	for name, change := range map[string]func(*Config){
		"policy":  func(c *Config) { c.Policy = "luck" },
		"order":   func(c *Config) { c.Order = "alphabet" },
		"no GPUs": func(c *Config) { c.Nodes = []Node{node(8, 0)} },
		"no asks": func(c *Config) { c.Pods = []Pod{pod(8, 0, 0)} },
		"nothing": func(c *Config) { c.Nodes, c.Pods = nil, nil },
	} {
		t.Run(name, func(t *testing.T) {
			c := good
			change(&c)
			if _, err := New(c); err == nil {
				t.Errorf("%s: accepted", name)
			}
		})
	}
	if _, err := New(good); err != nil {
		t.Error(err)
	}
}

func TestRunStops(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := simulation(t, small("fgd", 1)).Run(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

func TestOrders(t *testing.T) {
	nodes := []Node{node(64, 2), node(8, 8), node(12, 1)}
	for order, want := range map[string][]int{FileOrder: {0, 1, 2}, CPUPoorFirst: {2, 0, 1}, MostGPUs: {1, 0, 2}} {
		t.Run(order, func(t *testing.T) {
			s := simulation(t, Config{Nodes: nodes, Pods: []Pod{pod(1, 1, 500)}, Policy: "firstfit", Order: order})
			for i, m := range s.machines {
				if m.rank != want[i] {
					t.Errorf("node %d has place %d, want %d", i, m.rank, want[i])
				}
			}
		})
	}
	seen := map[string]bool{}
	for seed := range uint64(20) {
		s := simulation(t, Config{Nodes: nodes, Pods: []Pod{pod(1, 1, 500)}, Policy: "firstfit", Order: RandomOrder, Seed: seed})
		seen[fmt.Sprint(s.machines[0].rank, s.machines[1].rank)] = true
	}
	if len(seen) < 4 {
		t.Errorf("20 seeds give %d of 6 orders", len(seen))
	}
}

func TestFragmentation(t *testing.T) {
	// Half of the pods want half a GPU and 4 CPUs, half a whole one and 8 CPUs.
	d := demandFor("T4", typicalPods([]Pod{pod(4, 1, 500), pod(8, 1, 1000)}))
	for name, c := range map[string]struct {
		cpu  packing.MilliCPU
		free []packing.MilliGPU
		want float64
	}{
		"empty":                   {64_000, []packing.MilliGPU{1000, 1000}, 0},
		"full":                    {64_000, []packing.MilliGPU{0, 0}, 0},
		"a quarter left":          {64_000, []packing.MilliGPU{250}, 250},
		"half left":               {64_000, []packing.MilliGPU{500}, 250},
		"half and a quarter left": {64_000, []packing.MilliGPU{500, 250}, 125 + 375},
		"no CPU for whole GPUs":   {7_999, []packing.MilliGPU{1000}, 500},
		"no CPU":                  {3_999, []packing.MilliGPU{1000}, 1000},
	} {
		t.Run(name, func(t *testing.T) {
			if got := d.fragmentation(c.cpu, c.free); math.Abs(got-c.want) > 1e-9 {
				t.Errorf("F = %v, want %v", got, c.want)
			}
		})
	}
	other := demandFor("T4", typicalPods([]Pod{pod(4, 1, 500), pod(4, 1, 500, "V100M32"), pod(4, 0, 0), pod(4, 1, 500, "T4", "V100M32")}))
	if got := other.fragmentation(64_000, []packing.MilliGPU{1000}); math.Abs(got-500) > 1e-9 {
		t.Errorf("F = %v with a pod for another model and one without GPU out of four, want 500", got)
	}
}

func TestTypicalPodsAreTheMostPopular(t *testing.T) {
	pods := append(slices.Repeat([]Pod{pod(1, 1, 500)}, 60), slices.Repeat([]Pod{pod(2, 1, 500)}, 35)...)
	pods = append(pods, pod(3, 1, 500), pod(4, 1, 500), pod(5, 1, 500), pod(6, 1, 500), pod(7, 1, 500))
	got := typicalPods(pods)
	if len(got) != 2 || got[0].cpu != 1000 || got[1].cpu != 2000 || math.Abs(got[0].part-60.0/95) > 1e-9 || math.Abs(got[1].part-35.0/95) > 1e-9 {
		t.Errorf("typical of 60, 35 and five single ones: %+v", got)
	}
}
