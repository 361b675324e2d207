package packing

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// weights lists the weights with this number, and their size in GiB.
func weights(number int, gib share.Bytes) []share.Weights {
	return []share.Weights{{Digest: share.Digest(fmt.Sprintf("sha256:%064x", number)), Memory: gib << 30}}
}

// stored is the node with a model store.
func stored(n *Node) *Node {
	for i := range n.Slices {
		n.Slices[i].Store = true
	}
	return n
}

func TestAdmitWeights(t *testing.T) {
	here, small := func(s *Slice) { s.Store = true }, fixed(10, 100)
	uses := func(tenant string, w []share.Weights) Resident {
		return as(runs(small), func(r *Resident) { r.Tenant, r.Weights = tenant, w })
	}
	terms := func(w ...[]share.Weights) share.Terms { return share.Terms{Weights: slices.Concat(w...)} }
	mix := func(s *Slice) { s.Store, s.MixTenants = true, true }
	checkAll(t, map[string]admission{ // a slice of 80 GiB, and shares of 1 GiB
		"no store":                    {terms: terms(weights(1, 1)), share: small, want: NoStore},
		"no weights, no store":        {share: small, wantClass: share.MPS},
		"all of the slice":            {slice: here, terms: terms(weights(1, 79)), share: small, wantClass: share.MPS},
		"more than the slice":         {slice: here, terms: terms(weights(1, 80)), share: small, want: TooLarge},
		"more than the slice, of two": {slice: here, terms: terms(weights(1, 40), weights(2, 40)), share: small, want: TooLarge},
		"once": {slice: here, load: loadOf(uses("a", weights(1, 40)), uses("a", weights(1, 40))), terms: terms(weights(1, 40)),
			share: withMemory(small, 38), wantClass: share.MPS},
		"once, and no room": {slice: here, load: loadOf(uses("a", weights(1, 40)), uses("a", weights(1, 40))), terms: terms(weights(1, 40)),
			share: withMemory(small, 39), want: NoMemory},
		"others": {slice: here, load: loadOf(uses("a", weights(1, 40))), terms: terms(weights(2, 38)), share: small, wantClass: share.MPS},
		"others, and no room": {
			slice: here, load: loadOf(uses("a", weights(1, 40))), terms: terms(weights(2, 39)), share: small, want: NoMemory},
		"of another namespace": {
			slice: mix, load: loadOf(uses("b", weights(1, 40))), terms: terms(weights(1, 39)), share: small, want: NoMemory},
		"declared larger before": {
			slice: here, load: loadOf(uses("a", weights(1, 70))), terms: terms(weights(1, 1)), share: withMemory(small, 9), wantClass: share.MPS},
		"declared smaller before": {
			slice: here, load: loadOf(uses("a", weights(1, 1))), terms: terms(weights(1, 70)), share: withMemory(small, 9), wantClass: share.MPS},
		"declared smaller before, and no room": {
			slice: here, load: loadOf(uses("a", weights(1, 1))), terms: terms(weights(1, 70)), share: withMemory(small, 10), want: NoMemory},
	})
}

