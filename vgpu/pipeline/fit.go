package pipeline

import (
	"slices"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// fit is the times of one part on each kind, in the order of the kinds; 0 where it does not run.
type fit struct {
	worst    []time.Duration // with every node: what a deadline counts with
	expected []time.Duration // nodes weighed by their chance: what throughput counts with
}

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

// times adds up the nodes of a part on a kind: on one slice they run one after another. 0 says that one was not measured
// there.
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

// smallest gives the first kind that runs a part; negative if none does.
func smallest(worst []time.Duration) int {
	return slices.IndexFunc(worst, func(t time.Duration) bool { return t > 0 })
}
