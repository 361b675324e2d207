package planning

import (
	"math"
	"testing"

	"github.com/gshare-dev/gshare/serving/rules/profile"
	"github.com/gshare-dev/gshare/test/bounds"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// justAbove0 is the least number that is above 0.
const justAbove0 = math.SmallestNonzeroFloat64

// TestTemplateParameterBounds checks that the parameters and the layers of a split are valid up to their bounds.
func TestTemplateParameterBounds(t *testing.T) {
	good := func() TemplateParameters { return DefaultTemplateParameters(alibaba(), DefaultPlatform()) }
	bounds.Check(t, good, (*TemplateParameters).Validate,
		bounds.Of("milliCPU", 50, 16000, func(p *TemplateParameters, n int64) { p.CPU = profile.MilliCPU(n) }),
		bounds.Of("maxStages", 1, 64, func(p *TemplateParameters, n int64) { p.MaxStages = int(n) }),
		bounds.Of("maxWorkers", 1, 64, func(p *TemplateParameters, n int64) { p.MaxWorkers = int(n) }),
	)
	bounds.Check(t, good, (*TemplateParameters).Validate,
		bounds.Of("call", 0, 60, func(p *TemplateParameters, x float64) { p.Call = profile.Seconds(x) }),
		bounds.Of("bandwidth", 1, 1e15, func(p *TemplateParameters, x float64) { p.Bandwidth = x }),
		bounds.Of("maxTime", justAbove0, 86400, func(p *TemplateParameters, x float64) { p.MaxTime = profile.Seconds(x) }),
		bounds.Of("gain", 0, math.Nextafter(1, 0), func(p *TemplateParameters, x float64) { p.Gain = x }),
		bounds.Of("slack", 0, 100, func(p *TemplateParameters, x float64) { p.Slack = x }),
	)
	chain := func() Chain { return Chain{Layers: []Layer{{Name: "a", Work: 1}}} }
	const most = int64(share.MaxMemory / 200)
	bounds.Check(t, chain, (*Chain).Validate,
		bounds.Of("layers", 1, 200, func(c *Chain, n int64) {
			one := c.Layers[0]
			for c.Layers = nil; int64(len(c.Layers)) < n; {
				c.Layers = append(c.Layers, one)
			}
		}),
		bounds.Of("input", 0, int64(share.MaxMemory), func(c *Chain, n int64) { c.Input = share.Bytes(n) }),
		bounds.Of("layers[0].weights", 0, most, func(c *Chain, n int64) { c.Layers[0].Weights = share.Bytes(n) }),
		bounds.Of("layers[0].output", 0, most, func(c *Chain, n int64) { c.Layers[0].Output = share.Bytes(n) }),
	)
	bounds.Check(t, chain, (*Chain).Validate,
		bounds.Of("layers[0].work", justAbove0, 1e6, func(c *Chain, x float64) { c.Layers[0].Work = profile.Seconds(x) }),
		bounds.Of("layers[0].halo", 0, 1, func(c *Chain, x float64) { c.Layers[0].Halo = x }),
	)
}

// TestInputBounds checks that prices, applications, objectives and function sizes are valid up to their bounds.
func TestInputBounds(t *testing.T) {
	const most = int64(1e15)
	prices := func() PriceList { return alibaba() }
	bounds.Check(t, prices, func(b *PriceList) error { return b.Validate(nil) },
		bounds.Of("nanoPerVCPUSecond", 0, most, func(b *PriceList, n int64) { b.VCPU = PerVCPUSecond(n) }),
		bounds.Of("nanoPerCall", 0, most, func(b *PriceList, n int64) { b.Call = PerCall(n) }),
		bounds.Of("quantumMs", 0, 3_600_000, func(b *PriceList, n int64) { b.Quantum.CPU = Milliseconds(n) }),
		bounds.Of("quantumMs", 0, 3_600_000, func(b *PriceList, n int64) { b.Quantum.GPU = Milliseconds(n) }),
		bounds.Of("quantumMs", 0, 3_600_000, func(b *PriceList, n int64) { b.Quantum.Partitioned = Milliseconds(n) }),
	)
	bounds.Check(t, prices, func(b *PriceList) error { return b.Validate(Modes()) },
		bounds.Of("nanoPerVCPUSecond", 1, most, func(b *PriceList, n int64) { b.VCPU = PerVCPUSecond(n) }),
		bounds.Of("nanoPerGBSecond", 1, most, func(b *PriceList, n int64) { b.Memory = PerGBSecond(n) }),
		bounds.Of("nanoPerGPUGBSecond", 1, most, func(b *PriceList, n int64) { b.GPUMemory = PerGPUGBSecond(n) }),
		bounds.Of("nanoPerSliceSecond", 1, most, func(b *PriceList, n int64) { b.Slice = PerSliceSecond(n) }),
		bounds.Of("nanoPerSliceGBSecond", 0, most, func(b *PriceList, n int64) { b.SliceMemory = PerGBSecond(n) }),
	)
	bounds.Check(t, func() Application { return Application{Name: "a", Model: "m", SLO: 1, Rate: 1} }, (*Application).validate,
		bounds.Of("slo", justAbove0, 86400, func(a *Application, x float64) { a.SLO = profile.Seconds(x) }),
		bounds.Of("rate", 1e-6, 1e7, func(a *Application, x float64) { a.Rate = x }),
	)
	bounds.Check(t, func() Objective { return Objective{CardSecond: 1, Late: 0.01} }, (*Objective).validate,
		bounds.Of("cardSecond", 0, 1e15, func(a *Objective, x float64) { a.CardSecond = Cost(x) }),
		bounds.Of("late", 1e-9, 0.5, func(a *Objective, x float64) { a.Late = x }),
	)
	bounds.Check(t, DefaultPlatform, (*Platform).Validate,
		bounds.Of("minMilliCPU, maxMilliCPU", 1, 16000, func(p *Platform, n int64) { p.MinCPU, p.CPUStep = profile.MilliCPU(n), 1000 }),
		bounds.Of("minMilliCPU, maxMilliCPU", 50, 1_000_000, func(p *Platform, n int64) { p.MaxCPU, p.CPUStep = profile.MilliCPU(n), 1000 }),
		bounds.Of("minMiBPerCPU, maxMiBPerCPU", 0, DefaultPlatform().MaxMiBPerCPU, func(p *Platform, n int64) { p.MinMiBPerCPU = n }),
		bounds.Of("minMiBPerCPU, maxMiBPerCPU", 1, 1<<24, func(p *Platform, n int64) { p.MinMiBPerCPU, p.MaxMiBPerCPU = 0, n }),
		bounds.Of("milliCPUPerGPUGB", 0, 1_000_000, func(p *Platform, n int64) { p.MilliCPUPerGB = profile.MilliCPU(n) }),
		bounds.Of("maxBusy", 1, 1000, func(p *Platform, n int64) { p.MaxBusy = share.PerMille(n) }),
		bounds.Of("quotaStep", 1, 1000, func(p *Platform, n int64) { p.QuotaStep = share.PerMille(n) }),
	)
}
