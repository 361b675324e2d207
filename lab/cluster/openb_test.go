package cluster

import (
	"math"
	"testing"
)

// Means of ten published runs of each policy at the end of openb's default list, GPU allocated in percent, and of FGD on other
// lists, from the results that FGD's authors published. One run of ours lies within three of their
// deviations.
func TestOpenbPublished(t *testing.T) {
	for _, c := range []struct {
		list, policy   string
		want, distance float64
	}{
		{"default", "random", 87.47, 0.6},
		{"default", "dotproduct", 90.85, 0.5},
		{"default", "clustering", 91.88, 0.6},
		{"default", "packing", 92.00, 0.9},
		{"default", "bestfit", 93.08, 0.5},
		{"default", "fgd", 95.39, 0.3},
		{"cpu250", "fgd", 93.41, 1.3},
		{"gpushare100", "fgd", 86.90, 0.5},
		{"multigpu50", "fgd", 97.18, 0.4},
	} {
		t.Run(c.list+"/"+c.policy, func(t *testing.T) {
			t.Parallel()
			if got := runOpenb(t, c.list, c.policy, RandomOrder).AllocatedEnd; math.Abs(got-c.want) > c.distance {
				t.Errorf("%.2f %% allocated, published %.2f %%", got, c.want)
			}
		})
	}
}

// The floors are above FGD's published means and below what was measured.
func TestOpenbBeatsFGD(t *testing.T) {
	for list, floor := range map[string]struct{ full, end float64 }{
		"default": {95.5, 95.7}, "cpu250": {94.2, 94.5}, "gpushare100": {86.8, 87.0}, "gpuspec10": {95.4, 95.6},
		"gpuspec33": {93.5, 95.0}, "multigpu30": {96.5, 96.6}, "multigpu50": {97.1, 97.3},
	} {
		t.Run(list, func(t *testing.T) {
			t.Parallel()
			r := runOpenb(t, list, "gshare", RandomOrder)
			if r.AllocatedFull < floor.full || r.AllocatedEnd < floor.end {
				t.Errorf("%.2f %% and %.2f %% allocated, want %.1f %% and %.1f %%", r.AllocatedFull, r.AllocatedEnd, floor.full, floor.end)
			}
		})
	}
}

// The order of the nodes does not matter to gshare: one run differs from another by no more than two seeds do.
func TestOpenbOrdersAreAllTheSame(t *testing.T) {
	random := runOpenb(t, "default", "gshare", RandomOrder).AllocatedEnd
	for _, order := range []string{FileOrder, CPUPoorFirst, MostGPUs} {
		if got := runOpenb(t, "default", "gshare", order).AllocatedEnd; math.Abs(got-random) > 0.25 {
			t.Errorf("%s: %.2f %% allocated, %.2f %% in a random order", order, got, random)
		}
	}
}

// FGD's figures depend on the tie-break and on the order of nodes (docs/packing.md). A measurement that did not show this would not
// show the merits of gshare either.
func TestOpenbShowsWhatFGDDependsOn(t *testing.T) {
	if got := runOpenb(t, "default", "fgd-stock", RandomOrder).AllocatedEnd; got > 92 {
		t.Errorf("random ties: %.2f %% allocated, want about 90 %%", got)
	}
	if got := runOpenb(t, "default", "fgd", CPUPoorFirst).AllocatedEnd; got > 88 {
		t.Errorf("CPU-poor nodes first: %.2f %% allocated, want about 85.5 %%", got)
	}
}

func runOpenb(t *testing.T, list, policy, order string) Result {
	t.Helper()
	nodes, pods := openb(t, list, 1)
	return run(t, Config{Nodes: nodes, Pods: pods, Policy: policy, Order: order, Load: 1.3, Seed: 1})
}
