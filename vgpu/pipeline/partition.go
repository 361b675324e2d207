package pipeline

import (
	"math"
	"time"
)

// Part is what runs on one slice: nodes of the function, by their index, in the order in which they run.
type Part []int

// Stage is parts that run at the same time for one request, each on a slice of its own. Most have one part; only
// components that do not depend on each other can be several.
type Stage []Part

// Partition is a way to cut a function into stages (FF-31). A request goes through the stages one after another, while
// each stage works on another request.
type Partition struct {
	Stages []Stage
	CV     CV // at the reference: each part on the smallest kind that can run it (U7)
}

// Slices is how many slices the partition takes.
func (p Partition) Slices() int {
	n := 0
	for _, s := range p.Stages {
		n += len(s)
	}
	return n
}

// Monolithic says that one slice holds the whole function: it is no pipeline.
func (p Partition) Monolithic() bool { return p.Slices() == 1 }

// CV is the coefficient of variation of stage times: the standard deviation of the population by the mean. 0 is a
// pipeline in perfect balance, and a function in one stage (U6). It is rounded to a millionth, so that equal partitions
// are equal whatever the order of summation.
type CV float64

// Variation computes the CV of stage times (FF-32, eq. 1). It is 0 for no stages and for times that are all 0.
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

// partitions lists every way to cut the topological order, and for stages whose components are independent both to keep
// them on one slice and to spread them. A chain of n nodes has 2^(n-1). In a graph with branches the cuts include all at
// the dominators of the exit, because every topological order keeps what lies between two of these together; cuts inside
// of a branch help where a branch is too large for one slice.
func (g *graph) partitions() [][][]set {
	n := len(g.order)
	rest := make([][][][]set, n+1) // by first position: the partitions of all from there
	rest[n] = [][][]set{nil}
	for from := n - 1; from >= 0; from-- {
		for to := from + 1; to <= n; to++ {
			for _, stage := range g.stages(one(to) - one(from)) {
				for _, tail := range rest[to] {
					rest[from] = append(rest[from], append([][]set{stage}, tail...))
				}
			}
		}
	}
	return rest[0]
}

// stages lists what a stage of the given nodes can be: all on one slice, or each component on its own.
func (g *graph) stages(nodes set) [][]set {
	found := [][]set{{nodes}}
	if spread := g.components(nodes); len(spread) > 1 {
		found = append(found, spread)
	}
	return found
}
