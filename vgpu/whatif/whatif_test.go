package whatif

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/gshare-dev/gshare/vgpu/packing"
	"github.com/gshare-dev/gshare/vgpu/share"
)

const gib = share.Bytes(1 << 30)

func testNode(pool, name string, gpus int) Node {
	n := Node{Name: name, Pool: pool, Model: "A100", CPU: 64000, RAM: 512 * gib}
	for i := range gpus {
		id := fmt.Sprintf("%s/%d", name, i)
		n.Slices = append(n.Slices, packing.Slice{
			ID: packing.SliceID(id), Device: id, Model: n.Model, Memory: 80 * gib, Healthy: true, Reserve: 50, MaxShares: 16,
			Classes: []share.Isolation{share.Exclusive, share.MPS, share.Elastic},
		})
	}
	return n
}

// testPod holds whole GPUs now and would ask for shares of sm and quota (per mille) on as many.
func testPod(node, name string, gpus int, sm, quota share.PerMille, memory share.Bytes) Pod {
	p := Pod{Name: "ml/" + name, Node: node, Held: packing.MilliGPU(gpus) * packing.WholeGPU}
	p.Tenant = "ml"
	sh := share.Share{SMRequest: sm, SMLimit: sm, QuotaRequest: quota, QuotaLimit: quota, Memory: memory}
	p.Request.Containers = []share.Container{{Name: "main", VGPUs: gpus, Share: sh}}
	return p
}

func halves(node string, n int) (pods []Pod) {
	for i := range n {
		pods = append(pods, testPod(node, fmt.Sprintf("half-%d", i), 1, 500, 1000, 40*gib))
	}
	return pods
}

// sevenths are pods that fit five GPUs; with eight, the scheduler would use them all.
func sevenths(node string) (pods []Pod) {
	for i := range 20 {
		pods = append(pods, testPod(node, fmt.Sprintf("small-%d", i), 1, 140, 1000, 9530*share.MiB))
	}
	for i := range 5 {
		pods = append(pods, testPod(node, fmt.Sprintf("large-%d", i), 1, 420, 1000, 38120*share.MiB))
	}
	for i := range pods {
		pods[i].Held = 320 // eight GPUs together
	}
	return pods
}

// TestWeightsCountOnce: pods of which each has its own weights of 30 GiB need a GPU for two, and seven that share them need one.
func TestWeightsCountOnce(t *testing.T) {
	for name, tc := range map[string]struct {
		own, shared share.Bytes
		want        int
	}{
		"in each": {37 * gib, 0, 4}, "once": {7 * gib, 30 * gib, 1},
	} {
		t.Run(name, func(t *testing.T) {
			node := testNode("p", "n", 8)
			var pods []Pod
			for i := range 7 {
				p := testPod("n", fmt.Sprint("p", i), 1, 120, 1000, tc.own)
				if tc.shared > 0 {
					p.Request.Weights = []share.Weights{{Digest: "sha256:a", Memory: tc.shared}}
				}
				pods = append(pods, p)
			}
			for i := range node.Slices {
				node.Slices[i].Store = true
			}
			row := Compare([]Node{node}, pods)[0]
			if row.HeldGPUs != 7 || row.NeededGPUs != tc.want || len(row.Unplaced) > 0 {
				t.Errorf("%+v, want %d GPUs", row, tc.want)
			}
		})
	}
}

// TestKeysAndWishes: pods with one key need a GPU each, and of more pods than GPUs the report says why the last ones do not fit. Pods that wish for
// empty GPUs still fit the fewest on which all fit: that is what is asked.
func TestKeysAndWishes(t *testing.T) {
	for name, tc := range map[string]struct {
		pods   int
		set    func(*share.Terms)
		needed int
		reason string // for the last one
	}{
		"a key":           {4, func(t *share.Terms) { t.AntiAffinity = "x" }, 4, ""},
		"a key too often": {6, func(t *share.Terms) { t.AntiAffinity = "x" }, 6, "GPUs hold a share with the same anti-affinity"},
		"spread":          {4, func(t *share.Terms) { t.Packing = share.Spread }, 1, ""},
		"neither":         {4, func(*share.Terms) {}, 1, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var pods []Pod
			for i := range tc.pods {
				p := testPod("n", fmt.Sprint("p", i), 1, 100, 1000, gib)
				tc.set(&p.Request.Terms)
				pods = append(pods, p)
			}
			row := Compare([]Node{testNode("", "n", 4)}, pods)[0]
			if row.NeededGPUs != tc.needed || row.Reasons[pods[tc.pods-1].Name] != tc.reason || len(row.Reasons) != len(row.Unplaced) {
				t.Errorf("%+v, want %d GPUs and %q", row, tc.needed, tc.reason)
			}
		})
	}
}

