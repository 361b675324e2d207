package pipeline

import (
	"math/rand/v2"
	"testing"
)

// reach is the transitive closure, by index of the nodes.
func reach(f Function) [][]bool {
	index := map[string]int{}
	for i, n := range f.Nodes {
		index[n.Name] = i
	}
	r := make([][]bool, len(f.Nodes))
	for i := range r {
		r[i] = make([]bool, len(f.Nodes))
	}
	for i, n := range f.Nodes {
		for _, from := range n.After {
			r[index[from]][i] = true
		}
	}
	for k := range r {
		for i := range r {
			for j := range r {
				r[i][j] = r[i][j] || r[i][k] && r[k][j]
			}
		}
	}
	return r
}

// In every partition each node is in one part, no node runs before one that it reads from, and parts that run at the same
// time do not depend on each other.
func TestPartitionsAreValid(t *testing.T) {
	random := rand.New(rand.NewPCG(2, 1))
	for range 200 {
		f := randomFunction(random, 1+random.IntN(6))
		before := reach(f)
		for _, p := range rank(t, f, kinds).Partitions() {
			var done, together []int
			for _, stage := range p.Stages {
				done = append(done, together...)
				together = nil
				for _, part := range stage {
					for at, i := range part {
						for _, other := range together {
							if before[i][other] || before[other][i] {
								t.Fatalf("%+v: %s: %d and %d are in one stage", f, text(f, p), i, other)
							}
						}
						for _, later := range part[at+1:] {
							if before[later][i] {
								t.Fatalf("%+v: %s: %d runs before %d", f, text(f, p), i, later)
							}
						}
						for _, earlier := range done {
							if before[i][earlier] {
								t.Fatalf("%+v: %s: %d is in a stage before %d", f, text(f, p), earlier, i)
							}
						}
					}
					// Added after the checks: nodes of one part may depend on each other.
					together = append(together, part...)
				}
			}
			once(t, f, append(done, together...))
		}
	}
}

func once(t *testing.T, f Function, nodes []int) {
	t.Helper()
	seen := map[int]bool{}
	for _, i := range nodes {
		seen[i] = true
	}
	if len(nodes) != len(f.Nodes) || len(seen) != len(f.Nodes) {
		t.Fatalf("%+v: parts hold %v", f, nodes)
	}
}

// Every way to cut before and after the nodes that all requests pass, the dominators of the exit, is among the partitions.
func TestDominatorCuts(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 1))
	cut := 0
	for range 200 {
		f := randomFunction(random, 2+random.IntN(5))
		for i := range f.Nodes {
			f.Nodes[i].Memory = gb // all together fit the smallest slice
		}
		ideals := dominatorCuts(f)
		have := map[string]bool{}
		for _, p := range rank(t, f, kinds).Partitions() {
			if p.Slices() == len(p.Stages) {
				have[stagesKey(f, p)] = true
			}
		}
		for chosen := range 1 << len(ideals) {
			key, last := make([]byte, len(f.Nodes)), 0
			for bit, ideal := range ideals {
				if chosen>>bit&1 == 0 {
					continue
				}
				for i := range ideal {
					if !ideal[i] {
						key[i] = byte(last + 1)
					}
				}
				last++
				cut++
			}
			if !have[string(key)] {
				t.Fatalf("%+v: no partition has the stages %v", f, key)
			}
		}
	}
	if cut == 0 {
		t.Error("no graph has a dominator to cut at")
	}
}

// stagesKey writes the number of the stage of each node.
func stagesKey(f Function, p Partition) string {
	key := make([]byte, len(f.Nodes))
	for s, stage := range p.Stages {
		for _, part := range stage {
			for _, i := range part {
				key[i] = byte(s)
			}
		}
	}
	return string(key)
}

// dominatorCuts lists the sets of nodes before a cut beside a dominator, growing. A node is a dominator of the exit if every
// other node is before or behind it.
func dominatorCuts(f Function) [][]bool {
	before := reach(f)
	bySize := make([][]bool, len(f.Nodes)) // at most one cut of each size
	for d := range f.Nodes {
		ideal, size, dominates := make([]bool, len(f.Nodes)), 0, true
		for i := range f.Nodes {
			if ideal[i] = before[i][d]; ideal[i] {
				size++
			}
			dominates = dominates && (i == d || before[i][d] || before[d][i])
		}
		if !dominates {
			continue
		}
		with := append([]bool(nil), ideal...)
		with[d] = true
		if size > 0 {
			bySize[size] = ideal
		}
		if size+1 < len(f.Nodes) {
			bySize[size+1] = with
		}
	}
	var cuts [][]bool
	for _, c := range bySize {
		if c != nil {
			cuts = append(cuts, c)
		}
	}
	return cuts
}
