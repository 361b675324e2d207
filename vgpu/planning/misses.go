package planning

import (
	"math"

	"gonum.org/v1/gonum/mathext"

	"github.com/gshare-dev/gshare/vgpu/profile"
)

// lateExecutions is the part of executions that take longer than their p99 latency.
const lateExecutions = 0.01

// Misses returns the part, from 0 to 1, of a group's requests that is predicted to be answered after its SLO.
//
// Where functions are paid per call, a request waits no longer than its SLO less the p99 latency, so it is late if its execution is slower
// than that. On reserved shares it is late if more requests arrived before it than the batches within its SLO hold, at Poisson arrivals
// spread evenly over the instances, or if those batches together take longer than as many p99 latencies. Executions vary as
// profile.Latency says. The latency model must be that of which the group was planned; the error of its fit is not part of the result.
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

// Capacity returns the requests a second of which one instance of a group's reserved share answers 99 % within their SLOs, by the latency model: what gshare
// measures and calls requestsPerSecond. A plan leaves instances more room. It is 0 for a group that is paid per call.
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

// maxCapacity is far above what an instance answers, in requests a second.
const maxCapacity = 1e6

// lateWithin returns the part of requests that are not answered within a number of rounds, which are batches of the given size, at a mean
// of arrivals per execution.
func lateWithin(rounds, arrivals float64, batch int) float64 {
	if rounds < 1 {
		return 1
	}
	// The batches before its own hold as many requests. With one round none may be running when it arrives.
	crowded := 1 - poissonBelow(max(rounds-1, 1)*arrivals, (rounds-1)*float64(batch)+1)
	// The sum of n executions, each a constant and an exponential time, is above n p99 latencies if a gamma variable of shape n is above
	// n ln(100): the chance of fewer than n events of that mean.
	slow := poissonBelow(-math.Log(lateExecutions)*rounds, rounds)
	return 1 - (1-crowded)*(1-slow)
}

// poissonBelow returns the chance of fewer than n events, of at least 1, of a Poisson distribution with the given mean.
func poissonBelow(mean, n float64) float64 {
	if mean <= 0 {
		return 1
	}
	return mathext.GammaIncRegComp(n, mean)
}
