package packing

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// TestTournamentFindsTheLeast: whichever nodes join, leave or change, the winner is the least of the participants.
func TestTournamentFindsTheLeast(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 3))
	for _, size := range []int{1, 2, 3, 40, 64, 65, 300} {
		value, in := make([]int, size), make([]bool, size)
		contenderAt := func(i int) contender {
			if !in[i] {
				return noContender
			}
			return contender{rank: Rank(value[i] / size), place: int32(value[i] % size), node: int32(i)}
		}
		var m tournament
		m.resize(size)
		for step := range 500 {
			i := random.IntN(size)
			if value[i], in[i] = random.IntN(10)*size+i, random.IntN(3) > 0; step%100 < 50 {
				m.set(i, contenderAt(i))
			} else {
				for j := range size {
					m.enter(j, contenderAt(j))
				}
				m.playAll()
			}
			if got, want := int(m.winner().node), least(value, in); got != want {
				t.Fatalf("%d nodes, step %d: node %d wins, want %d", size, step, got, want)
			}
		}
	}
}

func least(value []int, in []bool) int {
	best := -1
	for i := range value {
		if in[i] && (best < 0 || value[i] < value[best]) {
			best = i
		}
	}
	return best
}

func TestBestWithRoomIsTheFirstWithRoom(t *testing.T) {
	random := rand.New(rand.NewPCG(6, 6))
	demand, _, _ := randomWorld(random)
	packers := []Packer{bestFit(Slots), {Rules: NewRules(Slots), Ranker: Balance{Terms: AllTerms, Demand: demand}}}
	packer := packers[1]
	const size = 12
	nodes := make([]*Node, size)
	fleet := NewFleet(packer, size)
	pods := fleetPods()
	keys := slices.Sorted(maps.Keys(pods))
	found := 0
	for step := range 1500 {
		switch random.IntN(10) {
		case 0, 1, 2, 3, 4:
			i := random.IntN(size)
			nodes[i] = randomNode(random, Slots)
			nodes[i].Name = fmt.Sprint("n", random.IntN(3)*100+i)
			nodes[i].CPU = MilliCPU(random.IntN(3)) * 16_000
			fleet.Set(i, nodes[i], int64(step+1))
		case 5:
			packer = packers[random.IntN(2)]
			fleet.SetPacker(packer)
		case 6: // evaluates without the tournament
			key := keys[random.IntN(len(keys))]
			fleet.Best(key, pods[key], 3, nil)
		}
		key := keys[random.IntN(len(keys))]
		pod := pods[key]
		room := func(i int) bool { return nodes[i].CPU >= pod.CPU && nodes[i].RAM >= pod.RAM }
		want := sorted(packer, nodes, pod, 1, room)
		got, ok := fleet.BestWithCapacity(key, pod)
		if ok != (len(want) == 1) || ok && got != want[0] {
			t.Fatalf("step %d, %s: got %v %v, want %v: %s", step, key, got, ok, want, gocmp.Diff(want, []Candidate{got}))
		}
		if ok {
			found++
		}
	}
	if found < 500 {
		t.Errorf("only %d pods found a node", found)
	}
}

// TestBestWithRoomAsksLittle: the tournament evaluates a node once for each change, and not at all if it is obviously too
// small.
func TestBestWithRoomAsksLittle(t *testing.T) {
	counter := &countingRanker{}
	fleet := NewFleet(Packer{Rules: NewRules(Slots), Ranker: counter}, 4)
	node := func(i int, cpu MilliCPU) *Node {
		n := gpuNode(fmt.Sprint("n", i), 1)
		n.CPU = cpu + MilliCPU(i)
		return n
	}
	for i := range 4 {
		fleet.Set(i, node(i, 64_000), 1)
	}
	pod := podOf(fixed(50, 100))
	for name, step := range []struct {
		do   func()
		want int
	}{
		{func() {}, 4},
		{func() {}, 0},
		{func() { fleet.Set(1, node(1, 64_000), 2); fleet.Set(1, node(1, 64_000), 3) }, 1},
		{func() { fleet.Set(2, node(2, 0), 2) }, 0},
		{func() { fleet.Set(2, node(2, 64_000), 3) }, 1},
	} {
		step.do()
		counter.asked = 0
		if _, ok := fleet.BestWithCapacity("half", pod); !ok || counter.asked != step.want {
			t.Errorf("step %d: found %v, asked %d times, want %d", name, ok, counter.asked, step.want)
		}
	}
}

// TestOvercommittedNode: a pod that requests no CPU and no memory lacks none, however much others request.
func TestOvercommittedNode(t *testing.T) {
	fleet := NewFleet(bestFit(Slots), 1)
	n := gpuNode("n", 1)
	n.CPU, n.RAM = -1, -1
	fleet.Set(0, n, 1)
	for name, tc := range map[string]struct {
		cpu  MilliCPU
		ram  share.Bytes
		want bool
	}{"none": {0, 0, true}, "CPU": {1, 0, false}, "memory": {0, 1, false}} {
		t.Run(name, func(t *testing.T) {
			pod := podOf(fixed(50, 100))
			pod.CPU, pod.RAM = tc.cpu, tc.ram
			if _, ok := fleet.BestWithCapacity(name, pod); ok != tc.want {
				t.Errorf("found %v, want %v", ok, tc.want)
			}
		})
	}
}

// TestChangesRememberTheLast: the log reports that it has forgotten older changes, and returns those that it remembers in
// order.
func TestChangesRememberTheLast(t *testing.T) {
	var c changeLog
	const nodes = 3
	var all []nodeChange
	for i := range 50 {
		at := c.position()
		if at != int64(i) {
			t.Fatalf("position %d after %d changes", at, i)
		}
		all = append(all, nodeChange{int32(i % nodes), int64(i + 1)})
		c.add(i%nodes, int64(i+1), nodes)
		for from := int64(beforeAllChanges); from <= c.position(); from++ {
			got, forgotten := c.since(from)
			if forgotten != (from < c.first) || !forgotten && !slices.Equal(got, all[from:]) {
				t.Fatalf("since %d: %v, forgotten %v, of %v", from, got, forgotten, all)
			}
		}
		if c.position()-c.first < min(int64(i), nodes) {
			t.Fatalf("remembers %d changes of %d nodes", c.position()-c.first, nodes)
		}
	}
}
