package packing

import (
	"fmt"
	"math"
	"testing"

	"github.com/gshare-dev/gshare/vgpu/share"
)

func TestRankOrdersByCostThenTie(t *testing.T) {
	type part struct{ cost, tie int64 }
	ascending := []part{
		{math.MinInt64, 0}, {-costMax, 1}, {-8e9, 0}, {-1, 0}, {-1, tieMax}, {0, 0}, {0, 1}, {0, tieMax}, {1, 0}, {8e9, 5}, {costMax, 0}, {math.MaxInt64, 1},
	}
	for i := 1; i < len(ascending); i++ {
		a, b := ascending[i-1], ascending[i]
		if rankOf(a.cost, a.tie) >= rankOf(b.cost, b.tie) {
			t.Errorf("rank of %v is %d, not below %d of %v", a, rankOf(a.cost, a.tie), rankOf(b.cost, b.tie), b)
		}
	}
	for _, c := range []struct{ a, b part }{
		{part{3, tieMax}, part{3, tieMax + 1}}, {part{3, tieMax}, part{3, math.MaxInt64}}, {part{3, 0}, part{3, -1}}, {part{costMax, 0}, part{costMax + 1, 0}},
	} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			if rankOf(c.a.cost, c.a.tie) != rankOf(c.b.cost, c.b.tie) {
				t.Errorf("%v and %v rank differently", c.a, c.b)
			}
		})
	}
	if worst := rankOf(math.MaxInt64, math.MaxInt64); worst == math.MaxInt64 {
		t.Errorf("the worst rank is %d, which leaves no room below it for nodes that refuse", worst)
	}
	if worst := rankOf(math.MaxInt64, 0); -int64(worst) == math.MinInt64 || int64(worst) < 0 {
		t.Errorf("the worst rank %d cannot be negated", worst)
	}
}

// TestRanksOfExtremesStayInOrder: even for the largest nodes, the rarest models and the most unbalanced mixes, ranks are in
// order and far from their bounds.
func TestRanksOfExtremesStayInOrder(t *testing.T) {
	var m Mix
	rare := Shape{VGPUs: 16, Milli: 1000, CPU: 1, Models: "rare"}
	m.Add(rare, 1_000_000)
	m.Add(Shape{VGPUs: 1, Milli: 1, CPU: 0}, 1)
	c := Capacity{GPU: 100_000_000, FreeGPU: 1, CPU: 1 << 40, FreeCPU: 1 << 39, Models: map[string]MilliGPU{"rare": 16_000, "common": 99_984_000}}
	d := NewDemand(&m, c)
	for model, want := range map[string]ppm{"rare": maxScarcity, "common": 0} {
		t.Run(model, func(t *testing.T) {
			if d.scarcity[model] != want {
				t.Errorf("press(%s) = %d, want %d", model, d.scarcity[model], want)
			}
		})
	}
	packer := Packer{Rules: NewRules(Slots), Ranker: Balance{Terms: AllTerms, Demand: d}}
	var ranks []Rank
	for _, model := range []string{"common", "rare"} {
		for gpus := 1; gpus <= 64; gpus *= 4 {
			n := gpuNode(fmt.Sprint(gpus), gpus)
			for i := range n.Slices {
				n.Slices[i].Model = model
			}
			n.CPU, n.RAM = 1_000_000, 1<<50
			pod := wide(gpus, fixed(100, 100))
			_, rank, refusal := packer.Place(n, pod)
			if refusal != Admitted {
				t.Fatal(refusal)
			}
			if cost := int64(rank) >> tieBits; cost <= -costMax || cost >= costMax {
				t.Errorf("%d %s GPUs: cost %d is at its bound", gpus, model, cost)
			}
			if rare := model == "rare"; rare != (rank > 0) {
				t.Errorf("%d %s GPUs: rank %d", gpus, model, rank)
			}
			ranks = append(ranks, rank)
		}
	}
	if ranks[2] >= ranks[6] {
		t.Errorf("16 common GPUs rank %d, behind 16 rare ones with %d", ranks[2], ranks[6])
	}
}

// TestTieBreakHoldsLargeNodes: a thousand cores with sixteen free GPUs still fit into the tie-break at the usual ratios.
func TestTieBreakHoldsLargeNodes(t *testing.T) {
	var m Mix
	m.Add(Shape{VGPUs: 1, Milli: 1000, CPU: 1000}, 1)
	d := NewDemand(&m, Capacity{GPU: 16_000, FreeGPU: 16_000, CPU: 1_000_000, FreeCPU: 1_000_000})
	rank := func(cpu MilliCPU) Rank {
		n := gpuNode("n", 16)
		n.CPU = cpu
		pod := podOf(share.Share{SMRequest: 1000, QuotaRequest: 1000})
		return Balance{Demand: d}.Rank(n, pod, []Choice{{}})
	}
	if got := rank(1_000_000); got != 15_000+999_000 || got >= tieMax {
		t.Errorf("tie %d, want 15 GPUs and 999 CPUs", got)
	}
	if got := rank(100_000_000); got != 15_000+Rank(maxRemainingCPU) {
		t.Errorf("tie %d, want 15 GPUs and the most of CPU", got)
	}
}
