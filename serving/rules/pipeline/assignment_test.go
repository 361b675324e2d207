package pipeline

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// free makes slices of the given kinds; their IDs are in the order of the list.
func free(of ...Kind) []Slice {
	var list []Slice
	for i, k := range of {
		list = append(list, Slice{fmt.Sprintf("s%d", i), k})
	}
	return list
}

// ids writes the slices of an assignment: | between stages, + between parts.
func ids(a Assignment) string {
	out := ""
	for i, stage := range a.Slices {
		for j, s := range stage {
			switch {
			case j > 0:
				out += "+"
			case i > 0:
				out += "|"
			}
			out += s.ID
		}
	}
	return out
}

// heavy needs 30 GB in three nodes of 120, 120 and 60 ms on 1g.
func heavy() Function {
	f := chain(120, 120, 60)
	for i := range f.Nodes {
		f.Nodes[i].Memory = 10 * gb
	}
	return f
}

func TestAssign(t *testing.T) {
	for name, c := range map[string]struct {
		f         Function
		free      []Slice
		demand    Demand
		partition string
		slices    string
		latency   time.Duration
		err       error
	}{
		"one slice is enough":       {f: heavy(), free: free(large, small), partition: "abc", slices: "s0", latency: 75 * ms},
		"the smallest that holds":   {f: heavy(), free: free(large, middle), partition: "abc", slices: "s1", latency: 100 * ms},
		"fragments of several GPUs": {f: heavy(), free: free(medium, medium), partition: "a|bc", slices: "s0|s1", latency: 160 * ms},
		// abc and the balanced a|bc do not fit: ab needs 20 GB.
		"unequal fragments":      {f: heavy(), free: free(small, medium), partition: "a|bc", slices: "s0|s1", latency: 220 * ms},
		"small fragments":        {f: heavy(), free: free(small, small, small), partition: "a|b|c", slices: "s0|s1|s2", latency: 320 * ms},
		"too little room":        {f: heavy(), free: free(small, small), err: ErrNoFit},
		"nothing":                {f: heavy(), err: ErrNoFit},
		"SLO needs fast slices":  {f: chain(60, 60), free: free(small, large), demand: Demand{SLO: 100 * ms}, partition: "ab", slices: "s1", latency: 30 * ms},
		"SLO takes the smallest": {f: chain(60, 60), free: free(small, large), demand: Demand{SLO: 120 * ms}, partition: "ab", slices: "s0", latency: 120 * ms},
		"transfers count":        {f: heavy(), free: free(small, small, small), demand: Demand{SLO: 319 * ms}, err: ErrSLO},
		"waiting counts":         {f: heavy(), free: free(large), demand: Demand{SLO: 100 * ms, Queue: 26 * ms}, err: ErrSLO},
		"waiting fits":           {f: heavy(), free: free(large), demand: Demand{SLO: 101 * ms, Queue: 26 * ms}, partition: "abc", slices: "s0", latency: 75 * ms},
		"rate on one slice":      {f: chain(50, 50), free: free(small, small), demand: Demand{Rate: 10}, partition: "ab", slices: "s0", latency: 100 * ms},
		"rate needs a pipeline":  {f: chain(50, 50), free: free(small, small), demand: Demand{Rate: 11}, partition: "a|b", slices: "s0|s1", latency: 110 * ms},
		"rate above everything":  {f: chain(50, 50), free: free(small, small), demand: Demand{Rate: 21}, err: ErrRate},
		"branches at once":       {f: diamond(), free: free(small, small, small, small), demand: Demand{SLO: 165 * ms}, partition: "a|b+c|d", slices: "s0|s1+s2|s3", latency: 160 * ms},
		"unknown kinds":          {f: heavy(), free: free(Kind{"7g.80gb", 7, 80 * gb}), err: ErrNoFit},
		"same name, other size":  {f: heavy(), free: free(Kind{"4g.40gb", 4, 39 * gb}), err: ErrNoFit},
		// In the order of the ranking ab|c (30, 30) is before a|b|c; on these slices it takes (15, 30).
		"first that fits": {f: chain(10, 20, 30), free: free(medium, small), demand: Demand{Rate: 30, Candidates: 1}, partition: "abc", slices: "s0", latency: 30 * ms},
	} {
		t.Run(name, func(t *testing.T) {
			if c.demand.SLO == 0 {
				c.demand.SLO = time.Second
			}
			a, err := rank(t, c.f, kinds).Assign(c.free, c.demand)
			if c.err != nil {
				if !errors.Is(err, c.err) {
					t.Errorf("%v, want %v", err, c.err)
				}
				return
			}
			if err != nil || text(c.f, a.Partition) != c.partition || ids(a) != c.slices || a.Latency != c.latency {
				t.Errorf("%s on %s in %v (%v); want %s on %s in %v", text(c.f, a.Partition), ids(a), a.Latency, err, c.partition, c.slices, c.latency)
			}
		})
	}
}

