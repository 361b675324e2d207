package packing

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// apart returns the pod with an anti-affinity key.
func apart(pod *Pod, key string) *Pod {
	pod.Request.AntiAffinity = key
	return pod
}

// wishing returns the pod with a preference for full or empty devices.
func wishing(pod *Pod, p share.Packing) *Pod {
	pod.Request.Packing = p
	return pod
}

// randomKeys gives some of the shares on the node one of two keys.
func randomKeys(random *rand.Rand, n *Node) {
	for i := range n.Loads {
		for j := range n.Loads[i].residents {
			n.Loads[i].residents[j].AntiAffinity = []string{"", "", "x", "y"}[random.IntN(4)]
		}
	}
}

// keysOn returns the keys on each device, with their tenants.
func keysOn(n *Node) map[string][]string {
	on := map[string][]string{}
	for i := range n.Loads {
		for _, r := range n.Loads[i].Residents() {
			if r.AntiAffinity != "" {
				on[n.Slices[i].Device] = append(on[n.Slices[i].Device], r.Tenant+"/"+r.AntiAffinity)
			}
		}
	}
	return on
}

// onAnything returns the pod with the same kind of slice for all containers, and any GPU model.
func onAnything(pod *Pod) *Pod {
	pod.Request.Models, pod.Request.Slice = nil, []string{share.WholeGPU, share.AnyMIG}[len(pod.Request.Containers)%2]
	for c := range pod.Request.Containers {
		pod.Request.Containers[c].Slice = ""
	}
	return pod
}

// existsApart tries every slice for every vGPU, in every order, without using the packer's rule for devices.
func existsApart(rules Rules, n *Node, pod *Pod, c, v int, used []string) bool {
	if c == len(pod.Request.Containers) {
		return true
	}
	container := pod.Request.Containers[c]
	if v == container.VGPUs {
		return existsApart(rules, n, pod, c+1, 0, nil)
	}
	ask := ShareRequest{Tenant: pod.Tenant, Terms: pod.Request.TermsOf(c), Share: container.Share}
	for i := range n.Slices {
		device := n.Slices[i].Device
		class, refusal := rules.Admit(&n.Slices[i], &n.Loads[i], ask)
		if refusal != Admitted || slices.Contains(used, device) || slices.Contains(keysOn(n)[device], pod.Tenant+"/"+pod.Request.AntiAffinity) {
			continue
		}
		next := n.Clone()
		next.Loads[i].Add(Resident{
			Tenant: pod.Tenant, Model: rules.Model, Class: class, Share: container.Share, AntiAffinity: pod.Request.AntiAffinity,
		})
		if existsApart(rules, next, pod, c, v+1, append(slices.Clone(used), device)) {
			return true
		}
	}
	return false
}

// TestAntiAffinityFindsAPlaceIffThereIsOne: random pods with a key are placed if and only if there is a place that satisfies the definition:
// no device has the key twice. Admits agrees with that, and what is placed satisfies the definition.
func TestAntiAffinityFindsAPlaceIffThereIsOne(t *testing.T) {
	for _, m := range []Model{Slots, Rectangles} {
		t.Run(string(m), func(t *testing.T) {
			random := rand.New(rand.NewPCG(11, 11))
			packer := bestFit(m)
			found, refusals := map[bool]int{}, map[Refusal]int{}
			for i := range 5000 {
				mix := random.IntN(2) == 0
				n := mixing(randomNode(random, m), mix)
				randomKeys(random, n)
				pod := apart(randomPod(random), "x")
				if random.IntN(2) == 0 {
					pod = onAnything(pod)
				}
				want := existsApart(packer.Rules, n, pod, 0, 0, nil)
				plan, _, refusal := packer.Place(n, pod)
				if want != (refusal == Admitted) {
					t.Fatalf("set %d: Place says %q, an assignment exists: %v\n%+v\n%+v", i, refusal, want, pod, n)
				}
				found[want]++
				refusals[refusal]++
				if !want {
					continue
				}
				if !packer.Admits(n, pod, plan) {
					t.Fatalf("set %d: Place and Admits disagree about %v", i, plan)
				}
				before := keysOn(n)
				n.Take(m, pod, plan)
				for _, picks := range plan {
					for _, pick := range picks {
						if device := n.Slices[pick.Slice].Device; !slices.Contains(keysOn(n)[device], "a/x") {
							t.Fatalf("set %d: device %s holds no key of the pod that is on it", i, device)
						}
					}
				}
				for device, keys := range keysOn(n) {
					if own := "a/x"; count(keys, own) > max(1, count(before[device], own)) {
						t.Fatalf("set %d: device %s holds %v", i, device, keys)
					}
				}
			}
			if found[true] < 500 || found[false] < 500 || refusals[Repelled] < 50 || refusals[NoJointPlacement] < 20 {
				t.Errorf("the cases are one-sided: %v %v", found, refusals)
			}
		})
	}
}

