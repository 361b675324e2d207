package planning

import (
	"fmt"
	"testing"

	"github.com/gshare-dev/gshare/serving/rules/profile"
	"github.com/gshare-dev/gshare/vgpu/share"
)

func TestBill(t *testing.T) {
	for name, c := range map[string]struct {
		quantum      Milliseconds
		takes, bills profile.Seconds
	}{
		"exact":              {0, 0.1234, 0.1234},
		"up":                 {100, 0.1001, 0.2},
		"a whole unit":       {100, 0.1, 0.1},
		"three units":        {100, 0.1 * 3, 0.3}, // a little above 0.3 as a float
		"six units":          {100, 0.6, 0.6},
		"less than a ns off": {1000, 1.0000000001, 1},
		"seconds":            {1000, 0.02, 1},
	} {
		t.Run(name, func(t *testing.T) {
			if got := c.quantum.roundUp(c.takes); got < c.bills-1e-12 || got > c.bills+1e-12 {
				t.Errorf("%v bills %v, want %v", c.takes, got, c.bills)
			}
		})
	}
}

// TestRates has PAMBA's prices: a GB of a GPU is 3.4e-5 a second (P9), so 24 GB are 2.94 an hour.
func TestRates(t *testing.T) {
	b := alibaba()
	for name, c := range map[string]struct{ got, want Cost }{
		"2 vCPU":             {b.VCPU.rate(2000), 32_000},
		"512 MiB":            {b.Memory.rate(512 << 20), 1_200},
		"24 GB of a GPU":     {b.GPUMemory.rate(24), 816_000},
		"a tenth of a slice": {b.Slice.rate(500, 200), 30_000},
	} {
		t.Run(name, func(t *testing.T) {
			if c.got < c.want*(1-1e-12) || c.got > c.want*(1+1e-12) {
				t.Errorf("%v nano-units a second, want %v", c.got, c.want)
			}
		})
	}
}

// TestFunctionMemory: memory comes in whole steps, at least one, within the range that a function's vCPUs allow.
func TestFunctionMemory(t *testing.T) {
	p := Platform{MemoryStepMiB: 64, MinMiBPerCPU: 1024, MaxMiBPerCPU: 4096, MaxMemoryMiB: 8192}
	free := p
	free.MinMiBPerCPU = 0
	for name, c := range map[string]struct {
		platform Platform
		cpu      profile.MilliCPU
		need     share.Bytes
		want     int // MiB
		ok       bool
	}{
		"nothing":               {free, 1000, 0, 64, true},
		"a byte":                {free, 1000, 1, 64, true},
		"a step":                {free, 1000, 64 * share.MiB, 64, true},
		"a byte above a step":   {free, 1000, 64*share.MiB + 1, 128, true},
		"the vCPUs' least":      {p, 1000, 1, 1024, true},
		"the vCPUs' most":       {p, 1000, 4096 * share.MiB, 4096, true},
		"above the vCPUs' most": {p, 1000, 4096*share.MiB + 1, 4160, false},
		"the function's most":   {p, 4000, 8192 * share.MiB, 8192, true},
		"above it":              {p, 4000, 8192*share.MiB + 1, 8256, false},
	} {
		if got, ok := c.platform.functionMemory(c.cpu, c.need); got != share.Bytes(c.want)*share.MiB || ok != c.ok {
			t.Errorf("%s: %d MiB, %v; want %d, %v", name, got/share.MiB, ok, c.want, c.ok)
		}
	}
}

// TestOptionsAreSold: every configuration on vCPUs has a memory size that the platform sells with them.
func TestOptionsAreSold(t *testing.T) {
	in := Input{Prices: alibaba(), Platform: DefaultPlatform()}
	m := &profile.CPU{Memory: profile.Linear{Intercept: 3000}, Mean: []profile.Exponential{{Alpha: 1, Beta: 1, Gamma: 1}}, P99: []profile.Exponential{{Alpha: 1, Beta: 1, Gamma: 1}}}
	all := cpuOptions(m, &in)
	for _, o := range all {
		if _, ok := in.Platform.functionMemory(o.config.CPU, o.config.Memory); !ok || o.config.Memory < 3000*share.MiB {
			t.Errorf("%d milli-vCPU with %d MiB is not sold, or too little", o.config.CPU, o.config.Memory/share.MiB)
		}
	}
	if steps := int((in.Platform.MaxCPU-in.Platform.MinCPU)/in.Platform.CPUStep) + 1; len(all) == 0 || len(all) >= steps {
		t.Errorf("%d of %d sizes: the test needs some that are too small for the model", len(all), steps)
	}
}

// TestParetoFronts: of configurations with the same cost the fastest is kept, and no two are equal.
func TestParetoFronts(t *testing.T) {
	config := func(p99 profile.Seconds, cost Cost) option {
		return option{&Config{}, profile.Latency{Mean: p99, P99: p99}, cost}
	}
	front := paretoFront([]option{config(3, 5), config(1, 9), config(2, 5), config(2, 5), config(4, 5), config(5, 4), config(1, 10)})
	text := ""
	for _, o := range front {
		text += fmt.Sprintf("%v:%v ", o.latency.P99, o.cost)
	}
	if text != "1:9 2:5 5:4 " {
		t.Errorf("kept %s, want 1:9 2:5 5:4", text)
	}
	a := reservedOption{reply: 1, capacity: 10, cost: 5}
	b := reservedOption{config: 1, reply: 1, capacity: 10, cost: 5}
	larger, faster, cheaper := reservedOption{reply: 1, capacity: 11, cost: 6}, reservedOption{reply: 0.5, capacity: 10, cost: 6}, reservedOption{reply: 1, capacity: 9, cost: 4}
	worse := reservedOption{reply: 1.5, capacity: 10, cost: 7}
	if kept := paretoReserved([]reservedOption{worse, larger, a, b, faster, cheaper}); len(kept) != 4 {
		t.Errorf("kept %+v, want four", kept)
	}
}

// TestReserveTie: a reserved share must cost less than the function it replaces.
func TestReserveTie(t *testing.T) {
	o := &options{
		byBatch:  [][]option{{{&Config{Mode: CPU, Batch: 1}, profile.Latency{Mean: 1, P99: 1}, 3}}},
		reserved: []reservedOption{{reply: 1, capacity: 1, cost: 1, perRequest: 1}},
		configs:  []Config{{Mode: Share}},
	}
	d := demand{slo: 2, rate: 2, timeout: 2}
	if c := o.provision(d); c.config.Mode != Share || c.instances != 2 || c.cost != 2 {
		t.Errorf("%+v, want two shares for 2", c)
	}
	o.byBatch[0][0].cost = 1.5 // 3 a second for 2.5 instances' requests: three instances cost as much
	if c := o.provision(demand{slo: 2, rate: 2, timeout: 2}); c.config.Mode != Share {
		t.Errorf("%+v", c)
	}
	o.reserved[0].capacity, o.reserved[0].perRequest = 0.8, 1.25
	if c := o.provision(demand{slo: 2, rate: 2, timeout: 2}); c.config.Mode != CPU || c.cost != 3 {
		t.Errorf("%+v, want functions, which cost no more", c)
	}
}