func TestCompare(t *testing.T) {
	whole := func(node string) Pod { return testPod(node, "whole", 1, 1000, 1000, 80*gib) }
	foreign := testPod("a", "foreign", 1, 500, 1000, 40*gib)
	foreign.Tenant = "web"
	greedy := testPod("a", "greedy", 1, 500, 1000, 40*gib)
	greedy.CPU = 65000
	sliced := halves("a", 3) // time-sliced today, three to a GPU
	for i := range sliced {
		sliced[i].Held = 333
	}
	for name, c := range map[string]struct {
		nodes  []Node
		pods   []Pod
		mix    bool
		held   [2]int // GPUs, nodes
		needed [2]int
		lost   int // pods without a place
	}{
		"nothing runs":             {[]Node{testNode("", "a", 4)}, nil, false, [2]int{0, 0}, [2]int{0, 0}, 0},
		"halves pair up":           {[]Node{testNode("", "a", 4)}, halves("a", 4), false, [2]int{4, 1}, [2]int{2, 1}, 0},
		"whole GPUs stay whole":    {[]Node{testNode("", "a", 4)}, []Pod{whole("a"), testPod("a", "two", 2, 1000, 1000, 80*gib)}, false, [2]int{3, 1}, [2]int{3, 1}, 0},
		"a node is left free":      {[]Node{testNode("", "a", 2), testNode("", "b", 2)}, append(halves("a", 2), halves("b", 2)...), false, [2]int{4, 2}, [2]int{2, 1}, 0},
		"memory keeps them apart":  {[]Node{testNode("", "a", 4)}, []Pod{testPod("a", "x", 1, 100, 1000, 50*gib), testPod("a", "y", 1, 100, 1000, 50*gib)}, false, [2]int{2, 1}, [2]int{2, 1}, 0},
		"tenants are kept apart":   {[]Node{testNode("", "a", 4)}, []Pod{halves("a", 1)[0], foreign}, false, [2]int{2, 1}, [2]int{2, 1}, 0},
		"tenants are mixed":        {[]Node{testNode("", "a", 4)}, []Pod{halves("a", 1)[0], foreign}, true, [2]int{2, 1}, [2]int{1, 1}, 0},
		"without enough CPU":       {[]Node{testNode("", "a", 4)}, append(halves("a", 2), greedy), false, [2]int{3, 1}, [2]int{2, 1}, 1},
		"a part held is a GPU":     {[]Node{testNode("", "a", 4)}, sliced, false, [2]int{1, 1}, [2]int{2, 1}, 0},
		"free GPUs stay free":      {[]Node{testNode("", "a", 8)}, sevenths("a"), false, [2]int{8, 1}, [2]int{5, 1}, 0},
		"pools stay apart":         {[]Node{testNode("p", "a", 2), testNode("q", "b", 2)}, append(halves("a", 1), halves("b", 1)...), false, [2]int{2, 2}, [2]int{2, 2}, 0},
		"a pod on an unknown node": {[]Node{testNode("", "a", 2)}, halves("z", 2), false, [2]int{0, 0}, [2]int{0, 0}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			for _, n := range c.nodes {
				for i := range n.Slices {
					n.Slices[i].MixTenants = c.mix
				}
			}
			got := Total(Compare(c.nodes, c.pods))
			if [2]int{got.HeldGPUs, got.HeldNodes} != c.held || [2]int{got.NeededGPUs, got.NeededNodes} != c.needed || len(got.Unplaced) != c.lost || len(got.Reasons) != c.lost {
				t.Errorf("%+v, want held %v, needed %v, %d unplaced", got, c.held, c.needed, c.lost)
			}
		})
	}
}

// TestPresentPlacement: where packing one by one in the order of age does worse than the present placement, pods that fit where they are stay
// there, and those of other nodes are packed.
func TestPresentPlacement(t *testing.T) {
	greedy := func(p Pod) Pod { p.CPU = 65000; return p }
	for name, tc := range map[string]struct {
		pods   []Pod
		needed int
		lost   int
	}{
		"a pod without room elsewhere stays": {[]Pod{greedy(fitting("a", 1000)), fitting("a", 500)}, 2, 0},
		"it is counted unless it fits":       {[]Pod{greedy(testPod("a", "x", 1, 1000, 1000, gib)), fitting("a", 500)}, 2, 1},
		"other nodes are packed":             {append([]Pod{greedy(fitting("a", 1000))}, halves("b", 4)...), 3, 0},
	} {
		t.Run(name, func(t *testing.T) {
			row := Compare([]Node{testNode("", "a", 8), testNode("", "b", 8)}, tc.pods)[0]
			if row.NeededGPUs != tc.needed || len(row.Unplaced) != tc.lost || len(row.Reasons) != tc.lost {
				t.Errorf("%+v, want %d GPUs and %d unplaced", row, tc.needed, tc.lost)
			}
		})
	}
}

