package elastic

import (
	"fmt"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
	"github.com/gshare-dev/gshare/vgpu/token/rckm"
)

const us = time.Microsecond

// The functions of the pairs. Their layers consist of matrix products, which fill many SMs with large blocks, attention, and
// element-wise kernels with many small blocks. Times of a pass follow published ones on an A100 (25 ms for RoBERTa-large).
var (
	resnet  = inference("resnet152", 50, Kernel{400, 75 * us, 2, 2}, Kernel{200, 60 * us, 1, 8}, Kernel{100, 30 * us, 1, 16})
	roberta = inference("roberta-large", 24, Kernel{500, 100 * us, 5, 2}, Kernel{250, 100 * us, 3, 4}, Kernel{150, 80 * us, 3, 16})
	gpt2    = inference("gpt2-large", 36, Kernel{450, 100 * us, 5, 2}, Kernel{250, 100 * us, 3, 4}, Kernel{100, 100 * us, 2, 16})
	llama   = inference("llama2-7b", 8*32, Kernel{500, 90 * us, 5, 2}, Kernel{200, 100 * us, 1, 4}, Kernel{100, 75 * us, 1, 16})

	bertTraining    = training("bert-base", 12, Kernel{700, 100 * us, 25, 2}, Kernel{400, 100 * us, 15, 4}, Kernel{300, 100 * us, 15, 16})
	robertaTraining = training("roberta-large", 24, Kernel{800, 100 * us, 25, 2}, Kernel{500, 100 * us, 15, 4}, Kernel{350, 100 * us, 15, 16})
)

func inference(name string, layers int, layer ...Kernel) Function {
	return Function{Name: name, Layer: layer, Layers: layers}
}

func training(name string, layers int, layer ...Kernel) Function {
	f := Function{Name: name, Layer: layer, Layers: layers, Trains: true}
	f.Gap = f.Time(1000) / 7
	return f
}

// Tenant is a function with its load: the mean number of requests per second, and the factor by which a burst increases it.
type Tenant struct {
	Function
	Rate  float64
	Burst float64
}

// Pair is a pair of functions that share one GPU.
type Pair struct {
	Name string
	Of   [2]Tenant
}

// Pairs returns the pairs of functions of one kind, such as "training-inference". Request rates and bursts are those of figures 7 and 8 of
// Dilu.
func Pairs(kind string) ([]Pair, error) {
	switch kind {
	case "training-inference":
		return []Pair{
			pair(Tenant{resnet, 35, 1}, Tenant{bertTraining, 0, 0}),
			pair(Tenant{roberta, 20, 1}, Tenant{bertTraining, 0, 0}),
			pair(Tenant{gpt2, 10, 1}, Tenant{robertaTraining, 0, 0}),
			pair(Tenant{llama, 3, 1}, Tenant{robertaTraining, 0, 0}),
		}, nil
	case "inference-inference":
		return []Pair{
			pair(Tenant{resnet, 15, 4}, Tenant{roberta, 10, 1}),
			pair(Tenant{roberta, 5, 6}, Tenant{gpt2, 5, 1}),
			pair(Tenant{gpt2, 4, 6}, Tenant{resnet, 15, 1}),
			pair(Tenant{llama, 1, 4}, Tenant{roberta, 10, 1}),
		}, nil
	case "training-training":
		return []Pair{pair(Tenant{bertTraining, 0, 0}, Tenant{robertaTraining, 0, 0}), pair(Tenant{bertTraining, 0, 0}, Tenant{bertTraining, 0, 0})}, nil
	}
	return nil, fmt.Errorf("unknown kind of pairs %q", kind)
}

// PairKinds returns the kinds of function pairs: which of the two are trainings and which inference.
func PairKinds() []string {
	return []string{"training-inference", "inference-inference", "training-training"}
}

func pair(a, b Tenant) Pair { return Pair{a.Name + "+" + b.Name, [2]Tenant{a, b}} }

// PublishedAlgorithm computes the pressure state and the members' tokens by Algorithm 2 exactly as the Dilu paper describes it, for
// comparison: a single state that every SLO member overwrites, tokens of the others divided by the relative change of a launch cycle, no
// floor, and no bound on growth. Where the paper is silent, the state begins as NONE and the change is that of the latest SLO member.
func PublishedAlgorithm(p rckm.Pressure, members []rckm.Observation) (rckm.Pressure, []int64) {
	tokens := make([]int64, len(members))
	for k, m := range members {
		if m.Priority != share.SLO {
			tokens[k] = publishedBestEffortTokens(p, m)
			continue
		}
		p.Severity = 0
		if m.Shortest > 0 {
			p.Severity = share.PerMille(min(int64(m.Cycle)*int64(share.Whole)/int64(m.Shortest), 1_000_000))
		}
		p.State, tokens[k] = publishedSLOTokens(p.Severity, m, othersLaunch(members, k))
	}
	return p, tokens
}

// publishedViolation is η_violation of Dilu's public code: the length of a launch cycle, per mille of the shortest, above which an SLO
// function is in EMERGENCY.
const publishedViolation = share.PerMille(1600)

func publishedSLOTokens(severity share.PerMille, m rckm.Observation, othersLaunch bool) (rckm.State, int64) {
	switch {
	case severity > publishedViolation:
		return rckm.Emergency, m.BlocksOf(m.Limit)
	case !m.Launches:
		return rckm.Recovery, m.BlocksOf(m.Request)
	case !othersLaunch:
		return rckm.Recovery, grow(m.Tokens)
	}
	return rckm.Contention, m.BlocksOf(m.Request)
}

func publishedBestEffortTokens(p rckm.Pressure, m rckm.Observation) int64 {
	switch p.State {
	case rckm.None:
		return m.BlocksOf(m.Limit)
	case rckm.Emergency:
		return min(m.BlocksOf(m.Request), m.Tokens) * int64(share.Whole) / int64(p.Severity-share.Whole)
	case rckm.Recovery:
		return min(grow(m.Tokens), m.BlocksOf(m.Limit))
	}
	return m.Tokens
}

// grow returns a number of tokens increased by 30 %, and by at least one.
func grow(tokens int64) int64 { return tokens + max(1, tokens*3/10) }

func othersLaunch(members []rckm.Observation, k int) bool {
	for other, m := range members {
		if other != k && m.Launches {
			return true
		}
	}
	return false
}