func count(list []string, of string) (n int) {
	for _, s := range list {
		if s == of {
			n++
		}
	}
	return n
}

func TestAntiAffinity(t *testing.T) {
	small := fixed(10, 100)
	twoGPUs := []Slice{gpu("a", "A100"), gpu("b", "A100")}
	instances := []Slice{instanceOf("a0", "a", "1g.10gb"), instanceOf("a1", "a", "1g.10gb"), instanceOf("b0", "b", "1g.10gb")} // a1 and b0 differ in the device
	for name, tc := range map[string]struct {
		slices []Slice
		there  Resident // on the first slice
		mix    bool
		pod    *Pod
		want   Refusal
		on     []int // slices, if admitted
	}{
		"the same key":              {twoGPUs[:1], Resident{Tenant: "a", AntiAffinity: "x"}, false, apart(podOf(small), "x"), Repelled, nil},
		"another device":            {twoGPUs, Resident{Tenant: "a", AntiAffinity: "x"}, false, apart(podOf(small), "x"), Admitted, []int{1}},
		"another key":               {twoGPUs, Resident{Tenant: "a", AntiAffinity: "y"}, false, apart(podOf(small), "x"), Admitted, []int{0}},
		"no key there":              {twoGPUs, Resident{Tenant: "a"}, false, apart(podOf(small), "x"), Admitted, []int{0}},
		"no key of its own":         {twoGPUs, Resident{Tenant: "a", AntiAffinity: "x"}, false, podOf(small), Admitted, []int{0}},
		"another namespace's key":   {twoGPUs[:1], Resident{Tenant: "b", AntiAffinity: "x"}, true, apart(podOf(small), "x"), Admitted, []int{0}},
		"another slice of a device": {instances[:2], Resident{Tenant: "a", AntiAffinity: "x"}, false, apart(onMIG(podOf(small)), "x"), Repelled, nil},
		"an equal slice elsewhere":  {instances, Resident{Tenant: "a", AntiAffinity: "x"}, false, apart(onMIG(podOf(small)), "x"), Admitted, []int{2}},
		"two vGPUs, one left": {
			[]Slice{instances[0], instances[2], instances[1]}, Resident{Tenant: "a", AntiAffinity: "x"}, false, apart(onMIG(wide(2, small)), "x"), Repelled, nil,
		},
		"two containers":           {twoGPUs, Resident{Tenant: "a"}, false, apart(podOf(small, small), "x"), Admitted, []int{0, 1}},
		"two containers, no key":   {twoGPUs, Resident{Tenant: "a"}, false, podOf(small, small), Admitted, []int{0, 0}},
		"two containers, one left": {twoGPUs, Resident{Tenant: "a", AntiAffinity: "x"}, false, apart(podOf(small, small), "x"), NoJointPlacement, nil},
	} {
		t.Run(name, func(t *testing.T) {
			packer := bestFit(Slots)
			n := mixing(NewNode("n", slices.Clone(tc.slices), 64000, 256<<30), tc.mix)
			tc.there.Model, tc.there.Class, tc.there.Share = Slots, share.MPS, small
			n.Loads[0].Add(tc.there)
			plan, _, refusal := packer.Place(n, tc.pod)
			var on []int
			for _, picks := range plan {
				on = append(on, picks[0].Slice)
			}
			if refusal != tc.want || !slices.Equal(on, tc.on) {
				t.Errorf("%q on %v, want %q on %v", refusal, on, tc.want, tc.on)
			}
		})
	}
}

func onMIG(pod *Pod) *Pod {
	pod.Request.Slice = share.AnyMIG
	return pod
}

