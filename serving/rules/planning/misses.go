package planning

import (
	"math"

	"gonum.org/v1/gonum/mathext"

	"github.com/gshare-dev/gshare/serving/rules/profile"
)

// lateExecutions is the fraction of executions that take longer than their p99 latency.
const lateExecutions = 0.01

// Misses returns the fraction of a group's requests that is predicted to be answered after its SLO.
//
// If functions are paid per call, a request waits no longer than its SLO less the p99 latency, so it is late if its execution takes longer
// than the p99. On reserved shares a request is late in two cases: more requests arrived before it than fit the batches within its SLO
// (assuming Poisson arrivals spread evenly over the instances), or those batches together take longer than as many p99 latencies.
// profile.Latency describes how execution times vary. The latency model must be the one with which the group was planned; the error of its
// fit is not part of the result.
func (g *Group) Misses(m *profile.Model) float64 {
	if g.Config.Mode != Share || m.Share == nil || g.Config.Instances < 1 {
		return lateExecutions
	}
	mean := 0.0
	for i, curve := range m.Share.Curves {
		if curve.SM == g.Config.SM {
			mean = float64(m.Share.Latency(g.Config.Batch, i, g.Config.Quota).Mean)
		}
	}
	rate := g.Rate()
	late := 0.0
	for _, a := range g.Applications {
		rounds := math.Floor(float64(a.SLO)/float64(g.P99) + 1e-9)
		late += a.Rate / rate * lateWithin(rounds, rate/float64(g.Config.Instances)*mean, g.Config.Batch)
	}
	return late
}

// Capacity returns the rate, in requests per second, of which one instance of a group's reserved share answers 99 % within their SLOs according to the
// latency model: the value that gshare also measures and calls requestsPerSecond. A plan leaves instances more room. Capacity is 0 for a group that is paid
// per call.
func (g *Group) Capacity(m *profile.Model) float64 {
	if g.Config.Mode != Share || g.Config.Instances < 1 {
		return 0
	}
	alone := *g
	alone.Config.Instances = 1
	own := g.Rate()
	low, high := own/float64(g.Config.Instances), maxCapacity
	for high-low > 1e-3*high {
		rate := (low + high) / 2
		alone.Applications = nil
		for _, a := range g.Applications {
			a.Rate *= rate / own
			alone.Applications = append(alone.Applications, a)
		}
		if alone.Misses(m) <= lateExecutions {
			low = rate
		} else {
			high = rate
		}
	}
	return low
}

// maxCapacity is far above what any instance can answer, in requests per second.
const maxCapacity = 1e6

// lateWithin returns the fraction of requests that are not answered within the given number of rounds. A round is one batch of the given
// size, during whose execution a mean of arrivals requests arrive.
func lateWithin(rounds, arrivals float64, batch int) float64 {
	if rounds < 1 {
		return 1
	}
	// The rounds before the request's own hold (rounds-1)*batch requests. If there is only one round, no batch may be running at its
	// arrival.
	crowded := 1 - poissonBelow(max(rounds-1, 1)*arrivals, (rounds-1)*float64(batch)+1)
	// Each execution takes a constant plus an exponential time. The sum of n of them exceeds n p99 latencies if a gamma variable of
	// shape n exceeds n ln(100), which has the probability of fewer than n events of a Poisson variable with that mean.
	slow := poissonBelow(-math.Log(lateExecutions)*rounds, rounds)
	return 1 - (1-crowded)*(1-slow)
}

// poissonBelow returns the probability that a Poisson variable with the given mean is less than n, for n of at least 1.
func poissonBelow(mean, n float64) float64 {
	if mean <= 0 {
		return 1
	}
	return mathext.GammaIncRegComp(n, mean)
}
