package pipeline

import (
	"slices"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// fit holds the times of one part on each kind, in the order of the kinds; 0 where it does not run.
type fit struct {
	worst    []time.Duration // with every node; used for latency
	expected []time.Duration // with nodes weighed by their chance; used for throughput
}

// fit returns the times of a part on all kinds.
func (r *Ranking) fit(p Part) fit {
	memory := share.Bytes(0)
	for _, i := range p {
		memory += r.function.Nodes[i].Memory
	}
	f := fit{make([]time.Duration, len(r.kinds)), make([]time.Duration, len(r.kinds))}
	for k, kind := range r.kinds {
		if memory <= kind.Memory {
			f.worst[k], f.expected[k] = r.times(p, kind)
		}
	}
	return f
}

// times returns the sum of the times of a part's nodes, which run one after another on a slice; 0 if one was not measured on
// this kind.
func (r *Ranking) times(p Part, kind Kind) (worst, expected time.Duration) {
	for _, i := range p {
		n := &r.function.Nodes[i]
		t, measured := n.Times[kind.Name]
		if !measured {
			return 0, 0
		}
		worst, expected = worst+t, expected+n.expected(t)
	}
	return worst, expected
}

// smallest returns the index of the smallest kind that runs a part, or a negative number.
func smallest(worst []time.Duration) int {
	return slices.IndexFunc(worst, func(t time.Duration) bool { return t > 0 })
}
