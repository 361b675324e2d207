package elastic

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/gshare-dev/gshare/lab/device"
	"github.com/gshare-dev/gshare/vgpu/share"
	"github.com/gshare-dev/gshare/vgpu/token"
)

// Setting configures the simulation of a pair: the sharing policy, the requests and the interference between kernels.
type Setting struct {
	Policy    string
	CV        float64       // of the gaps between requests
	Length    time.Duration // in which requests arrive; those that wait then are still served, for as long again
	MaxTokens float64       // of the rckm policies: factor as newBlockGate describes it; 0: calibrated
	Seed      uint64

	Interference share.PerMille // how much longer a kernel takes beside neighbours that fill the rest of the GPU
}

// Policies returns the names of the sharing policies, the default first.
func Policies() []string {
	return []string{"rckm", "rckm-tokens", "rckm-gaps", "rckm-printed", "rckm-uncapped", "exclusive", "mps-l", "mps-r", "fast", "table", "tgs"}
}

// Run simulates a pair of functions under the policy of the setting. Under the policy exclusive each function has a GPU of its own.
func Run(ctx context.Context, p Pair, s Setting) (Outcome, error) {
	var clients []*client
	for k, t := range p.Of {
		var arrivals []time.Duration
		if !t.Trains {
			arrivals = t.arrivals(s.CV, s.Length, rand.New(rand.NewPCG(s.Seed, uint64(k))))
		}
		clients = append(clients, newClient(t, device.Process(k), arrivals))
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
	case "table":
		return newTimeGate(token.Table, c)
	case "fast":
		return newTimeGate(token.Fast, c)
	case "tgs":
		return newPriorityGate(c), nil
	}
	return nil, fmt.Errorf("unknown policy %q", s.Policy)
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
