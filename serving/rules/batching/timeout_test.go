package batching

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestEquivalentTimeout has the values that independent code found: HarmonyBatch's fold, exact for two classes and a
// little too long for more, and a simulation of batches.
func TestEquivalentTimeout(t *testing.T) {
	for name, c := range map[string]struct {
		classes           []Class
		folded, simulated float64
	}{
		"two":         {[]Class{{.1, 5}, {.3, 5}}, .1632, .1631},
		"three":       {[]Class{{.1, 5}, {.2, 5}, {.5, 5}}, .1718, .1715},
		"rare urgent": {[]Class{{.05, 2}, {.4, 20}}, .2788, .2786},
		"close":       {[]Class{{.1, 1}, {.11, 1}}, .1050, .1050},
		"four":        {[]Class{{.2, 1}, {.3, 3}, {.4, 5}, {.5, 7}}, .3656, .3625},
		"unsorted":    {[]Class{{.5, 7}, {.3, 3}, {.2, 1}, {.4, 5}}, .3656, .3625},
	} {
		t.Run(name, func(t *testing.T) {
			got := EquivalentTimeout(c.classes)
			if math.Abs(got-c.simulated) > 0.0004 {
				t.Errorf("%.4f s, simulated %.4f s", got, c.simulated)
			}
			if fold := folded(c.classes); math.Abs(fold-c.folded) > 0.00005 {
				t.Errorf("fold %.5f s, want %.4f s", fold, c.folded)
			}
			if len(c.classes) == 2 && math.Abs(got-c.folded) > 0.00005 {
				t.Errorf("%.5f s; for two classes the fold is exact: %.4f s", got, c.folded)
			}
		})
	}
}

// folded is HarmonyBatch's formula (P6).
func folded(classes []Class) float64 {
	sorted := byTimeout(classes)
	all := sorted[0]
	for _, c := range sorted[1:] {
		later := c.Rate / (all.Rate + c.Rate)
		all.Timeout += later * (1 - math.Exp(-all.Rate*(c.Timeout-all.Timeout))) / all.Rate
		all.Rate += c.Rate
	}
	return all.Timeout
}

func TestEquivalentTimeoutAgainstSimulation(t *testing.T) {
	const batches = 40_000
	r := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		classes := randomClasses(r)
		sum, squares := 0.0, 0.0
		for range batches {
			x := simulateBatch(r, classes)
			sum, squares = sum+x, squares+x*x
		}
		mean := sum / batches
		deviation := math.Sqrt((squares/batches-mean*mean)/batches) + 1e-12
		if got := EquivalentTimeout(classes); math.Abs(got-mean) > 4.5*deviation {
			t.Errorf("%v: %.5f s, simulated %.5f s with deviation %.5f", classes, got, mean, deviation)
		}
	}
}

// simulateBatch opens a batch at its first request and closes it at the earliest (arrival + own timeout).
func simulateBatch(r *rand.Rand, classes []Class) float64 {
	rate := 0.0
	for _, c := range classes {
		rate += c.Rate
	}
	pick, opener := r.Float64()*rate, 0
	for pick > classes[opener].Rate && opener < len(classes)-1 {
		pick -= classes[opener].Rate
		opener++
	}
	closes := classes[opener].Timeout
	for _, c := range classes {
		closes = min(closes, r.ExpFloat64()/c.Rate+c.Timeout)
	}
	return closes
}

func randomClasses(r *rand.Rand) []Class {
	classes := make([]Class, 1+r.IntN(6))
	for i := range classes {
		classes[i] = Class{Timeout: 0.01 + r.Float64(), Rate: math.Exp(6*r.Float64() - 3)}
	}
	return classes
}

// TestEquivalentTimeoutProperties is invariant 12: between the least and the largest timeout, rising with each, the same
// for equal ones; moving with all; and at most the fold, which is up to a
// tenth too long.
func TestEquivalentTimeoutProperties(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 5000 {
		classes := randomClasses(r)
		got := EquivalentTimeout(classes)
		least, most, moved := math.Inf(1), 0.0, []Class{}
		for _, c := range classes {
			least, most, moved = min(least, c.Timeout), max(most, c.Timeout), append(moved, Class{c.Timeout + 0.5, c.Rate})
		}
		if got < least-1e-12 || got > most+1e-12 {
			t.Fatalf("%v: %v is outside the timeouts", classes, got)
		}
		if fold := folded(classes); got > fold+1e-12 || fold > 1.1*got {
			t.Fatalf("%v: %v, folded %v", classes, got, fold)
		}
		if later := EquivalentTimeout(moved); math.Abs(later-got-0.5) > 1e-9 {
			t.Fatalf("%v: %v, and %v after half a second more for all", classes, got, later)
		}
		i := r.IntN(len(classes))
		classes[i].Timeout += r.Float64()
		if later := EquivalentTimeout(classes); later < got-1e-12 {
			t.Fatalf("%v: a longer timeout %d made %v of %v", classes, i, later, got)
		}
		for i := range classes {
			classes[i].Timeout = 0.25
		}
		if same := EquivalentTimeout(classes); math.Abs(same-0.25) > 1e-12 {
			t.Fatalf("%v: %v, want 0.25", classes, same)
		}
	}
}

// TestSizes draws batches, and compares.
func TestSizes(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	for _, others := range []float64{0, 0.3, 4, 2000} {
		for _, limit := range []int{1, 2, 7} {
			const draws = 20_000
			drawn := make([]float64, limit+1)
			for range draws {
				n := 1
				for at := r.ExpFloat64(); n < limit && at < others; at += r.ExpFloat64() {
					n++
				}
				drawn[n] += 1.0 / draws
			}
			sum := 0.0
			for n, p := range BatchSizes(others, limit) {
				if sum += p; math.Abs(p-drawn[n]) > 0.015 {
					t.Errorf("%v others, limit %d, size %d: %v, drawn %v", others, limit, n, p, drawn[n])
				}
			}
			if math.Abs(sum-1) > 1e-9 {
				t.Errorf("%v others, limit %d: %v in all", others, limit, sum)
			}
		}
	}
}
