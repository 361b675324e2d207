package shapes

import (
	"math"
	"math/bits"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// prices values a pod in GPU time: its quota times the shadow price of its SM share in the configuration LP over the pods seen so far. The
// value differs from the SM-time by what cannot be used beside the pod: a share of 80 % of the SMs costs more than 0.8 of the time if few
// pods fit the remaining SMs.
type prices struct {
	reserve share.PerMille
	seen    []Pod
	milli   [share.Whole + 1]share.Area // shadow price by SM share, in thousandths of a GPU
}

func newPrices(reserve share.PerMille) *prices {
	p := &prices{reserve: reserve}
	for sm := range p.milli {
		p.milli[sm] = share.Area(sm)
	}
	return p
}

// learn records a pod that has arrived, and recomputes the prices whenever the number of pods has doubled.
func (p *prices) learn(pod Pod) {
	p.seen = append(p.seen, pod)
	if bits.OnesCount(uint(len(p.seen))) != 1 {
		return
	}
	m := newFleetLP(p.seen, p.reserve)
	m.solve(0.01)
	for k, x := range m.groups {
		p.milli[x.sm] = share.Area(math.Round(m.price[k] * float64(share.Whole)))
	}
}

func (p *prices) worth(pod Pod) share.Area { return p.milli[pod.SM] * share.Area(pod.Quota) }
