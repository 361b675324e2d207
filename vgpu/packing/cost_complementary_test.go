package packing

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/gshare-dev/gshare/vgpu/share"
)

func complementary(c Complementary) Packer { return Packer{Rules: NewRules(Slots), Ranker: c} }

// does sets the workload of a resident.
func does(r Resident, workload string) Resident {
	return as(r, func(r *Resident) { r.Use.Workload = workload })
}

func TestComplementaryTiers(t *testing.T) {
	web := func(p *Pod) *Pod { p.Request.Workload = "web"; return p }
	half, most := runs(fixed(50, 100)), runs(fixed(70, 100))
	pod := func() *Pod { return podOf(fixed(30, 100)) }
	for name, c := range map[string]struct {
		node *Node
		pod  *Pod
		want int
	}{
		"affinity before a tighter fit":      {load(load(gpuNode("n", 3), 1, most), 2, does(half, "web")), web(pod()), 2},
		"of affine GPUs the tighter":         {load(load(gpuNode("n", 3), 1, does(half, "web")), 2, does(most, "web")), web(pod()), 2},
		"another workload is no affinity":    {load(load(gpuNode("n", 3), 1, most), 2, does(half, "batch")), web(pod()), 1},
		"no workload is no affinity":         {load(load(gpuNode("n", 3), 1, most), 2, half), pod(), 1},
		"one affine neighbour is enough":     {load(load(gpuNode("n", 3), 1, most), 2, runs(fixed(10, 100)), does(runs(fixed(10, 100)), "web")), web(pod()), 2},
		"affinity does not admit":            {load(load(gpuNode("n", 3), 1, half), 2, does(runs(fixed(80, 100)), "web")), web(pod()), 1},
		"an active GPU before a fresh one":   {load(gpuNode("n", 3), 2, runs(fixed(1, 100))), pod(), 2},
		"a fresh GPU where no active has it": {load(gpuNode("n", 3), 2, runs(fixed(80, 100))), pod(), 0},
		"equal GPUs, the lower one":          {load(load(gpuNode("n", 3), 1, half), 2, half), pod(), 1},
	} {
		t.Run(name, func(t *testing.T) {
			plan, _, refusal := complementary(DiluWeights).Place(c.node, c.pod)
			if refusal != Admitted || plan[0][0].Slice != c.want {
				t.Errorf("%v, %q, want slice %d", plan, refusal, c.want)
			}
		})
	}
}

// TestComplementaryLeavesTheLeast: SMs and memory favour different GPUs, and the weights decide. If the largest score
// won (D6), all results would be reversed.
func TestComplementaryLeavesTheLeast(t *testing.T) {
	// With the pod of 10 % and 8 of 80 GiB: 30 % of the SMs and 70 % of the memory stay free on the first, 80 % and 10 % on
	// the second.
	n := gpuNode("n", 2)
	n = load(n, 0, runs(withMemory(fixed(60, 100), 16)))
	n = load(n, 1, runs(withMemory(fixed(10, 100), 64)))
	pod := podOf(withMemory(fixed(10, 100), 8))
	for _, c := range []struct {
		weights   Complementary
		want      int
		wantScore ppm // of the GPU that wins
	}{
		{Complementary{Alpha: 1000}, 0, 300_000},
		{DiluWeights, 0, 180_000 + 280_000},
		{Complementary{Alpha: 400, Beta: 600}, 1, 320_000 + 60_000},
		{Complementary{Beta: 1000}, 1, 100_000},
	} {
		t.Run(fmt.Sprint(c.weights), func(t *testing.T) {
			plan, _, refusal := complementary(c.weights).Place(n, pod)
			if refusal != Admitted || plan[0][0].Slice != c.want {
				t.Errorf("%+v: %v, %q, want slice %d", c.weights, plan, refusal, c.want)
				return
			}
			if got := c.weights.unusedAfter(n, pod, []Choice{{Pick: plan[0][0]}}); got != c.wantScore {
				t.Errorf("%+v: score %d, want %d", c.weights, got, c.wantScore)
			}
		})
	}
}

