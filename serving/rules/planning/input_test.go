package planning

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/gshare-dev/gshare/serving/rules/profile"
	"github.com/gshare-dev/gshare/vgpu/share"
)

func small() Input {
	return randomInput(rand.New(rand.NewPCG(7, 7)), 2, coarse())
}

func TestInputRefuses(t *testing.T) {
	nan := math.NaN()
	for field, spoil := range map[string]func(*Input){
		"applications":                      func(in *Input) { in.Applications = nil },
		"applications[0].name":              func(in *Input) { in.Applications[0].Name = "" },
		"applications[1].name":              func(in *Input) { in.Applications[1].Name = in.Applications[0].Name },
		"applications[0].model":             func(in *Input) { in.Applications[0].Model = "other" },
		"applications[0].slo":               func(in *Input) { in.Applications[0].SLO = profile.Seconds(nan) },
		"applications[1].slo":               func(in *Input) { in.Applications[1].SLO = 0 },
		"applications[0].rate":              func(in *Input) { in.Applications[0].Rate = -1 },
		"applications[1].rate":              func(in *Input) { in.Applications[1].Rate = math.Inf(1) },
		"models[0].gpu.maxBatch":            func(in *Input) { in.Models[0].GPU.MaxBatch = 0 },
		"models[0].cpu.mean[0].beta":        func(in *Input) { in.Models[0].CPU.Mean[0].Beta = nan },
		"models[1].name":                    func(in *Input) { in.Models = append(in.Models, in.Models[0]) },
		"modes":                             func(in *Input) { in.Modes = []Mode{"abacus"} },
		"prices.nanoPerVCPUSecond":          func(in *Input) { in.Prices.VCPU = 0 },
		"prices.nanoPerGBSecond":            func(in *Input) { in.Prices.Memory = -1 },
		"prices.nanoPerGPUGBSecond":         func(in *Input) { in.Prices.GPUMemory = math.MaxInt64 },
		"prices.nanoPerCall":                func(in *Input) { in.Prices.Call = math.MinInt64 },
		"prices.quantumMs":                  func(in *Input) { in.Prices.Quantum.GPU = -1 },
		"platform.cpuStepMilli":             func(in *Input) { in.Platform.CPUStep = 0 },
		"platform.minMilliCPU, maxMilliCPU": func(in *Input) { in.Platform.MaxCPU = 1 << 60 },
		"platform.quotaStep":                func(in *Input) { in.Platform.QuotaStep = 333 },
		"models[0].share.curves, maxBatch": func(in *Input) {
			in.Platform.QuotaStep = 1
			in.Models[0].Share = &profile.Share{Window: 1, MaxBatch: 1000, Curves: []profile.ShareCurve{{SM: 1, Exclusive: profile.Linear{Slope: 1}}}}
		},
		"models[0].cpu.mean": func(in *Input) { // each within its bounds, and together some GB of configurations
			in.Platform.CPUStep, in.Platform.MaxCPU = 1, in.Platform.MinCPU+1000
			in.Models[0].CPU.Mean = slices.Repeat(in.Models[0].CPU.Mean[:1], 1000)
			in.Models[0].CPU.P99 = slices.Repeat(in.Models[0].CPU.P99[:1], 1000)
		},
		"models[0].cpu.mean, p99": func(in *Input) {
			in.Models[0].CPU.Mean = slices.Repeat(in.Models[0].CPU.Mean[:1], 1025)
			in.Models[0].CPU.P99 = slices.Repeat(in.Models[0].CPU.P99[:1], 1025)
		},
		"models[0].gpu.cardGB, maxBatch": func(in *Input) { in.Models[0].GPU.CardGB, in.Models[0].GPU.MaxBatch = 512, 1024 },
		"models[0].partitioned.stages": func(in *Input) {
			worker := in.Models[0].Partitioned.Stages[0].Workers[0]
			worker.Mean, worker.P99 = slices.Repeat(worker.Mean[:1], 8), slices.Repeat(worker.P99[:1], 8)
			in.Models[0].Partitioned.Stages = slices.Repeat([]profile.Stage{{Workers: slices.Repeat([]profile.CPU{worker}, 16)}}, 16)
		},
		"platform.maxBusy": func(in *Input) { in.Platform.MaxBusy = 0 },
	} {
		in := small()
		spoil(&in)
		for _, plan := range []func(Input) (Plan, error){Best, Phases, HarmonyBatch} {
			_, err := plan(in)
			expectField(t, err, field)
		}
	}
	in := small()
	in.Modes = nil
	_, err := Best(in)
	expectField(t, err, "modes")
	_, err = Frontier(small(), "other", []profile.Seconds{1}, []float64{1})
	expectField(t, err, "model")
	_, err = Frontier(small(), "m", []profile.Seconds{-1}, []float64{1})
	expectField(t, err, "slo")
}

func expectField(t *testing.T, err error, field string) {
	t.Helper()
	var got *share.FieldError
	if !errors.As(err, &got) || got.Field != field {
		t.Errorf("error %v, want one of field %s", err, field)
	}
}

// TestUnusedPrices: prices of modes that no profile has may be left out.
func TestUnusedPrices(t *testing.T) {
	in := small()
	in.Models[0].Share = nil
	in.Prices.Slice = 0
	if _, err := Best(in); err != nil {
		t.Error(err)
	}
}

