package packing

import (
	"math/rand/v2"
	"testing"

	"github.com/gshare-dev/gshare/vgpu/mig"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// onDemand is a node with one GPU of eight memory slices, on which instances of one, two and four slices are made on demand.
func onDemand() *Node {
	var slices []Slice
	for _, kind := range []struct {
		size    int
		profile string
	}{{1, "1g.10gb"}, {2, "2g.20gb"}, {4, "3g.40gb"}} {
		size, profile := kind.size, kind.profile
		for start := 0; start+size <= 8; start += size {
			slices = append(slices, Slice{
				ID: SliceID(profile + string(rune('0'+start))), Device: "GPU-0", Model: "A100", Profile: profile, SMs: 14 * size,
				Memory: share.Bytes(size) << 30, Classes: []share.Isolation{share.Exclusive, share.MPS}, Healthy: true, Reserve: 50,
				MaxShares: 16, MemorySlices: uint8((1<<size - 1) << start),
			})
		}
	}
	return NewNode("n", slices, 0, 0)
}

func asking(profile string, sm, quota share.PerMille) *Pod {
	s := share.Share{SMRequest: sm, SMLimit: sm, QuotaRequest: quota, QuotaLimit: quota, Memory: share.MiB}
	return &Pod{Request: share.Request{
		Terms: share.Terms{Slice: profile}, Containers: []share.Container{{Name: "c", VGPUs: 1, Share: s}},
	}}
}

// TestRooms: pods that ask for a profile, or for any, get slices whose rooms are disjoint, as long as there are any, and
// several share one.
func TestRooms(t *testing.T) {
	packer := Packer{Rules: NewRules(Slots), Ranker: Balance{Demand: &Demand{}}}
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 1))
		n := onDemand()
		for range 40 {
			pod := asking([]string{"1g.10gb", "2g.20gb", "3g.40gb", share.AnyMIG}[random.IntN(4)], 500, share.PerMille(200+100*random.IntN(9)))
			plan, _, refusal := packer.Place(n, pod)
			if refusal != Admitted {
				checkFull(t, packer, n, pod)
				continue
			}
			slice := n.Slices[plan[0][0].Slice]
			if kind := pod.Request.Slice; kind != share.AnyMIG && kind != slice.Profile {
				t.Fatalf("asked for %s, got %s", kind, slice.Profile)
			}
			if !packer.Admits(n, pod, plan) {
				t.Fatal("what was placed is not admitted")
			}
			n.Take(Slots, pod, plan)
			var taken uint8
			for i := range n.Slices {
				if room := n.Slices[i].MemorySlices; !n.Loads[i].Empty() {
					if taken&room != 0 {
						t.Fatalf("seed %d: two slices have the same room", seed)
					}
					taken |= room
				}
			}
		}
	}
}

// checkFull tries every slice by hand.
func checkFull(t *testing.T, p Packer, n *Node, pod *Pod) {
	t.Helper()
	for i := range n.Slices {
		free := true
		for j := range n.Slices {
			free = free && (i == j || n.Loads[j].Empty() || n.Slices[j].MemorySlices&n.Slices[i].MemorySlices == 0)
		}
		if _, refusal := p.Rules.Admit(&n.Slices[i], &n.Loads[i], p.shareRequest(pod, 0)); free && refusal == Admitted {
			t.Fatalf("%s would have had room", n.Slices[i].ID)
		}
	}
}

// TestOtherDevices: rooms on other devices are not in the way.
func TestOtherDevices(t *testing.T) {
	n := onDemand()
	n.Slices = append(n.Slices, n.Slices...)
	n.Loads = append(n.Loads, make([]Load, len(n.Slices)/2)...)
	for i := range n.Slices[len(n.Slices)/2:] {
		n.Slices[len(n.Slices)/2+i].Device = "GPU-1"
		n.Slices[len(n.Slices)/2+i].ID += "b"
	}
	packer := Packer{Rules: NewRules(Slots), Ranker: Balance{Demand: &Demand{}}}
	for k := range 5 {
		pod := asking("3g.40gb", 1000, 1000)
		plan, _, refusal := packer.Place(n, pod)
		if (refusal == Admitted) != (k < 4) {
			t.Fatalf("%d halves: %v", k, refusal)
		}
		if refusal == Admitted {
			n.Take(Slots, pod, plan)
		}
	}
}