// TestWishComesFirst: a pod with a preference gets the emptiest or fullest device that admits it, on whatever node. Among equally full devices
// the profile decides.
func TestWishComesFirst(t *testing.T) {
	random := rand.New(rand.NewPCG(12, 12))
	demand, _, _ := randomWorld(random)
	for _, ranker := range []Ranker{Balance{Terms: AllTerms, Demand: demand}, DiluWeights, BestArea{}} {
		t.Run(fmt.Sprintf("%T", ranker), func(t *testing.T) {
			packer, placed, chosen := Packer{Rules: NewRules(Slots), Ranker: ranker}, 0, 0
			for range 2500 {
				n := stored(randomNode(random, Slots))
				for i := range n.Slices {
					n.Slices[i].Healthy = true
				}
				pod := podOf(withMemory(fixed(share.PerMille(10+10*random.IntN(4)), 100), 1))
				if random.IntN(2) == 0 {
					pod.Request.Weights = weights(1, 1)
				}
				wish := []share.Packing{share.Binpack, share.Spread}[random.IntN(2)]
				_, plain, _ := packer.Place(n, pod)
				wishing(pod, wish)
				plan, rank, refusal := packer.Place(n, pod)
				if refusal != Admitted {
					continue
				}
				placed++
				got := n.fullness(pod, nil, plan[0][0].Slice)
				least, most := int64(fullSteps), int64(0)
				for i := range n.Slices {
					ask := packer.shareRequest(pod, 0)
					if _, refused := packer.Rules.AdmitOn(n, i, ask); refused == Admitted {
						least, most = min(least, n.fullness(pod, nil, i)), max(most, n.fullness(pod, nil, i))
					}
				}
				want, cost := least, least
				if wish == share.Binpack {
					want, cost = most, fullSteps-most
				}
				if got != want {
					t.Fatalf("%s: %d full, of %d to %d", wish, got, least, most)
				}
				if step := Rank(1) << (wishBits + tieBits); rank < Rank(cost)*step-step/2 || rank > Rank(cost)*step+step*3/4 {
					t.Fatalf("%s: rank %d is not that of step %d (without a wish %d)", wish, rank, cost, plain)
				}
				if least < most {
					chosen++
				}
			}
			if placed < 300 || chosen < 100 {
				t.Errorf("%d placed, %d with a choice", placed, chosen)
			}
		})
	}
}

func TestFullness(t *testing.T) {
	whole, half, idleShare := fixed(100, 100), fixed(50, 100), idle(fixed(50, 100))
	for name, tc := range map[string]struct {
		slices []Slice
		loads  []*Load
		want   []int64 // of each slice
	}{
		"a GPU without shares":      {[]Slice{gpu("a", "A100")}, []*Load{{}}, []int64{0}},
		"one that asks for no time": {[]Slice{gpu("a", "A100")}, []*Load{loadOf(runs(idleShare))}, []int64{1}},
		"half":                      {[]Slice{gpu("a", "A100")}, []*Load{loadOf(runs(half))}, []int64{31}},
		"all":                       {[]Slice{gpu("a", "A100")}, []*Load{loadOf(runs(whole))}, []int64{61}},
		"another GPU":               {[]Slice{gpu("a", "A100"), gpu("b", "A100")}, []*Load{loadOf(runs(whole)), {}}, []int64{61, 0}},
		"instances of two GPUs": {[]Slice{instanceOf("a0", "a", "1g.10gb"), instanceOf("a1", "a", "1g.10gb"), instanceOf("b0", "b", "1g.10gb")}, []*Load{loadOf(runs(whole)), {}, {}},
			[]int64{35, 5, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			n := NewNode("n", tc.slices, 0, 0)
			for i, l := range tc.loads {
				n.Loads[i] = *l
			}
			for i, want := range tc.want {
				if got := n.fullness(podOf(half), nil, i); got != want {
					t.Errorf("slice %d is %d full, want %d", i, got, want)
				}
			}
		})
	}
	n, pod := gpuNode("n", 2), podOf(half, half)
	if got := n.fullness(pod, []Choice{{Pick: Pick{Slice: 0}}}, 0); got != 31 {
		t.Errorf("a GPU with the pod's other container is %d full", got)
	}
}

// TestPartsOfARankDoNotMix: the parts of a rank with a preference never outweigh each other. A better step with the worst weights and the
// highest ranker's cost comes before the next step with the best of both, and better weights with the highest ranker's cost come before the
// next step of weights.
func TestPartsOfARankDoNotMix(t *testing.T) {
	n := stored(gpuNode("n", 2))
	pod := wishing(podOf(fixed(10, 100)), share.Spread)
	pod.Request.Weights = weights(1, 1)
	there := n.Clone() // with the weights and hence a share
	there.Loads[0].Add(Resident{Tenant: pod.Tenant, Share: idle(fixed(10, 100)), Weights: pod.Request.Weights})
	bare := there.Clone()
	bare.Loads[0] = Load{}
	bare.Loads[0].Add(Resident{Tenant: pod.Tenant, Share: idle(fixed(10, 100))})
	pick := []Choice{{Pick: Pick{Slice: 0}}}
	best, worst := rankOf(-costMax, 0), rankOf(costMax, tieMax)
	if worse, better := best.with(there, pod, pick), worst.with(n, pod, pick); better >= worse {
		t.Errorf("an empty device ranks %d, one with a share and all else better %d", better, worse)
	}
	if worse, better := best.with(bare, pod, pick), worst.with(there, pod, pick); better >= worse {
		t.Errorf("weights that are there rank %d, such to be loaded %d", better, worse)
	}
	if worse, better := rankOf(1<<rankerLost, 0).with(n, pod, pick), rankOf(0, tieMax).with(n, pod, pick); better >= worse {
		t.Errorf("the ranker prefers %d to %d", worse, better)
	}
	for _, r := range []Rank{best, worst, 0, 12345} {
		if got := r.with(n, podOf(fixed(10, 100)), pick); got != r {
			t.Errorf("without a wish and weights, %d became %d", r, got)
		}
	}
}

