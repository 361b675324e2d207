package profile

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/quick"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// TestLinearMemory: a line in MiB gives bytes, of whole MiB.
func TestLinearMemory(t *testing.T) {
	line := Linear{Slope: 10.25, Intercept: 500}
	for batch, want := range map[int]share.Bytes{0: 500 * share.MiB, 1: 511 * share.MiB, 4: 541 * share.MiB} {
		if got := line.Memory(batch); got != want {
			t.Errorf("batch %d: %d bytes, want %d", batch, got, want)
		}
	}
}

// TestWorstCase is the hand-checked case: 10 ms, 6 of 24 GB, slices of 2 ms: ceil(10/12)*18*2 + 10 = 46 ms.
func TestWorstCase(t *testing.T) {
	g := GPU{Exclusive: Linear{Intercept: 0.010}, Tail: Linear{Slope: 1}, CardGB: 24, TimeSlice: 0.002}
	for name, c := range map[string]struct {
		gb        int
		tail      Linear
		mean, p99 Seconds
	}{
		"a quarter":      {6, Linear{Slope: 1}, 0.040, 0.046},
		"with tail":      {6, Linear{Slope: 1.2, Intercept: 0.001}, 0.040, 0.0562},
		"the whole card": {24, Linear{Slope: 1.2}, 0.010, 0.010},
		"one GB":         {1, Linear{Slope: 1}, 0.240, 0.240}, // ceil(5)*23*2 + 10
	} {
		t.Run(name, func(t *testing.T) {
			g.Tail = c.tail
			if got := g.Latency(1, c.gb); !near(got.Mean, c.mean) || !near(got.P99, c.p99) {
				t.Errorf("%+v, want %v and %v", got, c.mean, c.p99)
			}
		})
	}
}

func near(a, b Seconds) bool { return math.Abs(float64(a-b)) < 1e-9 }

// TestShareIsACard: a share of all SMs with quota m/M behaves as m of M GB of a card whose slices make up the window.
func TestShareIsACard(t *testing.T) {
	g := GPU{Exclusive: Linear{Slope: 0.003, Intercept: 0.004}, Tail: Linear{Slope: 1.2}, CardGB: 20, TimeSlice: 0.005}
	s := Share{Curves: []ShareCurve{{SM: share.Whole, Exclusive: g.Exclusive}}, Tail: g.Tail, Window: 0.1}
	for batch := 1; batch <= 32; batch++ {
		for gb := 1; gb <= 20; gb++ {
			a, b := g.Latency(batch, gb), s.Latency(batch, 0, share.PerMille(50*gb))
			if !near(a.Mean, b.Mean) || !near(a.P99, b.P99) {
				t.Fatalf("batch %d, %d GB: %+v and %+v", batch, gb, a, b)
			}
		}
	}
}

func TestPartitioned(t *testing.T) {
	worker := func(gamma Seconds) CPU {
		return CPU{Mean: []Exponential{{1, 1, gamma}}, P99: []Exponential{{1, 1, 2 * gamma}}}
	}
	m := Partitioned{Stages: []Stage{{Workers: []CPU{worker(0.1), worker(0.3)}}, {Workers: []CPU{worker(0.2)}}}, Transfer: Linear{Slope: 0.01, Intercept: 0.02}}
	c := [][]MilliCPU{{50_000, 50_000}, {50_000}} // alpha has gone
	if got := m.Latency(1, c); !near(got.Mean, 0.3+0.2+0.03) || !near(got.P99, 0.6+0.4+0.03) {
		t.Errorf("%+v", got)
	}
	if m.Batches() != 1 {
		t.Errorf("batches %d", m.Batches())
	}
}

// TestTailAboveMean: fitted curves may cross, predictions may not.
func TestTailAboveMean(t *testing.T) {
	crossing := CPU{Mean: []Exponential{{2, 0.3, 0.1}}, P99: []Exponential{{1.8, 0.3, 0.15}}}
	for c := MilliCPU(50); c < 4000; c += 50 {
		if l := crossing.Latency(1, c); l.P99 < l.Mean {
			t.Fatalf("%d: %+v", c, l)
		}
	}
	sliced := func(l, own, others uint16) bool {
		got := timeSliced(Seconds(l)/1000+0.001, Seconds(own)/1000+0.001, Seconds(others)/1000, Linear{Slope: 1})
		return got.P99 >= got.Mean
	}
	if err := quick.Check(sliced, nil); err != nil {
		t.Error(err)
	}
}

