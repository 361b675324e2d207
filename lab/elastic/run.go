package elastic

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/gshare-dev/gshare/vgpu/device"
	"github.com/gshare-dev/gshare/vgpu/share"
	"github.com/gshare-dev/gshare/vgpu/token"
)

// Setting configures the simulation of a pair: the sharing policy, the requests and the interference between kernels.
type Setting struct {
	Policy    string
	CV        float64       // coefficient of variation of the gaps between requests
	Length    time.Duration // time in which requests arrive; those still waiting are then served for as long again
	MaxTokens float64       // for the rckm policies: the factor described at newBlockGate; 0: calibrated
	Seed      uint64

	Interference share.PerMille // how much longer a kernel takes beside neighbours that fill the rest of the GPU

	// Spread is how much the times of requests differ: each takes its function's time multiplied by a lognormal factor with a median of 1, of
	// whose logarithm this is the standard deviation. 0: all take the same time.
	Spread float64
	Speed  float64 // how many times faster the GPU and its hosts are than those of the catalogue; 0 means 1
}

// Policies returns the names of the sharing policies, the default first.
func Policies() []string {
	names := []string{"rckm", "rckm-tokens", "rckm-gaps", "rckm-printed", "rckm-uncapped", "exclusive", "mps-l", "mps-r"}
	for _, p := range token.Policies() {
		names = append(names, p.String())
	}
	return append(names, "tgs")
}

// Run simulates a pair of functions under the policy of the setting. Under the policy exclusive each function has a GPU of its own.
func Run(ctx context.Context, p Pair, s Setting) (Outcome, error) {
	var clients []*client
	for k, t := range p.Of {
		t.Function = t.faster(cmp.Or(s.Speed, 1))
		var arrivals []time.Duration
		if !t.Trains {
			arrivals = t.arrivals(s.CV, s.Length, rand.New(rand.NewPCG(s.Seed, uint64(k))))
		}
		c := newClient(t, device.Process(k), arrivals)
		if !t.Trains {
			c.spread, c.random = s.Spread, rand.New(rand.NewPCG(s.Seed, uint64(len(p.Of)+k)))
		}
		clients = append(clients, c)
	}
	var out Outcome
	groups := [][]*client{clients}
	if s.Policy == "exclusive" {
		groups = [][]*client{clients[:1], clients[1:]}
	}
	for _, group := range groups {
		if err := serve(ctx, group, s); err != nil {
			return Outcome{}, err
		}
	}
	for k, c := range clients {
		out.Of[k] = c.served(s)
	}
	return out, nil
}

func newGate(s Setting, c []*client) (gate, error) {
	switch s.Policy {
	case "exclusive", "mps-l", "mps-r":
		return openGate{}, nil
	case "rckm", "rckm-tokens", "rckm-gaps", "rckm-printed", "rckm-uncapped":
		return newBlockGate(s, c)
	case "tgs":
		return newPriorityGate(c), nil
	}
	policy, err := token.ParsePolicy(s.Policy)
	if err != nil {
		return nil, fmt.Errorf("unknown policy %q", s.Policy)
	}
	return newTimeGate(policy, c)
}

// lowersBestEffort reports whether best-effort clients have the lower client priority of MPS under the policy. The paper does not use MPS
// priorities.
func lowersBestEffort(policy string) bool {
	return policy == "rckm" || policy == "rckm-gaps" || policy == "rckm-uncapped"
}

// smCap returns the cap on a function's SMs under MPS. The paper uses MPS for profiling only (D20).
func smCap(policy string, f Function) share.PerMille {
	request, limit := f.Shares()
	switch policy {
	case "exclusive", "tgs", "rckm-uncapped":
		return share.Whole
	case "mps-r":
		return request
	}
	return limit
}

// Outcome is the result of running a pair of functions, in the order of the pair.
type Outcome struct{ Of [2]Served }

// Served is the service that one function of a pair got: passes of a training, or latencies of inference.
type Served struct {
	Passes    float64         // of a training, during the time in which requests arrive
	Latencies []time.Duration // of inference, ascending; unfinished requests count as if finished at the end
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

// Percentile returns the latency that p percent of the requests do not exceed, or zero without requests.
func (s Served) Percentile(p int) time.Duration {
	if len(s.Latencies) == 0 {
		return 0
	}
	return s.Latencies[(len(s.Latencies)*p+99)/100-1]
}

// RunAll runs the pairs one after another and returns the outcome of each.
func RunAll(ctx context.Context, pairs []Pair, s Setting) ([]Outcome, error) {
	var list []Outcome
	for _, p := range pairs {
		out, err := Run(ctx, p, s)
		if err != nil {
			return nil, fmt.Errorf("pair %s: %w", p.Name, err)
		}
		list = append(list, out)
	}
	return list, nil
}

// Ratios compares outcomes with those on exclusive GPUs: latencies of inference, and throughput of training. A value without data is NaN.
type Ratios struct {
	P50, P95, WorstP95      float64
	Training, WorstTraining float64
}

// Compare returns the ratios of outcomes to those on exclusive GPUs: the means over all functions of the pairs, and the worst ones.
func Compare(of, exclusive []Outcome) Ratios {
	var p50, p95, passes []float64
	for n := range of {
		for k, s := range of[n].Of {
			base := exclusive[n].Of[k]
			switch {
			case base.Passes > 0:
				passes = append(passes, s.Passes/base.Passes)
			case len(base.Latencies) > 0:
				p50 = append(p50, float64(s.Percentile(50))/float64(base.Percentile(50)))
				p95 = append(p95, float64(s.Percentile(95))/float64(base.Percentile(95)))
			}
		}
	}
	return Ratios{mean(p50), mean(p95), extreme(p95, 1), mean(passes), extreme(passes, -1)}
}

func mean(list []float64) float64 {
	sum := 0.0
	for _, x := range list {
		sum += x
	}
	return sum / float64(len(list))
}

// extreme returns the largest value of a list or, if sign is -1, the smallest. It returns NaN for an empty list.
func extreme(list []float64, sign float64) float64 {
	worst := math.Inf(-1)
	for _, x := range list {
		worst = max(worst, sign*x)
	}
	if len(list) == 0 {
		return math.NaN()
	}
	return sign * worst
}
