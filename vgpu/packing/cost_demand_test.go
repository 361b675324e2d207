package packing

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestCPURatio: the pods of these cases request 8 CPUs per GPU, and 100 GPUs with 800 CPUs are in use.
func TestCPURatio(t *testing.T) {
	var gpuPods Mix
	gpuPods.Add(Shape{VGPUs: 1, Milli: 1000, CPU: 8000}, 100)
	var tiny Mix
	tiny.Add(Shape{VGPUs: 1, Milli: 1, CPU: 10}, 1)
	cluster := func(cpu, freeCPU MilliCPU, freeGPU MilliGPU) Capacity {
		return Capacity{GPU: 200_000, FreeGPU: freeGPU, CPU: cpu, FreeCPU: freeCPU}
	}
	for name, c := range map[string]struct {
		mix      *Mix
		capacity Capacity
		want     MilliCPU
	}{
		"nothing known":                    {&Mix{}, cluster(1_000_000, 500_000, 100_000), 0},
		"CPU in plenty":                    {&gpuPods, cluster(2_000_000, 1_200_000, 100_000), 8000},
		"CPU just enough":                  {&gpuPods, cluster(1_600_000, 800_000, 100_000), 8000},
		"scarce: what is left":             {&gpuPods, cluster(1_560_000, 760_000, 100_000), 7600},
		"scarce: never below nine tenths":  {&gpuPods, cluster(1_200_000, 400_000, 100_000), 7200},
		"scarce: never above one and half": {&gpuPods, cluster(3_300_000, 1_500_000, 100_000), 12000},
		"scarce: never above what all use": {&gpuPods, cluster(1_900_000, 900_000, 50_000), 10000},
		"scarce, no GPU left":              {&gpuPods, cluster(1_500_000, 100_000, 0), 8000},
		"a tiny mix on a vast cluster":     {&tiny, Capacity{GPU: 1e9, FreeGPU: 1e9, CPU: 1e12, FreeCPU: 5e11}, 15_000},
		"scarce, CPU overcommitted":        {&gpuPods, cluster(800_000, 0, 100_000), 7200},
	} {
		t.Run(name, func(t *testing.T) {
			if got := cpuRatio(c.mix, c.capacity); got != c.want {
				t.Errorf("%d, want %d", got, c.want)
			}
		})
	}
}

func TestEmptyDemandIsBestFit(t *testing.T) {
	empty := Capacity{Models: map[string]MilliGPU{}}
	for name, d := range map[string]*Demand{
		"zero value": {}, "empty mix": NewDemand(&Mix{}, CapacityOf(gpuNode("n", 8), 64000)), "no capacity": NewDemand(&Mix{}, empty), "nothing at all": NewDemand(&Mix{}, Capacity{}),
	} {
		t.Run(name, func(t *testing.T) {
			balance := Packer{Rules: NewRules(Slots), Ranker: Balance{Terms: AllTerms, Demand: d}}
			fit := Packer{Rules: NewRules(Slots), Ranker: Balance{Demand: d}}
			n := load(load(gpuNode("n", 4), 1, runs(fixed(30, 100))), 2, runs(fixed(60, 100)))
			for _, pod := range []*Pod{podOf(fixed(20, 100)), podOf(fixed(50, 100)), podOf(fixed(100, 100)), wide(2, fixed(100, 100)), podOf()} {
				got, _, gotRefusal := balance.Place(n, pod)
				want, _, wantRefusal := fit.Place(n, pod)
				if diff := cmp.Diff(want, got); diff != "" || gotRefusal != wantRefusal {
					t.Errorf("%q for %q: %s", gotRefusal, wantRefusal, diff)
				}
			}
		})
	}
}

// TestDemandWithoutCapacity: a demand for a cluster without GPUs, or for models that it does not have, causes no division by
// zero.
func TestDemandWithoutCapacity(t *testing.T) {
	var m Mix
	m.Add(Shape{VGPUs: 2, Milli: 500, CPU: 4000, Models: "H200,X1"}, 3)
	m.Add(Shape{VGPUs: 0, CPU: 4000}, 3)
	for _, c := range []Capacity{{}, {GPU: 1000, Models: map[string]MilliGPU{"A100": 1000}}} {
		t.Run(fmt.Sprint(c.GPU), func(t *testing.T) {
			d := NewDemand(&m, c)
			for model, p := range d.scarcity {
				if p != 0 && model != "A100" {
					t.Errorf("scarcity %d on %s", p, model)
				}
			}
			packer := Packer{Rules: NewRules(Slots), Ranker: Balance{Terms: AllTerms, Demand: d}}
			if _, _, refusal := packer.Place(gpuNode("n", 2), wide(2, fixed(100, 100))); refusal != Admitted {
				t.Error(refusal)
			}
		})
	}
}

func TestCapacity(t *testing.T) {
	n := gpuNode("n", 3)
	n.Slices[1].Healthy, n.Slices[2].Model = false, "H200"
	n.Loads[0].Add(runs(fixed(50, 50)))
	n.CPU = 10_000
	got := CapacityOf(n, 48_000)
	want := Capacity{
		GPU: 3000, FreeGPU: 750 + 1000, CPU: 48_000, FreeCPU: 10_000, Models: map[string]MilliGPU{"A100": 2000, "H200": 1000},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	n.CPU = -1 // overcommitted: nothing is free
	if got := CapacityOf(n, 48_000).FreeCPU; got != 0 {
		t.Errorf("free CPU %d", got)
	}
	sum := Capacity{Models: map[string]MilliGPU{}}
	sum.Add(want, 1)
	sum.Add(want, 1)
	sum.Add(want, -1)
	if diff := cmp.Diff(want, sum); diff != "" {
		t.Error(diff)
	}
}