func valid() Model {
	cpu := CPU{Mean: []Exponential{{1, 1, 1}}, P99: []Exponential{{1, 1, 1}}}
	line := Linear{Slope: 1}
	return Model{
		Name: "m", CPU: &cpu,
		GPU:         &GPU{Exclusive: line, Tail: line, CardGB: 24, TimeSlice: 0.002, MaxBatch: 8},
		Partitioned: &Partitioned{Stages: []Stage{{Workers: []CPU{cpu}}}, Master: Master{CPU: 100, MemoryMiB: 128}},
		Share:       &Share{Curves: []ShareCurve{{SM: 500, Exclusive: line}}, Tail: line, Window: 0.1, MaxBatch: 8},
	}
}

func TestModelValidate(t *testing.T) {
	ok := valid()
	if err := ok.Validate(); err != nil {
		t.Fatal(err)
	}
	nan := math.NaN()
	for field, spoil := range map[string]func(*Model){
		"name":                           func(m *Model) { m.Name = "" },
		"cpu, gpu, partitioned, share":   func(m *Model) { *m = Model{Name: "m"} },
		"cpu.mean, p99":                  func(m *Model) { m.CPU.P99 = nil },
		"cpu.mean[0].alpha":              func(m *Model) { m.CPU.Mean = []Exponential{{Seconds(nan), 1, 1}} },
		"cpu.p99[0].beta":                func(m *Model) { m.CPU.P99 = []Exponential{{1, 0, 1}} },
		"cpu.p99[0].gamma":               func(m *Model) { m.CPU.P99 = []Exponential{{1, 1, -1}} },
		"cpu.memoryMiB.slope":            func(m *Model) { m.CPU.Memory.Slope = math.Inf(1) },
		"gpu.cardGB":                     func(m *Model) { m.GPU.CardGB = 0 },
		"gpu.timeSlice":                  func(m *Model) { m.GPU.TimeSlice = Seconds(nan) },
		"gpu.maxBatch":                   func(m *Model) { m.GPU.MaxBatch = 1 << 40 },
		"gpu.exclusive.slope, intercept": func(m *Model) { m.GPU.Exclusive = Linear{} },
		"gpu.tail.slope":                 func(m *Model) { m.GPU.Tail.Slope = -1 },
		"partitioned.stages":             func(m *Model) { m.Partitioned.Stages = nil },
		"partitioned.stages[0].workers":  func(m *Model) { m.Partitioned.Stages = []Stage{{}} },
		"partitioned.stages[0].workers[0].mean, p99": func(m *Model) { m.Partitioned.Stages = []Stage{{Workers: []CPU{{}}}} },
		"partitioned.master.milliCPU":                func(m *Model) { m.Partitioned.Master.CPU = 0 },
		"share.curves":                               func(m *Model) { m.Share.Curves = nil },
		"share.curves[0].sm":                         func(m *Model) { m.Share.Curves[0].SM = 1001 },
		"share.window":                               func(m *Model) { m.Share.Window = 0 },
	} {
		m := valid()
		spoil(&m)
		expectField(t, m.Validate(), field)
	}
}

func expectField(t *testing.T, err error, field string) {
	t.Helper()
	var got *share.FieldError
	if !errors.As(err, &got) || got.Field != field {
		t.Errorf("error %v, want one of field %s", err, field)
	}
}