// The best of some candidates is judged on the slices at hand (U7). On 1g and 3g, the smallest that hold them, ab and c take
// 60 ms each. But a 4g is free: on it c takes 45, and bc takes 50 beside the 40 of a.
func TestCandidates(t *testing.T) {
	f := chain(40, 20, 180)
	f.Transfer, f.Nodes[0].Memory, f.Nodes[1].Memory, f.Nodes[2].Memory = ms, 5*gb, 5*gb, 32*gb
	for candidates, want := range []string{"ab|c", "ab|c", "a|bc", "a|bc"} {
		a, err := rank(t, f, kinds).Assign(free(small, large), Demand{SLO: time.Second, Candidates: candidates})
		if err != nil || text(f, a.Partition) != want || ids(a) != "s0|s1" {
			t.Errorf("%d candidates: %s on %s (%v), want %s", candidates, text(f, a.Partition), ids(a), err, want)
		}
	}
}

func TestAssignmentFigures(t *testing.T) {
	f := heavy()
	f.Nodes[1].Chance = 500
	a, err := rank(t, f, kinds).Assign(free(small, medium), Demand{SLO: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	// a and b take 60 ms each on 2g, of which b runs every other time; c takes 60 ms on 1g.
	if a.Latency != 190*ms || a.Transfers != 10*ms || a.Bottleneck != 90*ms || a.ComputeSlices() != 3 || math.Abs(a.Rate()-1/0.09) > 1e-9 || a.CV != 0.2 {
		t.Errorf("%+v", a)
	}
	for slo, want := range map[time.Duration]int{189 * ms: 0, 190 * ms: 1, 279 * ms: 1, 280 * ms: 2, 700 * ms: 6} {
		t.Run(fmt.Sprint(slo), func(t *testing.T) {
			if got := a.Outstanding(slo); got != want {
				t.Errorf("%d requests within %v, want %d", got, slo, want)
			}
		})
	}
	// Of two at once each is answered after the 190 ms that it takes, one in 95 ms; more than one in 90 ms is not possible. With 179 ms the second would be late.
	for slo, want := range map[time.Duration]int{190 * ms: 2, time.Second: 2, 179 * ms: 1, 1: 1} {
		if got := a.AtOnce(slo); got != want {
			t.Errorf("%d requests at once within %v, want %d", got, slo, want)
		}
	}
}

// TestAtOnce: an instance that always has so many requests answers all in time, and nine tenths of the most that it can, if that is possible at all.
func TestAtOnce(t *testing.T) {
	parts := Partition{Stages: []Stage{{{0}}, {{1}}}}
	for latency := time.Duration(1); latency < 60; latency++ {
		for bottleneck := time.Duration(1); bottleneck <= latency; bottleneck++ {
			for slo := latency; slo < 3*latency; slo++ {
				a := Assignment{Partition: parts, Latency: latency, Bottleneck: bottleneck}
				n := time.Duration(a.AtOnce(slo))
				takes := func(n time.Duration) time.Duration { return max(latency, n*bottleneck) }
				if n < 1 || takes(n) > slo {
					t.Fatalf("%d at once take %d of %d, with latency %d and bottleneck %d", n, takes(n), slo, latency, bottleneck)
				}
				slow := 10*n*bottleneck < 9*takes(n)
				if slow && takes(n+1) <= slo || n > 1 && 10*(n-1)*bottleneck >= 9*takes(n-1) {
					t.Fatalf("%d at once are too few or too many with latency %d, bottleneck %d and SLO %d", n, latency, bottleneck, slo)
				}
			}
		}
	}
	whole := Assignment{Partition: Partition{Stages: []Stage{{{0, 1}}}}, Latency: 2, Bottleneck: 1}
	if got := whole.AtOnce(100); got != 1 {
		t.Errorf("%d at once on one slice", got)
	}
}

func TestAssignRefuses(t *testing.T) {
	r := rank(t, chain(1), kinds)
	for field, d := range map[string]Demand{
		"slo": {}, "slo ": {SLO: -1}, "slo  ": {SLO: math.MaxInt64},
		"queue":      {SLO: 1, Queue: -1},
		"rate":       {SLO: 1, Rate: math.NaN()},
		"rate ":      {SLO: 1, Rate: math.Inf(1)},
		"rate  ":     {SLO: 1, Rate: -1},
		"candidates": {SLO: 1, Candidates: -1},
	} {
		_, err := r.Assign(free(small), d)
		wantField(t, trim(field), err)
		_, err = r.Monolithic(free(small), d)
		wantField(t, trim(field), err)
	}
	for field, list := range map[string][]Slice{
		"free[0].id": {{"", small}},
		"free[1].id": {{"a", small}, {"a", large}},
	} {
		_, err := r.Assign(list, Demand{SLO: time.Second})
		wantField(t, field, err)
	}
}

// byBruteForce tries every slice for every segment. It returns the least (compute, memory, latency) that meets the demand.
func byBruteForce(r *Ranking, p Partition, slicesFree []Slice, d Demand) (least [3]int64, room, rate, slo bool) {
	f := r.Function()
	var on []Slice
	var try func()
	try = func() {
		if len(on) == p.Slices() {
			compute, memory, latency, carries := byHand(f, p, on, d)
			room, rate = true, rate || carries
			if carries && latency+d.Queue <= d.SLO {
				if size := [3]int64{compute, memory, int64(latency)}; !slo || slices.Compare(size[:], least[:]) < 0 {
					least = size
				}
				slo = true
			}
			return
		}
		for _, s := range slicesFree {
			if !slices.Contains(on, s) && runs(f, partAt(p, len(on)), s) {
				on = append(on, s)
				try()
				on = on[:len(on)-1]
			}
		}
	}
	try()
	return least, room, rate, slo
}

func partAt(p Partition, at int) Segment {
	for _, stage := range p.Stages {
		if at < len(stage) {
			return stage[at]
		}
		at -= len(stage)
	}
	return nil
}

func runs(f Function, p Segment, s Slice) bool {
	memory := share.Bytes(0)
	for _, i := range p {
		memory += f.Nodes[i].Memory
		if f.Nodes[i].Times[s.Kind.Name] == 0 {
			return false
		}
	}
	return memory <= s.Kind.Memory
}

func byHand(f Function, p Partition, on []Slice, d Demand) (compute, memory int64, latency time.Duration, carries bool) {
	carries = true
	for n, stage := range p.Stages {
		if n > 0 {
			latency += f.Transfer
		}
		slowest := time.Duration(0)
		for _, part := range stage {
			worst, mean := time.Duration(0), 0.0
			for _, i := range part {
				t := f.Nodes[i].Times[on[0].Kind.Name]
				worst += t
				if c := f.Nodes[i].Chance; c > 0 {
					mean += float64(t) * float64(c) / 1000
				} else {
					mean += float64(t)
				}
			}
			compute, memory = compute+int64(on[0].Kind.Compute), memory+int64(on[0].Kind.Memory)
			slowest, carries, on = max(slowest, worst), carries && mean*d.Rate <= 1e9, on[1:]
		}
		latency += slowest
	}
	return compute, memory, latency, carries
}

// The search agrees with brute force: whether there is an assignment, what stands in the way where there is none, which
// partition is the first that fits, and how little it takes.
func TestAssignAgainstAll(t *testing.T) {
	random := rand.New(rand.NewPCG(4, 1))
	reasons := map[error]int{}
	for range 3000 {
		f := randomFunction(random, 1+random.IntN(4))
		for i := range f.Nodes {
			f.Nodes[i].Chance = []share.PerMille{0, 0, 500, 1000}[random.IntN(4)]
			if random.IntN(4) == 0 {
				delete(f.Nodes[i].Times, "1g.10gb")
			}
		}
		all := append(kinds, double)
		r := rank(t, f, all)
		var list []Slice
		for i := range random.IntN(6) {
			list = append(list, Slice{fmt.Sprint(i), all[random.IntN(len(all))]})
		}
		d := Demand{SLO: time.Duration(20+random.IntN(200)) * ms, Queue: time.Duration(random.IntN(2)*10) * ms, Rate: []float64{0, 10, 20, 50}[random.IntN(4)]}
		a, err := r.Assign(list, d)
		closest := ErrNoFit
		for _, p := range r.Partitions() {
			least, room, rate, slo := byBruteForce(r, p, list, d)
			if !slo {
				if rate {
					closest = furthestError(closest, ErrSLO)
				} else if room {
					closest = furthestError(closest, ErrRate)
				}
				continue
			}
			closest = nil
			if err != nil || text(f, a.Partition) != text(f, p) {
				t.Fatalf("%+v on %v for %+v: %v, want %s", f, list, d, err, text(f, p))
			}
			check(t, f, a, list, d, least)
			break
		}
		if !errors.Is(err, closest) {
			t.Fatalf("%+v on %v for %+v: %v, want %v", f, list, d, err, closest)
		}
		reasons[closest]++
	}
	for _, reason := range []error{nil, ErrNoFit, ErrRate, ErrSLO} {
		if reasons[reason] < 50 {
			t.Errorf("only %d cases of %v: %v", reasons[reason], reason, reasons)
		}
	}
}

func check(t *testing.T, f Function, a Assignment, list []Slice, d Demand, least [3]int64) {
	t.Helper()
	var on []Slice
	for i, stage := range a.Slices {
		if len(stage) != len(a.Partition.Stages[i]) {
			t.Fatalf("%v for %v", a.Slices, a.Partition.Stages)
		}
		on = append(on, stage...)
	}
	for i, s := range on {
		if slices.Contains(on[:i], s) || !slices.Contains(list, s) || !runs(f, partAt(a.Partition, i), s) {
			t.Fatalf("slice %v is taken twice, not free or too small: %v", s, on)
		}
	}
	compute, memory, latency, carries := byHand(f, a.Partition, on, d)
	if got := [3]int64{compute, memory, int64(latency)}; got != least || !carries || latency != a.Latency || a.ComputeSlices() != int(compute) {
		t.Fatalf("%s on %v takes %v, want %v; carries the rate: %v; latency %v", text(f, a.Partition), on, got, least, carries, a.Latency)
	}
}

// TestAssignments: the first is that of Assign, and all that follow are of other partitions, in the order of the ranking, on free slices.
func TestAssignments(t *testing.T) {
	random := rand.New(rand.NewPCG(6, 1))
	several := 0
	for range 300 {
		f := randomFunction(random, 1+random.IntN(4))
		r, list, d := rank(t, f, kinds), free(small, small, medium, large), Demand{SLO: 200 * ms}
		first, none := r.Assign(list, d)
		found, err := r.Assignments(list, d)
		if err != nil {
			t.Fatal(err)
		}
		var got, want []string
		for a := range found {
			if len(got) == 0 && fmt.Sprint(a) != fmt.Sprint(first) {
				t.Fatalf("%v, want %v first", a, first)
			}
			least, _, _, _ := byBruteForce(r, a.Partition, list, d)
			check(t, f, a, list, d, least)
			got = append(got, text(f, a.Partition))
		}
		for _, p := range r.Partitions() {
			if _, _, _, slo := byBruteForce(r, p, list, d); slo {
				want = append(want, text(f, p))
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(want) || (none != nil) != (len(got) == 0) {
			t.Fatalf("%v, want %v; Assign: %v", got, want, none)
		}
		if len(got) > 1 {
			several++
		}
	}
	if several < 50 {
		t.Errorf("only %d functions have several", several)
	}
	if _, err := rank(t, heavy(), kinds).Assignments(nil, Demand{}); err == nil {
		t.Error("no objective is accepted")
	}
}

// TestAssignmentsForHopelessObjective: with many kinds of slices, a search in each of the partitions would take hours.
func TestAssignmentsForHopelessObjective(t *testing.T) {
	f := Function{Name: "f"}
	var kinds []Kind
	var list []Slice
	times := map[string]time.Duration{}
	for k := range 8 {
		kinds = append(kinds, Kind{Name: fmt.Sprint("kind-", k), Compute: 1, Memory: 1 << 30})
		times[kinds[k].Name] = time.Duration(k+2) * ms
		for i := range MaxNodes {
			list = append(list, Slice{ID: fmt.Sprint(k, "-", i), Kind: kinds[k]})
		}
	}
	for i := range MaxNodes {
		f.Nodes = append(f.Nodes, Node{Name: fmt.Sprint("node-", i), Memory: 1 << 20, Times: times})
	}
	r := rank(t, f, kinds)
	// The fastest kind takes 2 ms for each of the nodes, which all can run at the same time.
	for want, slo := range []time.Duration{ms, 2 * ms} {
		found, err := r.Assignments(list, Demand{SLO: slo})
		if err != nil {
			t.Fatal(err)
		}
		count := 0
		for a := range found {
			count++
			if a.Latency > slo {
				t.Errorf("%v for an objective of %v", a.Latency, slo)
			}
		}
		if count != want {
			t.Errorf("%d partitions for an objective of %v, want %d", count, slo, want)
		}
	}
}

// The order in which slices are listed does not matter.
func TestAssignIsDeterministic(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 1))
	for range 200 {
		f := randomFunction(random, 1+random.IntN(5))
		list := free(small, small, medium, medium, large, middle)
		first, err := rank(t, f, kinds).Assign(list, Demand{SLO: 200 * ms, Candidates: 3})
		random.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		again, errAgain := rank(t, f, kinds).Assign(list, Demand{SLO: 200 * ms, Candidates: 3})
		if fmt.Sprint(first, err) != fmt.Sprint(again, errAgain) {
			t.Fatalf("%v, %v; in another order %v, %v", first, err, again, errAgain)
		}
	}
}

// TestMaxSegmentTime: a pipeline sustains a rate if no request spends more than its reciprocal on a slice.
func TestMaxSegmentTime(t *testing.T) {
	for rate, want := range map[float64]time.Duration{
		0: math.MaxInt64, 1: time.Second, 4: 250 * ms, MaxRate: time.Microsecond, 1e-6: 1_000_000 * time.Second, 1e-12: math.MaxInt64/2 + 1,
	} {
		if got := (Demand{Rate: rate}).maxSegmentTime(); got != want {
			t.Errorf("%v requests/s: %v, want %v", rate, got, want)
		}
	}
}

// TestAssignmentsOfMany: the search ends for a function whose fastest slice is there once, so that each partition seems to be fast enough and none is, and
// which has as many partitions as one can have.
func TestAssignmentsOfMany(t *testing.T) {
	f := Function{Name: "f"}
	var kinds []Kind
	var list []Slice
	times := map[string]time.Duration{}
	for k := range 6 {
		kinds = append(kinds, Kind{Name: fmt.Sprint("kind-", k), Compute: k + 1, Memory: 4 << 30})
		times[kinds[k].Name] = 1000*ms - time.Duration(k)*ms
		for i := range 3 {
			if k < 5 || i == 0 {
				list = append(list, Slice{ID: fmt.Sprint(k, "-", i), Kind: kinds[k]})
			}
		}
	}
	times[kinds[5].Name] = ms
	for i := range MaxNodes {
		n := Node{Name: fmt.Sprint("node-", i), Memory: 3 << 30, Times: times}
		for j := range i / 4 * 4 { // three layers of four, each after all before
			n.After = append(n.After, fmt.Sprint("node-", j))
		}
		f.Nodes = append(f.Nodes, n)
	}
	r := rank(t, f, kinds)
	free, err := r.groupByKind(list)
	if err != nil {
		t.Fatal(err)
	}
	d := Demand{SLO: 1480 * ms}
	none := func(a Assignment) bool { t.Errorf("%v is within the objective", a); return true }
	all := r.assignEach(free, d, math.MaxInt, none)
	if looked := r.assignEach(free, d, all/10, none); looked < all/10 || looked > all/5 {
		t.Errorf("of %d partial choices it has looked at %d, want a tenth", all, looked)
	}
}