func TestComplementarySeveralGPUs(t *testing.T) {
	small := runs(fixed(40, 100))
	n := load(load(gpuNode("n", 4), 1, small), 3, small)
	plan, two, refusal := complementary(DiluWeights).Place(n, wide(2, fixed(30, 100)))
	if refusal != Admitted || plan[0][0].Slice != 1 || plan[0][1].Slice != 3 {
		t.Fatalf("%v, %q, want both active GPUs, each once (D3)", plan, refusal)
	}
	if _, _, refusal = complementary(DiluWeights).Place(n, wide(5, fixed(30, 100))); refusal != TooFewDevices {
		t.Errorf("five vGPUs on four GPUs: %q", refusal)
	}
	full := load(load(n, 0, runs(fixed(90, 100))), 2, runs(fixed(90, 100)))
	if plan, _, refusal = complementary(DiluWeights).Place(full, wide(3, fixed(30, 100))); refusal == Admitted {
		t.Errorf("three vGPUs where two fit: %v (D4: all or none)", plan)
	}
	// A node that needs a fresh GPU ranks behind one that does not, however tight and affine it is.
	pod := wide(2, fixed(30, 100))
	pod.Request.Workload = "web"
	tight := load(gpuNode("n", 4), 0, does(runs(fixed(70, 100)), "web"))
	_, fresh, _ := complementary(DiluWeights).Place(tight, pod)
	if fresh <= two {
		t.Errorf("a fresh GPU ranks %d, two active ones %d", fresh, two)
	}
}

// TestComplementaryCountsEarlierPicks: containers of one pod may share a GPU. The second one finds the first one there,
// and uses no further GPU.
func TestComplementaryCountsEarlierPicks(t *testing.T) {
	n := gpuNode("n", 2)
	pod := podOf(withMemory(fixed(50, 100), 40), withMemory(fixed(30, 100), 20))
	together := []Choice{{Pick: Pick{Slice: 0}}, {Pick: Pick{Slice: 0}, Container: 1}}
	apart := []Choice{{Pick: Pick{Slice: 0}}, {Pick: Pick{Slice: 1}, Container: 1}}
	if got, want := DiluWeights.Rank(n, pod, together), rankOf(costOfUnused+500_000+220_000, 0); got != want {
		t.Errorf("together: %d, want %d", got, want)
	}
	if got, want := DiluWeights.Rank(n, pod, apart), rankOf(2*costOfUnused+500_000+720_000, 0); got != want {
		t.Errorf("apart: %d, want %d", got, want)
	}
}

// TestComplementaryExtremes: ranks stay in order even with the most vGPUs on the emptiest of the largest slices: whatever is
// left over weighs less than a GPU without affinity, and that less than a GPU that was empty.
func TestComplementaryExtremes(t *testing.T) {
	crowd := gpuNode("n", share.MaxVGPUs)
	for i := range crowd.Slices {
		crowd.Slices[i].Memory = share.MaxMemory
	}
	pod := wide(share.MaxVGPUs, share.Share{SMRequest: 1, QuotaRequest: 1, Memory: 1})
	var picks []Choice
	for i := range share.MaxVGPUs {
		picks = append(picks, Choice{Pick: Pick{Slice: i}})
	}
	active := crowd.Clone()
	for i := range active.Loads {
		active.Loads[i].Add(runs(share.Share{SMRequest: 1, QuotaRequest: 1}))
	}
	strangers, fresh := DiluWeights.Rank(active, pod, picks), DiluWeights.Rank(crowd, pod, picks)
	if one := rankOf(costOfUnused, 0); strangers >= one {
		t.Errorf("%d strangers rank %d, not before one fresh GPU with %d", share.MaxVGPUs, strangers, one)
	}
	if cost := int64(fresh) >> tieBits; cost >= costMax {
		t.Errorf("cost %d is at its bound", cost)
	}
	left := DiluWeights.unusedAfter(crowd, pod, picks[:1])
	if left > one || left < one*99/100 || share.MaxVGPUs*int64(left) >= costWithoutAffinity {
		t.Errorf("an empty slice leaves %d", left)
	}
}

