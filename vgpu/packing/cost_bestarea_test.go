package packing

import (
	"fmt"
	"testing"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// boxed returns a share of tenant "a" on a slice that packs rectangles.
func boxed(s share.Share) Resident {
	return as(runs(s), func(r *Resident) { r.Model = Rectangles })
}

func rectangles() Packer { return Packer{Rules: NewRules(Rectangles), Ranker: BestArea{}} }

func TestBestAreaPrefersFreeThenRepackThenFresh(t *testing.T) {
	// Arranged, 60 x 60 and 40 x 40 (SM x quota) stand corner to corner at the bottom; more fits only in what stays free.
	free := load(gpuNode("n", 1), 0, boxed(fixed(60, 60)))
	fresh := gpuNode("n", 1)
	pod := podOf(fixed(40, 50))
	tier := func(n *Node, pod *Pod) int64 {
		_, rank, refusal := rectangles().Place(n, pod)
		if refusal != Admitted {
			t.Fatal(refusal)
		}
		return int64(rank) >> tieBits / int64(share.WholeArea+1)
	}
	if got := tier(free, pod); got != fitsFree {
		t.Errorf("beside 60 x 60: tier %d", got)
	}
	if got := tier(fresh, pod); got != fitsUnused {
		t.Errorf("on a fresh slice: tier %d", got)
	}
	if got := tier(repackNode(t), repackPod()); got != fitsAfterRepack {
		t.Errorf("where a re-pack is needed: tier %d", got)
	}
}

// The pods of reference values 7.5: 12 % SM x 40 % quota, 24 x 40, 50 x 60.
var paper = map[rune]share.Share{'R': fixed(12, 40), 'N': fixed(24, 40), 'B': fixed(50, 60)}

// repackNode and repackPod are a stage in placing the paper's eight pods at which no free rectangle suffices, although all
// pods fit.
func repackNode(t *testing.T) *Node {
	t.Helper()
	n := gpuNode("n", 1)
	for _, r := range "RRRRNN" {
		n.Loads[0].Add(boxed(paper[r]))
	}
	n.Loads[0].Add(boxed(paper['B']))
	return n
}

func repackPod() *Pod { return podOf(paper['B']) }

func TestBestAreaTakesTheSmallestSufficientRectangle(t *testing.T) {
	for name, c := range map[string]struct {
		node *Node
		pod  *Pod
		want int
	}{
		"the fuller of two":           {load(load(gpuNode("n", 3), 1, boxed(fixed(40, 100))), 2, boxed(fixed(60, 100))), podOf(fixed(40, 100)), 2},
		"a used one before a fresh":   {load(gpuNode("n", 3), 2, boxed(fixed(10, 10))), podOf(fixed(90, 90)), 2},
		"a fresh one where it must":   {load(gpuNode("n", 3), 0, boxed(fixed(60, 100))), podOf(fixed(50, 100)), 1},
		"equal areas, the lower one":  {load(load(gpuNode("n", 3), 1, boxed(fixed(50, 100))), 2, boxed(fixed(50, 100))), podOf(fixed(40, 100)), 1},
		"by the shape, not the total": {load(load(gpuNode("n", 2), 0, boxed(fixed(50, 100))), 1, boxed(fixed(100, 45))), podOf(fixed(100, 50)), 1},
	} {
		t.Run(name, func(t *testing.T) {
			plan, _, refusal := rectangles().Place(c.node, c.pod)
			if refusal != Admitted || plan[0][0].Slice != c.want {
				t.Errorf("%v, %q, want slice %d", plan, refusal, c.want)
			}
		})
	}
}

// TestPaperPodsNeedReserve: the paper's eight pods fill 98.4 % of a GPU, which is possible only with a reserve of 0.
func TestPaperPodsNeedReserve(t *testing.T) {
	for reserve, want := range map[share.PerMille]Refusal{0: Admitted, 50: NoSMTime} {
		t.Run(fmt.Sprint(reserve), func(t *testing.T) {
			n := repackNode(t)
			n.Slices[0].Reserve = reserve
			if _, _, refusal := rectangles().Place(n, repackPod()); refusal != want {
				t.Errorf("got %q, want %q", refusal, want)
			}
		})
	}
}

// TestPaperPodsNeedOneGPUInEveryOrder: if a GPU is re-packed before a new one is used, the eight pods need one GPU in each
// of the 420 orders. Without re-packing, 282 orders need two.
func TestPaperPodsNeedOneGPUInEveryOrder(t *testing.T) {
	orders := 0
	var place func(n *Node, order string, left map[rune]int)
	place = func(n *Node, order string, left map[rune]int) {
		if len(order) == 8 {
			orders++
			if !n.Loads[1].Empty() || !n.Loads[2].Empty() {
				t.Errorf("%s needs more than one GPU", order)
			}
			return
		}
		for _, r := range "RNB" {
			if left[r] == 0 {
				continue
			}
			pod := podOf(paper[r])
			plan, _, refusal := rectangles().Place(n, pod)
			if refusal != Admitted {
				t.Fatalf("%s: %c is refused: %s", order, r, refusal)
			}
			next := n.Clone()
			next.Take(Rectangles, pod, plan)
			left[r]--
			place(next, order+string(r), left)
			left[r]++
		}
	}
	place(gpuNode("n", 3), "", map[rune]int{'R': 4, 'N': 2, 'B': 2})
	if orders != 420 {
		t.Errorf("%d orders, want 420", orders)
	}
}
