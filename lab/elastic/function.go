package elastic

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"

	"gonum.org/v1/gonum/stat/distuv"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// deviceSMs is the number of SMs of the simulated GPU. Numbers of thread blocks depend on it.
const deviceSMs = 132

// Kernel is a kernel of a model's layer. Its waves run one after another.
type Kernel struct {
	Width share.PerMille // SMs that a wave fills
	Wave  time.Duration  // duration at that width
	Waves int
	PerSM int64 // blocks on each of the SMs
}

// blocks returns the number of thread blocks of one wave.
func (p Kernel) blocks() int64 { return max(1, int64(p.Width)*deviceSMs*p.PerSM/int64(share.Whole)) }

// Function is a model, in inference or training. A pass runs its layers for one batch.
type Function struct {
	Name   string
	Layer  []Kernel
	Layers int
	Gap    time.Duration // pause of the host between two passes; a training loads data and logs in it
	Trains bool
	SLO    float64 // objective of inference, as a multiple of its time on the whole GPU; 0 means 3
}

// Time returns how long a pass takes on an otherwise idle GPU, with at most limit of its SMs.
func (f Function) Time(limit share.PerMille) time.Duration {
	layer := time.Duration(0)
	for _, p := range f.Layer {
		layer += p.Wave * time.Duration(p.Waves) * time.Duration(p.Width) / time.Duration(min(p.Width, limit))
	}
	return layer*time.Duration(f.Layers) + f.Gap
}

// faster returns the function on a GPU and a host that are the given number of times as fast.
func (f Function) faster(times float64) Function {
	f.Layer = slices.Clone(f.Layer)
	for i := range f.Layer {
		f.Layer[i].Wave = time.Duration(float64(f.Layer[i].Wave) / times)
	}
	f.Gap = time.Duration(float64(f.Gap) / times)
	return f
}

func (f Function) waves() int {
	n := 0
	for _, p := range f.Layer {
		n += p.Waves
	}
	return n * f.Layers
}

// Saturation returns how many thread blocks the function launches in each tick on an otherwise idle GPU, with at most limit of its SMs.
func (f Function) Saturation(limit share.PerMille, tick time.Duration) int64 {
	sum := int64(0)
	for _, p := range f.Layer {
		sum += p.blocks() * int64(p.Waves) * int64(f.Layers)
	}
	return sum * int64(tick) / int64(f.Time(limit)-f.Gap)
}

// Shares returns the SM request and limit that Dilu's profiling (section 3.2) finds for the function, in steps of 5 %. At its request a
// training loses a fifth of its throughput, and at its limit next to nothing. At its request inference takes half its SLO; its limit is
// twice its request.
func (f Function) Shares() (request, limit share.PerMille) {
	if f.Trains {
		return f.smallestShare(5. / 4), f.smallestShare(50. / 49)
	}
	request = f.smallestShare(cmp.Or(f.SLO, 3) / 2)
	return request, min(2*request, share.Whole)
}

// smallestShare returns the smallest share of the SMs at which a pass takes at most the given multiple of its time on the whole GPU.
func (f Function) smallestShare(times float64) share.PerMille {
	p := share.PerMille(50)
	for p < share.Whole && float64(f.Time(p)) > float64(f.Time(share.Whole))*times {
		p += 50
	}
	return p
}

// burstPeriod is the interval between the starts of two bursts. A burst lasts for the first fifth of it.
const burstPeriod = 10 * time.Second

// arrivals returns the arrival times of requests until the end. The gaps between them have a gamma distribution with the coefficient of
// variation cv (1 is Poisson), and are shorter by the burst factor during a burst.
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