// TestPointValidate holds each measure of a trial, of which FaST-GShare has throughput, latency, utilisation and occupancy, to its bounds.
func TestPointValidate(t *testing.T) {
	good := func() Point {
		return Point{Model: "m", Resource: Resource{CPU: 1000}, Batch: 1, Mean: time.Millisecond}
	}
	for _, resource := range []Resource{{CPU: 1}, {SM: 1, Quota: 1000}, {Slice: "1g.10gb"}} {
		t.Run(fmt.Sprint(resource), func(t *testing.T) {
			p := good()
			if p.Resource = resource; p.Validate() != nil {
				t.Errorf("%+v: %v", resource, p.Validate())
			}
		})
	}
	full := good()
	full.Batch, full.Stage, full.P95, full.P99, full.Memory = MaxBatch, 1, time.Second, time.Second, share.MaxMemory
	full.Throughput, full.Utilisation, full.Occupancy, full.LoadWarm, full.LoadCold = 1e6, share.Whole, share.Whole, 1, 1
	if err := full.Validate(); err != nil {
		t.Errorf("%+v: %v", full, err)
	}
	for name, spoil := range map[string]func(*Point){
		"resource: names 0":  func(p *Point) { p.Resource = Resource{} },
		"resource: names 2":  func(p *Point) { p.Resource = Resource{CPU: 1, Slice: "1g.10gb"} },
		"resource.cpu":       func(p *Point) { p.Resource.CPU = -1 },
		"resource.sm, quota": func(p *Point) { p.Resource = Resource{SM: 100} },
		"model":              func(p *Point) { p.Model = "" },
		"batch":              func(p *Point) { p.Batch = 0 },
		"mean":               func(p *Point) { p.Mean = 0 },
		"throughput: NaN":    func(p *Point) { p.Throughput = math.NaN() },
		"memory":             func(p *Point) { p.Memory = -1 },
		"stage":              func(p *Point) { p.Stage = -1 },
		"p95, p99, load":     func(p *Point) { p.P99 = -1 },
		"p95, p99: 2s":       func(p *Point) { p.P95, p.P99 = 2*time.Second, time.Second },
		"throughput: -1":     func(p *Point) { p.Throughput = -1 },
		"throughput: +Inf":   func(p *Point) { p.Throughput = math.Inf(1) },
		"batch: 65537":       func(p *Point) { p.Batch = MaxBatch + 1 },
		"utilisation: -1":    func(p *Point) { p.Utilisation = -1 },
		"utilisation: 1001":  func(p *Point) { p.Utilisation = share.Whole + 1 },
		"occupancy: -1":      func(p *Point) { p.Occupancy = -1 },
		"occupancy: 1001":    func(p *Point) { p.Occupancy = share.Whole + 1 },
	} {
		t.Run(name, func(t *testing.T) {
			p := good()
			spoil(&p)
			if err := p.Validate(); err == nil || !strings.HasPrefix(err.Error(), name) {
				t.Errorf("%v, want %s", err, name)
			}
		})
	}
}

// TestSumOfTails reports the bias of P11: the sum of the stages' p99 is above the p99 of the sum.
func TestSumOfTails(t *testing.T) {
	const stages, runs = 4, 20_000
	r := rand.New(rand.NewPCG(1, 3))
	one, sum := make([]float64, 0, runs*stages), make([]float64, runs)
	for i := range sum {
		for range stages {
			x := math.Exp(0.2 * r.NormFloat64())
			one, sum[i] = append(one, x), sum[i]+x
		}
	}
	slices.Sort(one)
	slices.Sort(sum)
	bound, truth := stages*one[len(one)*99/100], sum[runs*99/100]
	t.Logf("the bound is %.1f %% above the p99 of %d independent stages", 100*(bound/truth-1), stages)
	if bound < truth {
		t.Errorf("the bound, %v, is below the p99, %v", bound, truth)
	}
}

// A hundredth of drawn executions exceeds the p99, and a thousandth the p99.9; a time that never varies has but one quantile.
func TestQuantile(t *testing.T) {
	l := Latency{Mean: 0.1, P99: 0.2}
	r := rand.New(rand.NewPCG(1, 2))
	const n = 200_000
	over := map[float64]int{}
	for range n {
		x := l.Mean - l.Spread() + l.Spread()*Seconds(r.ExpFloat64())
		for _, late := range []float64{0.01, 0.001} {
			if x > l.Quantile(late) {
				over[late]++
			}
		}
	}
	for late, count := range over {
		t.Run(fmt.Sprint(late), func(t *testing.T) {
			if got := float64(count) / n; got < 0.8*late || got > 1.2*late {
				t.Errorf("%v exceed the quantile of %v", got, late)
			}
		})
	}
	if got := (Latency{1, 1}).Quantile(0.001); got != 1 || len(over) != 2 {
		t.Errorf("%v, %v", got, over)
	}
}