// A tenant's pods with a few weights come and go on three GPUs. At each step the memory of a GPU is that of its pods, and of their distinct
// weights once, as recounted from scratch; a pod is refused only where no GPU could take it by that count, and else joins the GPU on which it
// needs to load least.
func TestWeightsCountOnce(t *testing.T) {
	for _, ranker := range []Ranker{Balance{Demand: &Demand{}}, DiluWeights, BestArea{}} {
		t.Run(fmt.Sprintf("%T", ranker), func(t *testing.T) {
			type placed struct {
				pod   *Pod
				slice int
			}
			random := rand.New(rand.NewPCG(7, 7))
			packer := Packer{Rules: NewRules(Slots), Ranker: ranker}
			var live []placed
			memoryOf := func(slice int, more ...placed) (sum share.Bytes) {
				largest := map[string]share.Bytes{}
				for _, p := range append(slices.Clone(live), more...) {
					if p.slice == slice {
						sum += p.pod.Request.Containers[0].Share.Memory
						for _, w := range p.pod.Request.Weights {
							key := p.pod.Tenant + string(w.Digest)
							largest[key] = max(largest[key], w.Memory)
						}
					}
				}
				for _, memory := range largest {
					sum += memory
				}
				return sum
			}
			refused, shared := 0, 0
			for step := range 4000 {
				if len(live) > 0 && random.IntN(5) < 2 {
					live = slices.Delete(live, 0, 1)
					random.Shuffle(len(live), func(i, j int) { live[i], live[j] = live[j], live[i] })
				}
				n := mixing(stored(gpuNode("n", 3)), true) // built from the pods, as the scheduler does
				for _, p := range live {
					n.Take(Slots, p.pod, Plan{{{Slice: p.slice, Class: share.MPS}}})
				}
				for i := range n.Loads {
					if got, want := n.Loads[i].Memory(), memoryOf(i); got != want || got > n.Slices[i].Memory {
						t.Fatalf("step %d: GPU %d holds %d, want %d, at most %d", step, i, got, want, n.Slices[i].Memory)
					}
				}
				pod := podOf(withMemory(fixed(1, 50), share.Bytes(1+random.IntN(12))))
				pod.Tenant = []string{"a", "a", "b"}[random.IntN(3)]
				for number := range 3 {
					if random.IntN(2) == 0 {
						pod.Request.Weights = append(pod.Request.Weights, weights(number, share.Bytes(5+random.IntN(12)))...)
					}
				}
				plan, _, refusal := packer.Place(n, pod)
				least := share.Bytes(-1) // of the weights to load, where the pod fits
				for i := range n.Slices {
					if now, then := memoryOf(i), memoryOf(i, placed{pod, i}); then <= n.Slices[i].Memory {
						if load := then - now - pod.Request.Containers[0].Share.Memory; least < 0 || load < least {
							least = load
						}
					}
				}
				if (refusal == Admitted) != (least >= 0) {
					t.Fatalf("step %d: Place says %q, a GPU has the memory: %v", step, refusal, least >= 0)
				}
				if refusal != Admitted {
					refused++
					continue
				}
				slice := plan[0][0].Slice
				all := share.MemoryOf(pod.Request.Weights)
				missing := n.Loads[slice].MissingWeights(pod.Tenant, pod.Request.Weights)
				if step := all/loadingSteps + share.MiB; missing > least+step {
					t.Fatalf("the pod has to load %d on GPU %d, %d on another", missing, slice, least)
				}
				if missing < all {
					shared++
				}
				live = append(live, placed{pod, slice})
			}
			if refused < 100 || shared < 500 {
				t.Errorf("%d pods refused, %d shared weights: the test is of little use", refused, shared)
			}
		})
	}
}

// Weights that no other pod has are placed as if they were memory of the pod.
func TestWeightsOfOneAreMemory(t *testing.T) {
	for _, m := range []Model{Slots, Rectangles} {
		random := rand.New(rand.NewPCG(8, 8))
		packer, admitted := bestFit(m), 0
		for i := range 2000 {
			n := stored(randomNode(random, m))
			pod := podOf(withMemory(fixed(share.PerMille(10+10*random.IntN(8)), 100), share.Bytes(1+random.IntN(3))))
			plain := podOf(pod.Request.Containers[0].Share)
			pod.Request.Weights = weights(i, share.Bytes(1+random.IntN(3)))
			plain.Request.Containers[0].Share.Memory += pod.Request.Weights[0].Memory
			plan, _, refusal := packer.Place(n, pod)
			want, _, wantRefusal := packer.Place(n, plain)
			if refusal != wantRefusal || !cmp.Equal(plan, want) {
				t.Fatalf("set %d: %v %q, want %v %q", i, plan, refusal, want, wantRefusal)
			}
			if refusal == Admitted {
				admitted++
			}
		}
		if admitted < 300 || admitted > 1800 {
			t.Errorf("%d pods admitted", admitted)
		}
	}
}

func TestPlaceWithWeightsSucceedsIffAnAssignmentExists(t *testing.T) {
	random := rand.New(rand.NewPCG(9, 9))
	packer, found := bestFit(Slots), map[bool]int{}
	for i := range 2000 {
		n, pod := stored(randomNode(random, Slots)), randomPod(random)
		for k := range n.Loads { // what runs uses some of the weights
			if random.IntN(2) == 0 {
				n.Loads[k].addWeights(pod.Tenant, weights(random.IntN(2), 1))
			}
		}
		pod.Request.Weights = slices.Concat(weights(0, 1), weights(1, share.Bytes(1+random.IntN(2))))
		_, _, refusal := packer.Place(n, pod)
		want := exists(packer.Rules, n, pod, 0, 0, map[string]bool{})
		if want != (refusal == Admitted) {
			t.Fatalf("set %d: Place says %q, an assignment exists: %v\n%+v\n%+v", i, refusal, want, pod, n)
		}
		found[want]++
	}
	if found[true] < 200 || found[false] < 200 {
		t.Errorf("%v: the test is of little use", found)
	}
}

