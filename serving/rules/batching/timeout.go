// Package batching decides when requests with several service-level objectives, served by one deployment, run together as a
// batch. The current time is an argument; no function blocks.
package batching

import (
	"cmp"
	"iter"
	"math"
	"slices"
)

// Class describes the requests of one application to a batching queue: how long the first request of a batch may wait, and the mean
// arrival rate.
type Class struct {
	Timeout float64 // seconds
	Rate    float64 // per second, Poisson
}

// EquivalentTimeout returns the single timeout that is equivalent to those of all applications: the expected time in seconds from the
// first request of a batch to the minimum of (arrival + timeout of its application) over the requests of the batch. It lies between the
// smallest and the largest timeout and rises with each of them. Rates must be positive.
func EquivalentTimeout(classes []Class) float64 {
	var e TimeoutAccumulator
	for _, c := range byTimeout(classes) {
		e.Add(c)
	}
	return e.Timeout()
}

func byTimeout(classes []Class) []Class {
	return slices.SortedStableFunc(slices.Values(classes), func(a, b Class) int { return cmp.Compare(a.Timeout, b.Timeout) })
}

// TimeoutAccumulator computes the equivalent timeout of request classes that are added one by one, with ascending timeouts.
//
// A batch opened at time 0 is still open at time x with probability G(x) = exp(-Σ r_j (x - t_j)) over the classes with t_j < x: no
// request of class j has arrived before x - t_j. If class i opened it, it closes at t_i at the latest, so the expected time is the
// integral of G up to t_i; G does not depend on i.
type TimeoutAccumulator struct {
	rate     float64 // Σ r_j
	last     float64 // largest timeout so far
	exponent float64 // Σ r_j (last - t_j)
	open     float64 // integral of G up to last
	weighted float64 // Σ r_i times the integral of G up to t_i
}

// Add adds a class of requests. Its timeout must not be smaller than those of the classes added before.
func (e *TimeoutAccumulator) Add(c Class) {
	step := c.Timeout - e.last
	if e.rate == 0 {
		e.open = c.Timeout
	} else {
		e.open += math.Exp(-e.exponent) * -math.Expm1(-e.rate*step) / e.rate
	}
	e.exponent += e.rate * step
	e.last, e.rate, e.weighted = c.Timeout, e.rate+c.Rate, e.weighted+c.Rate*e.open // P6
}

// Rate returns the sum of the arrival rates of all classes, in requests per second.
func (e *TimeoutAccumulator) Rate() float64 { return e.rate }

// Timeout returns the equivalent timeout of the classes added so far, in seconds.
func (e *TimeoutAccumulator) Timeout() float64 { return e.weighted / e.rate }

// BatchSizes returns the probability of each batch size from 1 to limit. A batch consists of its first request and those that arrive
// before it closes, a Poisson-distributed number with the mean others.
func BatchSizes(others float64, limit int) iter.Seq2[int, float64] {
	return func(yield func(int, float64) bool) {
		p, left := math.Exp(-others), 1.0
		for n := 1; n < limit; n++ {
			if !yield(n, p) {
				return
			}
			left -= p
			p *= others / float64(n)
		}
		yield(limit, max(left, 0))
	}
}