// FuzzBest: any input is planned for or refused with a field, and a plan's cost is finite.
func FuzzBest(f *testing.F) {
	f.Add(uint64(1), 0.5, 10.0, 1.0, 1.0, int64(16000), int64(100), int64(50), 8)
	f.Add(uint64(2), 1e-9, 1e9, 0.0, -1.0, int64(0), int64(-1), int64(0), 0)
	f.Add(uint64(3), math.NaN(), math.Inf(1), 1e300, 1e-300, int64(math.MaxInt64), int64(math.MaxInt64), int64(1), 1<<30)
	f.Fuzz(func(t *testing.T, seed uint64, slo, rate, alpha, beta float64, price, quantum, step int64, batch int) {
		in := randomInput(rand.New(rand.NewPCG(seed, 8)), 3, coarse())
		in.Applications[0].SLO, in.Applications[1].Rate = profile.Seconds(slo), rate
		in.Models[0].CPU.Mean[0].Alpha, in.Models[0].CPU.P99[0].Beta = profile.Seconds(alpha), beta
		in.Prices.VCPU, in.Prices.Quantum.Partitioned = PerVCPUSecond(price), Milliseconds(quantum)
		in.Platform.MemoryStepMiB, in.Models[0].GPU.MaxBatch = step, batch
		for _, plan := range []func(Input) (Plan, error){Best, Phases, HarmonyBatch} {
			p, err := plan(in)
			var field *share.FieldError
			if err != nil && !errors.As(err, &field) {
				t.Errorf("an error without a field: %v", err)
			}
			if err == nil && !(p.Cost >= 0 && p.Cost < math.MaxFloat64) {
				t.Errorf("cost %v", p.Cost)
			}
		}
	})
}

func FuzzCut(f *testing.F) {
	f.Add(uint64(1), 5, 0.1, 1e6, int64(1<<20), 0.05, 0.05, 1e8)
	f.Add(uint64(2), 0, math.NaN(), -1.0, int64(-1), math.Inf(1), -1.0, 0.0)
	f.Fuzz(func(t *testing.T, seed uint64, layers int, work, halo float64, size int64, slack, gain, bandwidth float64) {
		c := randomChain(rand.New(rand.NewPCG(seed, 9)), max(0, min(layers, 12)))
		if len(c.Layers) > 0 {
			c.Layers[0] = Layer{"x", profile.Seconds(work), share.Bytes(size), share.Bytes(size), halo}
		}
		terms := DefaultTemplateParameters(alibaba(), DefaultPlatform())
		terms.Slack, terms.Gain, terms.Bandwidth = slack, gain, bandwidth
		got, err := FindTemplates(c, terms)
		var field *share.FieldError
		if err != nil && !errors.As(err, &field) {
			t.Errorf("an error without a field: %v", err)
		}
		if err == nil && !(got.Chosen.Cost > 0 && got.Chosen.Latency > 0) {
			t.Errorf("%+v", got)
		}
	})
}

// TestBounds: values at the bounds are valid, those beyond are not.
func TestBounds(t *testing.T) {
	in := randomInput(rand.New(rand.NewPCG(1, 1)), 2000, coarse())
	if err := in.Validate(); err != nil {
		t.Error(err)
	}
	in.Applications = append(in.Applications, Application{"one more", "m", 1, 1})
	expectField(t, in.Validate(), "applications")
	for field, of := range map[string]struct {
		value       func(*Platform) *int64
		least, most int64
	}{
		"memoryStepMiB":  {func(p *Platform) *int64 { return &p.MemoryStepMiB }, 1, 1 << 20},
		"maxMemoryMiB":   {func(p *Platform) *int64 { return &p.MaxMemoryMiB }, 1, 1 << 24},
		"sliceMemoryMiB": {func(p *Platform) *int64 { return &p.SliceMemoryMiB }, 1, 1 << 24},
	} {
		for value, ok := range map[int64]bool{of.least - 1: false, of.least: true, of.most: true, of.most + 1: false} {
			p := DefaultPlatform()
			*of.value(&p) = value
			if err := p.Validate(); ok && err != nil {
				t.Errorf("%s of %d: %v", field, value, err)
			} else if !ok {
				expectField(t, err, field)
			}
		}
	}
	for field, spoil := range map[string]func(*Platform){
		"minMilliCPU, maxMilliCPU":   func(p *Platform) { p.MinCPU = 0 },
		"minMilliCPU, maxMilliCPU ":  func(p *Platform) { p.MaxCPU = p.MinCPU - 1 },
		"cpuStepMilli":               func(p *Platform) { p.MinCPU, p.MaxCPU, p.CPUStep = 1, 1025, 1 },
		"minMiBPerCPU, maxMiBPerCPU": func(p *Platform) { p.MinMiBPerCPU = -1 },
		"milliCPUPerGPUGB":           func(p *Platform) { p.MilliCPUPerGB = -1 },
		"milliCPUPerGPUGB ":          func(p *Platform) { p.MilliCPUPerGB = 1e6 + 1 },
		"quotaStep":                  func(p *Platform) { p.QuotaStep = 0 },
		"maxBusy":                    func(p *Platform) { p.MaxBusy = 1001 },
	} {
		p := DefaultPlatform()
		spoil(&p)
		expectField(t, p.Validate(), strings.TrimSpace(field))
	}
	p := DefaultPlatform()
	p.MinCPU, p.MaxCPU, p.CPUStep, p.MinMiBPerCPU, p.MilliCPUPerGB, p.MaxBusy = 1, 1024, 1, 0, 0, 1000
	if err := p.Validate(); err != nil {
		t.Error(err)
	}
}