func TestUndoOfWeights(t *testing.T) {
	random := rand.New(rand.NewPCG(10, 10))
	s := search{packer: bestFit(Slots), node: stored(gpuNode("n", 2)), pod: podOf(fixed(10, 50))}
	var states []string
	var undos []func()
	for step := range 4000 {
		if len(undos) == 0 || len(undos) < 40 && random.IntN(2) == 0 {
			s.pod.Request.Weights = weights(random.IntN(3), share.Bytes(1+random.IntN(4)))
			states = append(states, totals(s.node))
			undos = append(undos, s.choose(0, option{Pick: Pick{Slice: random.IntN(2)}}))
			continue
		}
		last := len(undos) - 1
		undos[last]()
		if diff := cmp.Diff(states[last], totals(s.node)); diff != "" {
			t.Fatalf("step %d: %s", step, diff)
		}
		states, undos = states[:last], undos[:last]
	}
}

// A node that holds the weights is the best one, even where all else speaks for another.
func TestBestHoldsTheWeights(t *testing.T) {
	for name, packer := range map[string]Packer{
		"balance":       bestFit(Slots),
		"complementary": {Rules: NewRules(Slots), Ranker: DiluWeights},
		"best area":     {Rules: NewRules(Rectangles), Ranker: BestArea{}},
	} {
		t.Run(name, func(t *testing.T) {
			m := packer.Rules.Model
			full, holds := stored(gpuNode("full", 1)), stored(gpuNode("holds", 8))
			alike := podOf(fixed(50, 100))
			alike.Request.Workload = "resnext"
			full.Take(m, alike, Plan{{{Class: share.MPS}}})
			pod := podOf(fixed(50, 100))
			pod.Request.Workload = "resnext"
			fleet := NewFleet(packer, 2)
			fleet.Set(0, full, 1)
			fleet.Set(1, holds, 1)
			if best := fleet.Best("pod", pod, 1, nil); best[0].Node != 0 {
				t.Fatalf("without weights the pod goes to %v", best)
			}
			pod.Request.Weights = slices.Concat(weights(1, 3), weights(2, 5))
			if best := fleet.Best("pod with weights", pod, 1, nil); best[0].Node != 0 {
				t.Fatalf("weights that are nowhere send the pod to %v", best)
			}
			holder := podOf(fixed(1, 100))
			holder.Request.Weights = weights(1, 3)
			holds.Take(m, holder, Plan{{{Slice: 7, Class: share.MPS}}})
			fleet.Set(1, holds, 2)
			best := fleet.Best("pod with weights", pod, 2, nil)
			if len(best) != 2 || best[0].Node != 1 || best[0].Rank < -costMax || best[1].Rank>>tieBits > costMax {
				t.Fatalf("the pod goes to %v", best)
			}
			if plan, _, _ := packer.Place(holds, pod); plan[0][0].Slice != 7 {
				t.Errorf("on GPU %d, not on the one that holds the weights", plan[0][0].Slice)
			}
		})
	}
}

// TestLoadingCostIsBounded: no pod can ask for so much that ranks overflow, and cost and tie-break survive the sum.
func TestLoadingCostIsBounded(t *testing.T) {
	pod := wide(share.MaxVGPUs, fixed(100, 100))
	pod.Request.Weights = []share.Weights{{Memory: share.MaxMemory}, {Digest: "x", Memory: share.MaxMemory}}
	n := stored(gpuNode("n", share.MaxVGPUs))
	var picks []Choice
	for i := range share.MaxVGPUs {
		picks = append(picks, Choice{Pick: Pick{Slice: i}})
	}
	cost := loadingCost(n, pod, picks)
	if cost != loadingSteps*costOfStep || cost > costMax {
		t.Errorf("loading everything costs %d, want %d, at most %d", cost, loadingSteps*costOfStep, int64(costMax))
	}
	for i := range n.Loads {
		n.Loads[i].addWeights(pod.Tenant, pod.Request.Weights)
	}
	if cost := loadingCost(n, pod, picks); cost != 0 {
		t.Errorf("loading nothing costs %d", cost)
	}
	for _, base := range []int64{-costMax, -5, 0, 7, costMax} {
		if got, want := rankOf(base, 9).Plus(costOfStep), rankOf(base+costOfStep, 9); got != want || got < rankOf(base, 9) {
			t.Errorf("%d plus a step is %d, want %d", base, got, want)
		}
	}
}