// TestLeastHarm: of the places of a profile the one is taken that package mig would take.
func TestLeastHarm(t *testing.T) {
	packer := Packer{Rules: NewRules(Slots), Ranker: Balance{Demand: &Demand{}}}
	chooser := mig.NewChooser(onDemand().migModel("GPU-0"))
	random := rand.New(rand.NewPCG(3, 1))
	for range 500 {
		n, layout := onDemand(), mig.Layout{}
		for _, profile := range []string{"1g.10gb", "2g.20gb", "1g.10gb", "3g.40gb", "2g.20gb"}[random.IntN(4):] {
			p, _ := n.migModel("GPU-0").Profile(profile)
			pod := asking(profile, 1000, 1000)
			plan, _, refusal := packer.Place(n, pod)
			_, want, ok := chooser.Choose([]mig.Layout{layout}, p)
			if ok != (refusal == Admitted) {
				t.Fatalf("%s on %08b: %v", profile, layout.Used, refusal)
			}
			if !ok {
				continue
			}
			at := n.Slices[plan[0][0].Slice].migInstance()
			if at.Start != want {
				t.Fatalf("%s on %08b: at %d, want %d", profile, layout.Used, at.Start, want)
			}
			layout = layout.With(at)
			n.Take(Slots, pod, plan)
			if i := random.IntN(len(n.Slices)); !n.Loads[i].Empty() {
				layout = layout.Without(n.Slices[i].migInstance())
				n.Loads[i] = Load{}
			}
		}
	}
}

// TestFragmentationCosts: each option that is an instance to be created has the cost on its own GPU; whole GPUs and instances that exist
// have none.
func TestFragmentationCosts(t *testing.T) {
	first, second := onDemand(), onDemand()
	slices := first.Slices
	for _, s := range second.Slices {
		s.ID, s.Device = "other-"+s.ID, "GPU-1"
		slices = append(slices, s)
	}
	whole := gpu("whole", "A100")
	n := NewNode("n", append(slices, whole), 0, 0)
	used, _ := n.SliceIndex("other-2g.20gb0")
	n.Loads[used].Add(runs(fixed(10, 10)))
	var options []option
	for i := range n.Slices {
		options = append(options, option{Pick: Pick{Slice: i}})
	}
	n.addFragmentationCosts(options)
	model := &mig.Model{Memory: 8, Profiles: []mig.Profile{
		{Memory: 1, Starts: []int{0, 1, 2, 3, 4, 5, 6, 7}}, {Memory: 2, Starts: []int{0, 2, 4, 6}}, {Memory: 4, Starts: []int{0, 4}},
	}}
	for i, o := range options {
		s := &n.Slices[i]
		size, cost := 0, 0
		if s.MemorySlices != 0 && i != used {
			layout := mig.Layout{}
			if s.Device == "GPU-1" {
				layout.Used = mig.Slices(n.Slices[used].MemorySlices)
			}
			at := s.migInstance()
			size, cost = at.Profile.Memory, model.FragmentationCost(layout, at)
		}
		if o.size != size || o.fragmentationCost != cost {
			t.Errorf("%s of %s: size %d, cost %d, want %d and %d", s.ID, s.Device, o.size, o.fragmentationCost, size, cost)
		}
	}
}

// TestBesideOtherInstances: an instance that exists is found although one like it, on a GPU whose instances are made on demand, stands before it in
// the inventory and cannot be made.
func TestBesideOtherInstances(t *testing.T) {
	n := onDemand()
	like := n.Slices[len(n.Slices)-1]
	like.ID, like.Device, like.MemorySlices = "b0", "b", 0
	n.Slices, n.Loads = append(n.Slices, like), append(n.Loads, Load{})
	pod := asking(like.Profile, 100, 1000)
	for i := range n.Slices {
		if s := &n.Slices[i]; s.Device != "b" && s.Profile != like.Profile {
			n.Loads[i].Add(Resident{Tenant: pod.Tenant, Model: Slots, Class: share.MPS, Share: fixed(10, 100)})
		}
	}
	plan, _, refusal := bestFit(Slots).Place(n, pod)
	if refusal != Admitted || plan[0][0].Slice != len(n.Slices)-1 {
		t.Errorf("%v %v", plan, refusal)
	}
}