// TestBestOfKeysAndWishesEqualsSorting: for pods with keys and preferences, a fleet finds the same nodes as sorting all nodes does, however
// nodes change in between.
func TestBestOfKeysAndWishesEqualsSorting(t *testing.T) {
	random := rand.New(rand.NewPCG(13, 13))
	demand, _, _ := randomWorld(random)
	packer := Packer{Rules: NewRules(Slots), Ranker: Balance{Terms: AllTerms, Demand: demand}}
	pods := []*Pod{
		podOf(fixed(30, 100)), apart(podOf(fixed(30, 100)), "x"), apart(podOf(fixed(30, 100)), "y"), wishing(podOf(fixed(30, 100)), share.Spread),
		wishing(podOf(fixed(30, 100)), share.Binpack), apart(wishing(podOf(fixed(30, 100)), share.Spread), "x"), apart(podOf(fixed(20, 100), fixed(20, 100)), "x"),
	}
	const size = 10
	nodes := make([]*Node, size)
	fleet, version := NewFleet(packer, size), int64(0)
	differ := 0
	for step := range 1500 {
		if i := random.IntN(size); step < size || random.IntN(2) == 0 {
			n := randomNode(random, Slots)
			randomKeys(random, n)
			n.Name = fmt.Sprint("n", i)
			if old := nodes[i]; old != nil && random.IntN(3) == 0 { // the same node with another key, which no cache may confuse with the old one
				n = old.Clone()
				for k := range n.Loads {
					n.Loads[k].residents = slices.Clone(n.Loads[k].residents)
				}
				randomKeys(random, n)
				if n.Equals(old) != gocmp.Equal(keysOn(n), keysOn(old)) && n.Equals(old) {
					t.Fatal("nodes with different keys are equal")
				}
			}
			nodes[i] = n
			version++
			fleet.Set(i, n, version)
		}
		at := random.IntN(len(pods))
		got, want := fleet.Best(fmt.Sprint(at), pods[at], 3, nil), sorted(packer, nodes, pods[at], 3, nil)
		if len(got)+len(want) > 0 && !gocmp.Equal(got, want) {
			t.Fatalf("step %d, pod %d: %s", step, at, gocmp.Diff(want, got))
		}
		single, ok := fleet.BestWithCapacity(fmt.Sprint(at), pods[at])
		if ok != (len(want) > 0) || ok && single != want[0] {
			t.Fatalf("step %d, pod %d: the best one is %v, want %v", step, at, single, want)
		}
		if !gocmp.Equal(want, sorted(packer, nodes, pods[0], 3, nil)) {
			differ++
		}
	}
	if differ < 300 {
		t.Errorf("only %d answers depend on key or wish", differ)
	}
}

// BenchmarkOpenbOfWishes replays openb's lists with pods that prefer full or empty GPUs, and reports the allocation for docs/packing.md.
func BenchmarkOpenbOfWishes(b *testing.B) {
	for _, list := range []string{"default", "gpuspec33", "multigpu50", "cpu250"} {
		for _, c := range []struct {
			name  string
			wish  share.Packing
			every int // one pod in this many has a preference
		}{{"none", share.AnyPacking, 1}, {"binpack", share.Binpack, 1}, {"spread", share.Spread, 1}, {"spread-tenth", share.Spread, 10}} {
			b.Run(list+"/"+c.name, func(b *testing.B) {
				for b.Loop() {
					r := replayOpenbOf(b, list, 0, AllTerms, online, func(i int, pod *Pod) {
						if i%c.every == 0 && len(pod.Request.Containers) > 0 {
							pod.Request.Packing = c.wish
						}
					})
					b.ReportMetric(r.at100, "%@1.0")
					b.ReportMetric(r.at130, "%@1.3")
				}
			})
		}
	}
}
