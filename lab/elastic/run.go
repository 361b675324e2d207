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

// Setting configures a run.
type Setting struct {
	Policy    string
	CV        float64       // of the gaps between requests
	Length    time.Duration // in which requests come; those that wait then are still served, for as long again
	MaxTokens float64       // of the rckm policies: times what makes its launches without neighbours its request; 0: calibrated
	Seed      uint64

	Interference share.PerMille // how much longer a kernel takes beside neighbours that fill the rest of the GPU
}

// Policies returns the names of the policies, the default first.
func Policies() []string {
	return []string{"rckm", "rckm-tokens", "rckm-gaps", "rckm-printed", "rckm-uncapped", "exclusive", "mps-l", "mps-r", "fast", "table", "tgs"}
}

// Run runs a pair. Under the policy exclusive each function has a GPU of its own.
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
		return open{}, nil
	case "rckm", "rckm-tokens", "rckm-gaps", "rckm-printed", "rckm-uncapped":
		return newBlocks(s, c)
	case "table":
		return newTurns(token.Table, c)
	case "fast":
		return newTurns(token.Fast, c)
	case "tgs":
		return newPriority(c), nil
	}
	return nil, fmt.Errorf("unknown policy %q", s.Policy)
}

// yields reports whether best effort has the lower priority under MPS, which the paper does not use.
func yields(policy string) bool {
	return policy == "rckm" || policy == "rckm-gaps" || policy == "rckm-uncapped"
}

// limit returns the cap of a function under MPS. The paper uses MPS for profiling only (D20).
func limit(policy string, f Function) share.PerMille {
	request, limit := f.Shares()
	switch policy {
	case "exclusive", "tgs", "rckm-uncapped":
		return share.Whole
	case "mps-r":
		return request
	}
	return limit
}
