package shapes

import (
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gshare-dev/gshare/vgpu/packing/slot"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// few draws up to n pods, larger than the family's, so that they want more than one GPU now and then.
func few(family Family, r *rand.Rand, n int) []Pod {
	pods := make([]Pod, 1+r.IntN(n))
	for k := range pods {
		pods[k] = family(r)
		pods[k].SM = min(share.Whole, pods[k].SM*share.PerMille(1+r.IntN(3)))
	}
	return pods
}

func TestLowerBoundByHand(t *testing.T) {
	for name, c := range map[string]struct {
		pods    []Pod
		memory  share.Bytes
		reserve share.PerMille
		want    float64
	}{
		"none":                          {nil, 1, 0, 0},
		"one":                           {[]Pod{percent(40, 10)}, 1, 0, 0.4},
		"three exclusive":               {[]Pod{percent(40, 60), percent(40, 60), percent(40, 60)}, 1, 0, 1.2},
		"three halves":                  {[]Pod{percent(60, 50), percent(60, 50), percent(60, 50)}, 1, 0, 0.9},
		"exclusive, reserve":            {[]Pod{percent(40, 60), percent(40, 60), percent(40, 60)}, 1, 50, 1.2 / 0.95},
		"full quota needs no reserve":   {[]Pod{percent(100, 60), percent(100, 60)}, 1, 50, 2},
		"above 1-r there is no turning": {[]Pod{percent(97, 60), percent(97, 60)}, 1, 50, 2},
		"memory":                        {[]Pod{{SM: 10, Quota: 10, Memory: 30}, {SM: 10, Quota: 10, Memory: 40}}, 20, 0, 3.5},
	} {
		t.Run(name, func(t *testing.T) {
			if got := LowerBound(c.pods, c.memory, c.reserve); math.Abs(got-c.want) > 1e-9 {
				t.Errorf("%v, want %v", got, c.want)
			}
		})
	}
}

func TestLowerBoundEqualsBruteForce(t *testing.T) {
	for _, family := range familyList() {
		r := rand.New(rand.NewPCG(11, 1))
		for range 25 {
			pods := few(family, r, 5)
			for _, reserve := range []share.PerMille{0, 50} {
				got, want := LowerBound(pods, 1, reserve), bruteBound(pods, reserve)
				if math.Abs(got-want) > 1e-7 {
					t.Fatalf("%v, reserve %d: bound %v, brute force %v", pods, reserve, got, want)
				}
			}
		}
	}
}

// bruteBound finds the best prices: at an optimum as many constraints hold with equality as there are prices, so it
// tries them all. A constraint says that a configuration is worth at most 1, or that a price is not below zero.
func bruteBound(pods []Pod, reserve share.PerMille) float64 {
	var sms []share.PerMille
	for _, p := range pods {
		sms = append(sms, p.SM)
	}
	slices.Sort(sms)
	sms = slices.Compact(sms)
	goal := make([]float64, len(sms))
	for _, p := range pods {
		goal[slices.Index(sms, p.SM)] += math.Min(1, float64(p.Quota)/float64(share.Whole-reserve))
	}
	rows := configurations(pods, sms)
	for k := range sms {
		row := make([]float64, len(sms)+1)
		row[k] = -1
		rows = append(rows, row)
	}
	best := 0.0
	choose(rows, nil, len(sms), func(tight [][]float64) {
		if y := intersection(tight); y != nil && allHold(rows, y) {
			best = math.Max(best, dot(goal, y))
		}
	})
	return best
}

// configurations returns the sets of pods that run together, as counts of each SM share and the right side 1.
func configurations(pods []Pod, sms []share.PerMille) [][]float64 {
	var rows [][]float64
	for set := 1; set < 1<<len(pods); set++ {
		row, sum := make([]float64, len(sms)+1), share.PerMille(0)
		for k, p := range pods {
			if set>>k&1 == 1 {
				row[slices.Index(sms, p.SM)]++
				sum += p.SM
			}
		}
		row[len(sms)] = 1
		known := func(other []float64) bool { return slices.Equal(other, row) }
		if sum <= share.Whole && !slices.ContainsFunc(rows, known) {
			rows = append(rows, row)
		}
	}
	return rows
}

func choose(rows, tight [][]float64, n int, visit func([][]float64)) {
	if len(tight) == n {
		visit(tight)
		return
	}
	for k := range rows {
		choose(rows[k+1:], append(slices.Clone(tight), rows[k]), n, visit)
	}
}

// intersection solves the equations by elimination; nil if they have no single solution.
func intersection(tight [][]float64) []float64 {
	a := make([][]float64, len(tight))
	for k := range tight {
		a[k] = slices.Clone(tight[k])
	}
	for col := range a {
		pivot := col
		for k := col; k < len(a); k++ {
			if math.Abs(a[k][col]) > math.Abs(a[pivot][col]) {
				pivot = k
			}
		}
		a[col], a[pivot] = a[pivot], a[col]
		if math.Abs(a[col][col]) < 1e-9 {
			return nil
		}
		for k := range a {
			if k != col {
				subtract(a[k], a[col], a[k][col]/a[col][col])
			}
		}
	}
	y := make([]float64, len(a))
	for k := range a {
		y[k] = a[k][len(a)] / a[k][k]
	}
	return y
}

func subtract(row, other []float64, factor float64) {
	for k := range row {
		row[k] -= factor * other[k]
	}
}

func allHold(rows [][]float64, y []float64) bool {
	for _, row := range rows {
		if dot(row[:len(y)], y) > row[len(y)]+1e-9 {
			return false
		}
	}
	return true
}

func dot(a, b []float64) float64 {
	sum := 0.0
	for k := range a {
		sum += a[k] * b[k]
	}
	return sum
}

// No partition of the pods into GPUs may take fewer GPUs than the bound. Negative control: a bound that stretches every
// quota by the reserve, full ones and single configurations too, is above what exists for some of the sets.
func TestLowerBoundIsBelowTheBestPacking(t *testing.T) {
	const reserve = 50
	tooHigh := 0
	for _, family := range familyList() {
		r := rand.New(rand.NewPCG(12, 1))
		for range 60 {
			pods := few(family, r, 6)
			for _, reserve := range []share.PerMille{0, reserve} {
				if got, least := LowerBound(pods, 1, reserve), fewest(pods, reserve); got > float64(least)+1e-9 {
					t.Fatalf("%v, reserve %d: bound %v, but %d GPUs do", pods, reserve, got, least)
				}
			}
			if LowerBound(pods, 1, 0)/(1-reserve/1000.0) > float64(fewest(pods, reserve))+1e-9 {
				tooHigh++
			}
		}
	}
	if tooHigh == 0 {
		t.Error("a bound that is wrong was never seen to be")
	}
}

// fewest tries every partition.
func fewest(pods []Pod, reserve share.PerMille) int {
	solver := slot.NewSolver()
	best := len(pods)
	var extend func(k int, gpus [][]slot.Item)
	extend = func(k int, gpus [][]slot.Item) {
		if len(gpus) >= best {
			return
		}
		if k == len(pods) {
			best = len(gpus)
			return
		}
		for g := range gpus {
			longer := slices.Clone(gpus)
			longer[g] = append(slices.Clone(gpus[g]), pods[k].item())
			if solver.Fits(longer[g], reserve) {
				extend(k+1, longer)
			}
		}
		extend(k+1, append(slices.Clone(gpus), []slot.Item{pods[k].item()}))
	}
	extend(0, nil)
	return best
}

func TestLowerBoundIsBelowEveryPolicy(t *testing.T) {
	r := rand.New(rand.NewPCG(13, 1))
	for _, name := range slices.Sorted(maps.Keys(Families())) {
		for _, reserve := range []share.PerMille{0, 50} {
			family := Families()[name]
			pods := withMemory(Draw(family, 20+r.IntN(100), r.Uint64()), r)
			c := Config{GPUs: len(pods), Memory: 100, Reserve: reserve}
			bound := LowerBound(pods, c.Memory, c.Reserve)
			for _, policy := range Policies() {
				gpus, err := Fill(t.Context(), newFleet(t, policy, c), pods)
				if err != nil {
					t.Fatal(err)
				}
				if bound > float64(gpus)+1e-9 {
					t.Errorf("%s, %s, reserve %d: bound %v, %d GPUs", name, policy, reserve, bound, gpus)
				}
			}
		}
	}
}