// algorithm1 is the printed algorithm with D3, D4 and D6, in floating point and from the shares alone. It returns the score of
// the best choice of GPUs for a pod with one container, or ok false if there is none.
func algorithm1(r Rules, n *Node, pod *Pod) (tiers [2]int, score float64, ok bool) {
	want, taken := pod.Request.Containers[0], map[string]bool{}
	for range want.VGPUs {
		best, bestTier, bestScore := -1, 0, math.Inf(1)
		for i := range n.Slices {
			_, refusal := r.Admit(&n.Slices[i], &n.Loads[i], ShareRequest{pod.Tenant, pod.Request.Terms, want.Share})
			if refusal != Admitted || taken[n.Slices[i].Device] {
				continue
			}
			tier, sm, memory := 2, float64(want.Share.RequestArea())/1e6, float64(want.Share.Memory)
			for _, o := range n.Loads[i].Residents() {
				tier = min(tier, 1)
				if o.Use.Workload == pod.Request.Workload && o.Use.Workload != "" {
					tier = 0
				}
				sm += float64(o.Share.RequestArea()) / 1e6
				memory += float64(o.Share.Memory)
			}
			s := 0.6*(1-sm) + 0.4*(1-memory/float64(n.Slices[i].Memory))
			if best < 0 || tier < bestTier || tier == bestTier && s < bestScore-1e-9 {
				best, bestTier, bestScore = i, tier, s
			}
		}
		if best < 0 {
			return tiers, 0, false
		}
		taken[n.Slices[best].Device] = true
		if bestTier > 0 {
			tiers[bestTier-1]++
		}
		score += bestScore
	}
	return tiers, score, true
}

// randomActive returns a node with four GPUs, most of which have one to three shares of three workloads.
func randomActive(random *rand.Rand) *Node {
	n := gpuNode("n", 4)
	for i := range n.Loads {
		for range random.IntN(4) {
			sh := withMemory(fixed(share.PerMille(5+random.IntN(25)), 100), share.Bytes(1+random.IntN(20)))
			n.Loads[i].Add(does(runs(sh), []string{"", "x", "y"}[random.IntN(3)]))
		}
	}
	return n
}

// TestComplementaryAgreesWithAlgorithm1: on random nodes, every rank equals that of Algorithm 1. As a control, other weights
// must give another rank.
func TestComplementaryAgreesWithAlgorithm1(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 1))
	compared, affine, differ := 0, 0, 0
	for range 2000 {
		n, pod := randomActive(random), wide(1+random.IntN(3), withMemory(fixed(share.PerMille(10+random.IntN(40)), 100), share.Bytes(1+random.IntN(30))))
		pod.Request.Workload = []string{"", "x", "y"}[random.IntN(3)]
		packer := complementary(DiluWeights)
		_, rank, refusal := packer.Place(n, pod)
		tiers, score, ok := algorithm1(packer.Rules, n, pod)
		if ok != (refusal == Admitted) {
			t.Fatalf("refusal %q, Algorithm 1 says %v", refusal, ok)
		}
		if !ok {
			continue
		}
		compared++
		if tiers[0]+tiers[1] < pod.Request.Containers[0].VGPUs {
			affine++
		}
		cost := int64(rank) >> tieBits
		want := float64(int64(tiers[1])*costOfUnused+int64(tiers[0])*costWithoutAffinity) + score*float64(one)
		if math.Abs(float64(cost)-want) > 3 { // a vGPU's cost is rounded down to a millionth, and so is its memory
			t.Fatalf("cost %d, want %f\n%+v\n%+v", cost, want, pod, n)
		}
		if _, other, _ := complementary(Complementary{Alpha: 100, Beta: 900}).Place(n, pod); other != rank {
			differ++
		}
	}
	if compared < 1000 || affine < 100 || differ < compared/2 {
		t.Errorf("%d compared, %d with affinity, %d differ under other weights", compared, affine, differ)
	}
}

// TestHasAffinity: equal names of workloads are affine; missing names are not.
func TestHasAffinity(t *testing.T) {
	for name, c := range map[string]struct {
		a, b Use
		want bool
	}{
		"the same name": {Use{Workload: "a"}, Use{Workload: "a"}, true},
		"another name":  {Use{Workload: "a"}, Use{Workload: "b"}, false},
		"no names":      {Use{}, Use{}, false},
		"one name":      {Use{Workload: "a"}, Use{}, false},
	} {
		if got := c.a.hasAffinity(c.b); got != c.want || c.b.hasAffinity(c.a) != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
