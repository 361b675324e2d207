package planning

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/gshare-dev/gshare/serving/rules/profile"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// alibaba returns PAMBA's price list, with a held slice at the price of its memory's 80 GB on a GPU function over ten.
func alibaba() PriceList {
	return PriceList{
		Currency: "USD", VCPU: 16_000, Memory: 2_400, GPUMemory: 34_000, Call: 120,
		Slice: 300_000, SliceMemory: 1_000, Quantum: BillingUnits{CPU: 100, GPU: 100, Partitioned: 100},
	}
}

// coarse returns a platform with few function sizes, so that all can be enumerated.
func coarse() Platform {
	p := DefaultPlatform()
	p.CPUStep, p.MinCPU, p.MaxCPU, p.QuotaStep = 1000, 500, 4500, 125
	return p
}

func between(r *rand.Rand, low, high float64) float64 { // log-uniform
	return low * math.Exp(r.Float64()*math.Log(high/low))
}

// randomCPU has batches of 1 and 2, the work of which on one vCPU is about work seconds.
func randomCPU(r *rand.Rand, work float64) profile.CPU {
	m := profile.CPU{Memory: profile.Linear{Slope: between(r, 10, 100), Intercept: between(r, 100, 1500)}}
	for b := 1.0; b <= 2; b++ {
		alpha, beta, gamma := work*b*between(r, 2, 6), between(r, 0.2, 2), work*b*between(r, 0.05, 0.3)
		slow := between(r, 1.02, 1.4)
		m.Mean = append(m.Mean, profile.Exponential{Alpha: profile.Seconds(alpha), Beta: beta, Gamma: profile.Seconds(gamma)})
		m.P99 = append(m.P99, profile.Exponential{Alpha: profile.Seconds(alpha * slow), Beta: beta, Gamma: profile.Seconds(gamma * slow)})
	}
	return m
}

func randomModel(r *rand.Rand) profile.Model {
	work := between(r, 0.1, 2)
	cpu := randomCPU(r, work)
	parts := &profile.Partitioned{
		Transfer: profile.Linear{Slope: work * 0.005, Intercept: between(r, 0.002, 0.03)},
		Master:   profile.Master{CPU: 100, MemoryMiB: 128},
	}
	for range 1 + r.IntN(3) {
		stage := profile.Stage{}
		for range 1 + r.IntN(2) {
			stage.Workers = append(stage.Workers, randomCPU(r, work/4))
		}
		parts.Stages = append(parts.Stages, stage)
	}
	slope := work * between(r, 0.003, 0.02)
	gpu := &profile.GPU{
		Exclusive: profile.Linear{Slope: slope, Intercept: slope * between(r, 0.3, 3)}, Tail: profile.Linear{Slope: 1.2},
		CardGB: 24, TimeSlice: 0.002, Memory: profile.Linear{Slope: 30, Intercept: 800}, HostMemory: profile.Linear{Intercept: 512}, MaxBatch: 32,
	}
	sh := &profile.Share{Tail: profile.Linear{Slope: 1.1}, Window: 0.1, Memory: profile.Linear{Slope: 30, Intercept: 2000}, MaxBatch: 16}
	for _, sm := range []share.PerMille{125, 250, 500, 1000} {
		sh.Curves = append(sh.Curves, profile.ShareCurve{SM: sm, Exclusive: profile.Linear{Slope: slope * 300 / float64(sm), Intercept: slope}})
	}
	m := profile.Model{Name: "m", CPU: &cpu, GPU: gpu, Partitioned: parts, Share: sh}
	if r.IntN(2) == 0 {
		m.Share = nil // held shares win where rates are high; without them the other modes are seen
	}
	return m
}

func randomInput(r *rand.Rand, applications int, platform Platform) Input {
	in := Input{Models: []profile.Model{randomModel(r)}, Prices: alibaba(), Platform: platform, Modes: Modes()}
	if r.IntN(2) == 0 {
		in.Prices.Quantum = BillingUnits{CPU: 1, GPU: 1000, Partitioned: 1} // as the provider's list, not the paper
	}
	scale := between(r, 0.05, 50)
	for i := range applications {
		in.Applications = append(in.Applications, Application{
			Name: fmt.Sprintf("a%d", i), Model: "m",
			SLO: profile.Seconds(between(r, 0.1, 4)), Rate: scale * between(r, 0.05, 5),
		})
	}
	return in
}
