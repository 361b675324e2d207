package elastic

import (
	"cmp"
	"math/rand/v2"
	"time"

	"gonum.org/v1/gonum/stat/distuv"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// sms is the number of SMs of the GPU, for counting blocks.
const sms = 132

// Phase is a kernel of a layer. Its waves run one after another.
type Phase struct {
	Width share.PerMille // SMs that a wave fills
	Wave  time.Duration  // at that width
	Waves int
	PerSM int64 // blocks on each of the SMs
}

// blocks of one wave.
func (p Phase) blocks() int64 { return max(1, int64(p.Width)*sms*p.PerSM/int64(share.Whole)) }

// Function is a model, in inference or training. A pass runs its layers for one batch.
type Function struct {
	Name   string
	Layer  []Phase
	Layers int
	Gap    time.Duration // of the host between two passes; a training loads data and logs
	Trains bool
	SLO    float64 // of inference: times its time on the whole GPU; 0: 3
}

// Time returns how long a pass takes on an idle GPU, with at most limit of its SMs.
func (f Function) Time(limit share.PerMille) time.Duration {
	layer := time.Duration(0)
	for _, p := range f.Layer {
		layer += p.Wave * time.Duration(p.Waves) * time.Duration(p.Width) / time.Duration(min(p.Width, limit))
	}
	return layer*time.Duration(f.Layers) + f.Gap
}

func (f Function) waves() int {
	n := 0
	for _, p := range f.Layer {
		n += p.Waves
	}
	return n * f.Layers
}

// Saturation returns how many blocks a tick the function launches on an idle GPU, with at most limit of its SMs.
func (f Function) Saturation(limit share.PerMille, tick time.Duration) int64 {
	sum := int64(0)
	for _, p := range f.Layer {
		sum += p.blocks() * int64(p.Waves) * int64(f.Layers)
	}
	return sum * int64(tick) / int64(f.Time(limit)-f.Gap)
}

// Shares profiles the function as Dilu does (section 3.2), in steps of 5 %: a training loses a fifth of its throughput at its
// request, and next to nothing at its limit; inference takes half its SLO at its request, and its limit is twice that.
func (f Function) Shares() (request, limit share.PerMille) {
	if f.Trains {
		return f.least(5. / 4), f.least(50. / 49)
	}
	request = f.least(cmp.Or(f.SLO, 3) / 2)
	return request, min(2*request, share.Whole)
}

// least returns the smallest share at which a pass takes at most that multiple of its time on the whole GPU.
func (f Function) least(times float64) share.PerMille {
	p := share.PerMille(50)
	for p < share.Whole && float64(f.Time(p)) > float64(f.Time(share.Whole))*times {
		p += 50
	}
	return p
}

// burstPeriod is the period of bursts. A burst takes the first fifth of it.
const burstPeriod = 10 * time.Second

// arrivals returns the times of requests until the end. Their gaps have a gamma distribution with the coefficient of variation cv
// (1 is Poisson), and are shorter by the factor of the burst during one.
func (t Tenant) arrivals(cv float64, end time.Duration, r *rand.Rand) []time.Duration {
	var list []time.Duration
	gap := distuv.Gamma{Alpha: 1 / (cv * cv), Beta: t.Rate / (cv * cv), Src: r}
	for at := time.Duration(0); ; {
		wait := gap.Rand()
		if t.Burst > 1 && at%burstPeriod < burstPeriod/5 {
			wait /= t.Burst
		}
		at += time.Duration(wait * float64(time.Second))
		if at >= end {
			return list
		}
		list = append(list, at)
	}
}
