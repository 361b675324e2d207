package elastic

import (
	"slices"
	"time"
)

// Outcome is how the functions of a pair were served.
type Outcome struct{ Of [2]Served }

// Served is what one function got.
type Served struct {
	Passes    float64         // of a training, in the time in which requests come
	Latencies []time.Duration // of inference, ascending; requests that were not done count as if at the end
}

func (c *client) served(s Setting) Served {
	if c.Trains {
		return Served{Passes: float64(c.done) / float64(c.waves())}
	}
	for _, at := range c.waiting {
		c.latencies = append(c.latencies, 2*s.Length-at)
	}
	slices.Sort(c.latencies)
	return Served{Latencies: c.latencies}
}

// Percentile is the latency that p percent of the requests do not exceed; zero without requests.
func (s Served) Percentile(p int) time.Duration {
	if len(s.Latencies) == 0 {
		return 0
	}
	return s.Latencies[(len(s.Latencies)*p+99)/100-1]
}
