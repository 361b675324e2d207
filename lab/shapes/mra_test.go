package shapes

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gshare-dev/gshare/vgpu/packing"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// TestRepackSavesGPUs: in two arrival orders of the paper's eight pods, which all fit one GPU, only a packing that packs again finds room.
func TestRepackSavesGPUs(t *testing.T) {
	shape := map[rune]Pod{'R': percent(40, 12), 'N': percent(40, 24), 'B': percent(60, 50)}
	for _, order := range []string{"RRRRNNBB", "RNBRNBRR"} {
		for policy, want := range map[string]int{"mra": 2, "mra-repack": 1, "best-area": 1} {
			t.Run(order+" "+policy, func(t *testing.T) {
				var pods []Pod
				for _, r := range order {
					pods = append(pods, shape[r])
				}
				if got, err := Fill(t.Context(), newFleet(t, policy, Config{GPUs: 8}), pods); err != nil || got != want {
					t.Errorf("%d GPUs, %v; want %d", got, err, want)
				}
			})
		}
	}
}

// TestBestAreaIsTheProfile: best-area puts pods that come and go where the scheduler's rules for profile gshare-rectangle put them.
func TestBestAreaIsTheProfile(t *testing.T) {
	for _, reserve := range []share.PerMille{0, 50} {
		t.Run(fmt.Sprint(reserve), func(t *testing.T) {
			fleet, live := newFleet(t, "best-area", Config{GPUs: 4, Reserve: reserve}), newProfile(4, reserve)
			random, refused, repacked := rand.New(rand.NewPCG(18, 3)), 0, 0
			for id, p := range Draw(Families()["papermix"], 400, 18) {
				got, ok := fleet.Place(id, p)
				want, again, fits := live.place(id, p)
				if ok != fits || ok && got != want {
					t.Fatalf("pod %d, %v: GPU %d %v, want %d %v", id, p, got, ok, want, fits)
				}
				if !ok {
					refused++
				}
				if again {
					repacked++
				}
				for len(live.on) > 0 && random.IntN(5) < 2 {
					leaving := live.on[random.IntN(len(live.on))]
					live.remove(leaving)
					fleet.Remove(leaving.id)
				}
			}
			if refused < 10 || repacked < 10 {
				t.Errorf("%d pods refused, %d placed after packing again: the cases are one-sided", refused, repacked)
			}
		})
	}
}

// profile is a cluster of nodes with one GPU, on which the scheduler's packer places pods.
type profile struct {
	packer packing.Packer
	nodes  []*packing.Node
	on     []residentPod
}

type residentPod struct {
	id, node int
	packing.Resident
}

func newProfile(gpus int, reserve share.PerMille) *profile {
	p := &profile{packer: packing.Packer{Rules: packing.NewRules(packing.Rectangles), Ranker: packing.BestArea{}}}
	for range gpus {
		slice := packing.Slice{ID: "gpu", Device: "gpu", SMs: 100, Classes: []share.Isolation{share.MPS}, Healthy: true, Reserve: reserve, MaxShares: 100}
		p.nodes = append(p.nodes, packing.NewNode("", []packing.Slice{slice}, 0, 0))
	}
	return p
}

// place places a pod on the node of the least rank and reports whether its slice had to be packed again.
func (p *profile) place(id int, pod Pod) (node int, again, fits bool) {
	sh := share.Share{SMRequest: pod.SM, SMLimit: pod.SM, QuotaRequest: pod.Quota, QuotaLimit: pod.Quota}
	request := &packing.Pod{Request: share.Request{Containers: []share.Container{{VGPUs: 1, Share: sh}}}}
	best, least := -1, packing.Rank(0)
	for k, n := range p.nodes {
		if _, rank, refusal := p.packer.Place(n, request); refusal == packing.Admitted && (best < 0 || rank < least) {
			best, least = k, rank
		}
	}
	if best < 0 {
		return 0, false, false
	}
	p.on = append(p.on, residentPod{id, best, packing.Resident{Model: packing.Rectangles, Class: share.MPS, Share: sh}})
	p.load(best)
	const tieBits, tier = 20, packing.Rank(share.WholeArea + 1)
	return best, least>>tieBits/tier == 1, true
}

func (p *profile) remove(r residentPod) {
	p.on = slices.DeleteFunc(p.on, func(o residentPod) bool { return o.id == r.id })
	p.load(r.node)
}

// load loads the slice of a node with the pods that are on it.
func (p *profile) load(node int) {
	p.nodes[node].Loads[0] = packing.Load{}
	for _, r := range p.on {
		if r.node == node {
			p.nodes[node].Loads[0].Add(r.Resident)
		}
	}
}