// TestFullClusters: pods that fill their GPUs as gshare placed them never need more GPUs than they hold.
func TestFullClusters(t *testing.T) {
	random := rand.New(rand.NewPCG(2, 2))
	for range 30 {
		var pods []Pod
		gpus := 2 + random.IntN(15)
		for i := range gpus {
			free := share.PerMille(1000)
			for free > 0 {
				sm := min(free, share.PerMille(100+10*random.IntN(60)))
				free -= sm
				p := fitting("a", sm)
				p.Name, p.Request.Containers[0].Share.Memory = fmt.Sprint(i, "-", free), share.Bytes(sm)*80*gib/1100
				p.Held = packing.MilliGPU(sm)
				pods = append(pods, p)
			}
		}
		random.Shuffle(len(pods), func(i, j int) { pods[i], pods[j] = pods[j], pods[i] })
		if row := Compare([]Node{testNode("", "a", gpus)}, pods)[0]; row.HeldGPUs != gpus || row.NeededGPUs > gpus || len(row.Unplaced) > 0 {
			t.Errorf("%d pods on %d GPUs: %+v", len(pods), gpus, row)
		}
	}
}

// TestHeldIsPresent: whatever pods add up to, a node has no more GPUs than it has.
func TestHeldIsPresent(t *testing.T) {
	if row := Compare([]Node{testNode("", "a", 2)}, halves("a", 5))[0]; row.HeldGPUs != 2 {
		t.Errorf("%d of 2 GPUs are held", row.HeldGPUs)
	}
}

func fitting(node string, sm share.PerMille) Pod {
	p := testPod(node, fmt.Sprint("fits-", sm), 1, sm, 1000, 10*gib)
	p.Fits = true
	return p
}

func TestRowsAreOrdered(t *testing.T) {
	nodes := []Node{testNode("q", "c", 1), testNode("p", "b", 2), testNode("p", "a", 4), testNode("", "d", 8)}
	nodes[2].Model = "T4"
	var got []string
	for _, r := range Compare(nodes, nil) {
		got = append(got, fmt.Sprint(r.Pool, " ", r.Model, " ", r.GPUs))
	}
	if want := []string{" A100 8", "p A100 2", "p T4 4", "q A100 1"}; !reflect.DeepEqual(got, want) {
		t.Errorf("rows %q, want %q", got, want)
	}
}

func TestSavedPercent(t *testing.T) {
	if got := (Row{HeldGPUs: 4, NeededGPUs: 1}).SavedPercent(); got != 75 {
		t.Errorf("saved %v %%, want 75", got)
	}
	if got := (Row{}).SavedPercent(); got != 0 {
		t.Errorf("saved %v %% of nothing", got)
	}
}

// On random clusters gshare needs no fewer GPUs than the SM-time or the memory of the shares, no more than are held now, and
// the same every time. The pods come one to a GPU, so that a place is certain.
func TestBounds(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	for range 50 {
		var nodes []Node
		var pods []Pod
		var area share.Area
		var memory share.Bytes
		for i := range 1 + random.IntN(6) {
			n := testNode("", fmt.Sprint("n", i), 1+random.IntN(8))
			nodes = append(nodes, n)
			for g := range n.Slices {
				p := testPod(n.Name, fmt.Sprint(i, "-", g), 1, share.PerMille(50+random.IntN(951)), share.PerMille(50+random.IntN(901)), gib*share.Bytes(1+random.IntN(80)))
				area += p.Request.Area()
				memory += p.Request.Containers[0].Share.Memory
				pods = append(pods, p)
			}
		}
		got := Total(Compare(nodes, pods))
		least := max(int((area+share.WholeArea-1)/share.WholeArea), int((memory+80*gib-1)/(80*gib)))
		if got.NeededGPUs < least || got.NeededGPUs > got.HeldGPUs || len(got.Unplaced) > 0 {
			t.Errorf("%d pods: %+v, want from %d to %d GPUs", len(pods), got, least, got.HeldGPUs)
		}
		if again := Total(Compare(nodes, pods)); !reflect.DeepEqual(got, again) {
			t.Errorf("first %+v, then %+v", got, again)
		}
	}
}

func TestTotal(t *testing.T) {
	one := Row{Nodes: 1, GPUs: 2, Pods: 3, HeldGPUs: 4, HeldNodes: 5, NeededGPUs: 6, NeededNodes: 7, Unplaced: []string{"a"}}
	other := Row{Nodes: 10, GPUs: 20, Pods: 30, HeldGPUs: 40, HeldNodes: 50, NeededGPUs: 60, NeededNodes: 70, Unplaced: []string{"b"}}
	want := Row{Nodes: 11, GPUs: 22, Pods: 33, HeldGPUs: 44, HeldNodes: 55, NeededGPUs: 66, NeededNodes: 77, Unplaced: []string{"a", "b"}}
	if got := Total([]Row{one, other}); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}
