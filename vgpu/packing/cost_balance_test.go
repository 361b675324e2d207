package packing

import (
	"fmt"
	"testing"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// smallWorld returns the demand of the hand-computed cases: one GPU model, and typical pods that request, equally often, half a GPU and 4
// CPUs, or a whole GPU and 8 CPUs.
func smallWorld() (*Demand, Capacity) {
	var m Mix
	m.Add(Shape{VGPUs: 1, Milli: 500, CPU: 4000}, 10)
	m.Add(Shape{VGPUs: 1, Milli: 1000, CPU: 8000}, 10)
	c := Capacity{GPU: 10_000, FreeGPU: 10_000, CPU: 1_000_000, FreeCPU: 1_000_000, Models: map[string]MilliGPU{"A100": 10_000}}
	return NewDemand(&m, c), c
}

// used returns a node whose GPUs are used to these percentages.
func used(cpu MilliCPU, percents ...int) *Node {
	n := gpuNode("n", len(percents))
	n.CPU = cpu
	for i, p := range percents {
		if p > 0 {
			n.Loads[i].Add(runs(fixed(share.PerMille(p), 100)))
		}
	}
	return n
}

func TestStranded(t *testing.T) {
	d, _ := smallWorld()
	// Below 500 nothing fits; from 500 to 999 the half; then the half or the whole, equally often.
	for r, want := range map[int]ppmMilli{
		0: 0, 1: 1, 499: 499, 500: 0, 700: 200, 999: 499, 1000: 0,
	} {
		t.Run(fmt.Sprint(r), func(t *testing.T) {
			if got := d.stranded[r]; got != want*ppmMilli(one) {
				t.Errorf("W(%d) = %d, want %d millionths of %d", r, got, one, want)
			}
		})
	}
}

func TestFragmentation(t *testing.T) {
	d, _ := smallWorld()
	for name, c := range map[string]struct {
		node *Node
		want ppmMilli // milli-GPU
	}{
		"empty":                   {used(64000, 0, 0), 0},
		"full":                    {used(64000, 100, 100), 0},
		"a quarter left":          {used(64000, 75), 250},           // no typical pod can use it
		"half left":               {used(64000, 50), 250},           // the whole-GPU pods cannot: half of 500
		"half and a quarter left": {used(64000, 50, 75), 125 + 375}, // halves miss 250, wholes miss 750, each in half of the cases
		"no CPU for whole GPUs":   {used(7999, 0), 500},             // wholes miss all
		"no CPU":                  {used(3999, 0), 1000},
		"overcommitted CPU":       {used(-1, 0), 1000},
	} {
		t.Run(name, func(t *testing.T) {
			var v nodeView
			d.fillView(c.node, &v, nil)
			if got := d.fragmentationAfter(&v, nil, 0, 0); got != c.want*ppmMilli(one) {
				t.Errorf("F = %d, want %d milli-GPU", got, c.want)
			}
		})
	}
}

// TestFragmentationOfSeveralPicks checks that F computed from the picks of a pod equals F of the node after it has taken the pod, even if
// several of the pod's containers are on one slice.
func TestFragmentationOfSeveralPicks(t *testing.T) {
	d, _ := smallWorld()
	for _, picks := range [][]int{{0, 0}, {1, 1}, {0, 1}, {1, 0, 1}, {0, 0, 0}} {
		n, pod := used(64000, 0, 25), podOf(fixed(25, 100))
		pod.Request.Weights = weights(0, 20)
		var chosen []Choice
		for i, slice := range picks {
			c := pod.Request.Containers[0]
			if i > 0 {
				pod.Request.Containers = append(pod.Request.Containers, c)
			}
			chosen = append(chosen, Choice{Container: i, Pick: Pick{Slice: slice}})
		}
		var before, after nodeView
		d.fillView(n, &before, nil)
		changes := d.sliceChanges(&before, n, pod, chosen, nil)
		for i, slice := range picks {
			n.Loads[slice].Add(Resident{Tenant: pod.Tenant, Class: share.MPS, Share: pod.Request.Containers[i].Share, Weights: pod.Request.Weights})
		}
		d.fillView(n, &after, nil)
		if got, want := d.fragmentationAfter(&before, changes, 0, 0), d.fragmentationAfter(&after, nil, 0, 0); got != want {
			t.Errorf("picks of slices %v: F = %d, want %d", picks, got, want)
		}
	}
}

func TestCPUShortage(t *testing.T) {
	d, _ := smallWorld()
	if d.cpuRatio != 8000 {
		t.Fatalf("ρ = %d, want 8 CPUs a GPU", d.cpuRatio)
	}
	for cpu, want := range map[MilliCPU]ppmMilli{64000: 0, 16000: 0, 12000: 500, 8000: 1000, 0: 2000, -5000: 2000} {
		t.Run(fmt.Sprint(cpu), func(t *testing.T) {
			var v nodeView
			d.fillView(used(cpu, 0, 0), &v, nil)
			if got := d.cpuShortage(v.total, v.cpu); got != want*ppmMilli(one) {
				t.Errorf("S with two free GPUs and %d milli-CPU = %d, want %d milli-GPU", cpu, got, want)
			}
		})
	}
}

// costOf returns what the terms charge for a half-GPU pod with this much CPU on slice 0 of the node, in millionths of a milli-GPU.
func costOf(d *Demand, terms Terms, n *Node, cpu MilliCPU) int64 {
	pod := podOf(fixed(50, 100))
	pod.CPU = cpu
	return int64(Balance{Terms: terms, Demand: d}.Rank(n, pod, []Choice{{Pick: Pick{Slice: 0}}})) >> tieBits
}

func TestCostTermByTerm(t *testing.T) {
	d, _ := smallWorld()
	d.scarcity = map[string]ppm{"A100": one / 4}
	milli := int64(one)
	for name, c := range map[string]struct {
		terms Terms
		node  *Node
		cpu   MilliCPU
		want  int64
	}{
		"nothing":                          {Terms{}, used(64000, 0), 4000, 0},
		"F: a whole GPU is broken":         {Terms{Fragmentation: true}, used(64000, 0), 4000, 250 * milli},
		"F: a half GPU is used up":         {Terms{Fragmentation: true}, used(64000, 50), 4000, -250 * milli},
		"F: the CPU for whole GPUs goes":   {Terms{Fragmentation: true}, used(12000, 50, 0), 4001, (500 - 250) * milli},
		"W: nothing is stranded":           {Terms{Stranding: true}, used(64000, 0), 4000, 0},
		"W: a sliver less":                 {Terms{Stranding: true}, used(64000, 30), 4000, 0},
		"S: less CPU than usual":           {Terms{CPUShortage: true}, used(8000, 0), 8000, 500 * milli},
		"S: as much CPU as usual":          {Terms{CPUShortage: true}, used(8000, 0), 4000, 0},
		"S: less CPU than the GPU takes":   {Terms{CPUShortage: true}, used(4000, 0), 1000, (125 - 500) * milli},
		"press: a quarter of what it uses": {Terms{Scarcity: true}, used(64000, 0), 4000, 125 * milli},
		"all of them":                      {AllTerms, used(8000, 0), 8000, (500 + 0 + 500 + 125) * milli},
	} {
		t.Run(name, func(t *testing.T) {
			if got := costOf(d, c.terms, c.node, c.cpu); got != c.want {
				t.Errorf("cost %d, want %d", got, c.want)
			}
		})
	}
}

func TestStrandingIsHalfOfTheChange(t *testing.T) {
	d, _ := smallWorld()
	pod := podOf(fixed(30, 100))
	rank := Balance{Terms: Terms{Stranding: true}, Demand: d}.Rank(used(64000, 0), pod, []Choice{{}})
	// W(700) - W(1000) = 200.
	if got := int64(rank) >> tieBits; got != 100*int64(one) {
		t.Errorf("cost %d, want 100 milli-GPU", got)
	}
	// Two shares of one pod on one slice change its W once: W(400) - W(1000) = 400.
	pod = podOf(fixed(30, 100), fixed(30, 100))
	rank = Balance{Terms: Terms{Stranding: true}, Demand: d}.Rank(used(64000, 0), pod, []Choice{{}, {Container: 1}})
	if got := int64(rank) >> tieBits; got != 200*int64(one) {
		t.Errorf("cost of two %d, want 200 milli-GPU", got)
	}
}

// TestNoTermsIsBestFit: without terms, the tightest node wins: the one with the least GPU left, where CPU counts at the usual ratio.
func TestNoTermsIsBestFit(t *testing.T) {
	d, _ := smallWorld()
	pod := podOf(fixed(50, 100))
	rank := func(n *Node) Rank { return Balance{Demand: d}.Rank(n, pod, []Choice{{}}) }
	if got := rank(used(9000, 0, 75)); got != 500+250+1000 {
		t.Errorf("rank %d, want 750 milli-GPU and 8 CPUs left", got)
	}
	if rank(used(64000, 50)) >= rank(used(64000, 0)) || rank(used(64000, 0)) >= rank(used(64000, 0, 0)) {
		t.Error("the tighter node ranks behind")
	}
	if rank(used(32000, 0)) >= rank(used(64000, 0)) {
		t.Error("the node with less CPU ranks behind")
	}
}

// TestPlentifulCPUDoesNotHideTheGPUs: if pods request hardly any CPU, a node's free CPU is worth more GPUs than there are. The GPUs must
// still make a difference.
func TestPlentifulCPUDoesNotHideTheGPUs(t *testing.T) {
	d, _ := smallWorld()
	d.cpuRatio = 10
	rank := func(n *Node) Rank { return Balance{Demand: d}.Rank(n, podOf(fixed(50, 100)), []Choice{{}}) }
	if rank(used(64000, 50)) >= rank(used(64000, 0)) {
		t.Error("the tighter node ranks no better")
	}
}
