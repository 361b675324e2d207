package pipeline

import (
	"math"
	"time"
)

// Part is a list of nodes that run on one slice, as indexes into Function.Nodes in the order of execution.
type Part []int

// Stage is a pipeline stage: one or more parts, each on a slice of its own, that run in parallel for one request. Only nodes that do not
// depend on each other can be in different parts.
type Stage []Part

// Partition is a way to split a function into pipeline stages. A request passes through the stages one after another, while the other
// stages process other requests.
type Partition struct {
	Stages []Stage
	CV     CV // of the stage times with each part on the smallest kind that runs it (U7)
}

// Slices returns the number of slices that the partition needs.
func (p Partition) Slices() int {
	n := 0
	for _, s := range p.Stages {
		n += len(s)
	}
	return n
}

// Monolithic reports whether the whole function runs on one slice.
func (p Partition) Monolithic() bool { return p.Slices() == 1 }

// CV is the coefficient of variation of stage times: their standard deviation divided by their mean. It is 0 for equal times and for a
// single stage. It is rounded to a millionth, so that it does not depend on the order of summation.
type CV float64

// Variation returns the coefficient of variation of stage times (FluidFaaS, eq. 1); 0 if there are none or all are 0.
func Variation(times []time.Duration) CV {
	sum, squares := 0.0, 0.0
	for _, t := range times {
		sum += t.Seconds()
	}
	mean := sum / float64(len(times))
	for _, t := range times {
		d := t.Seconds() - mean
		squares += float64(d * d)
	}
	cv := math.Sqrt(squares/float64(len(times))) / mean
	if math.IsNaN(cv) {
		return 0
	}
	return CV(math.Round(cv*1e6) / 1e6)
}

// partitions returns every way to split the topological order of the nodes into stages. A stage whose nodes fall into independent
// components is listed twice: on one slice, and with a slice for each component. A chain of n nodes has 2^(n-1) partitions. In a graph
// with branches, the partitions include all splits at the dominators of the exit, since every topological order keeps the nodes between
// two dominators together; splits within a branch are needed where the branch is too large for one slice.
func (g *graph) partitions() [][][]nodeSet {
	n := len(g.order)
	rest := make([][][][]nodeSet, n+1) // by first position: the partitions of all from there
	rest[n] = [][][]nodeSet{nil}
	for from := n - 1; from >= 0; from-- {
		for to := from + 1; to <= n; to++ {
			for _, stage := range g.possibleStages(singleton(to) - singleton(from)) {
				for _, tail := range rest[to] {
					rest[from] = append(rest[from], append([][]nodeSet{stage}, tail...))
				}
			}
		}
	}
	return rest[0]
}

// possibleStages returns the ways in which the given nodes can form one stage: all on one slice, or each independent component on a slice
// of its own.
func (g *graph) possibleStages(nodes nodeSet) [][]nodeSet {
	found := [][]nodeSet{{nodes}}
	if spread := g.components(nodes); len(spread) > 1 {
		found = append(found, spread)
	}
	return found
}
