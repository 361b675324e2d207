package fleet

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/serving/gateway"
	"github.com/gshare-dev/gshare/serving/rules/arrival"
	"github.com/gshare-dev/gshare/serving/rules/scaling"
	"github.com/gshare-dev/gshare/test/published"
)

var (
	full = flag.Bool("full", false, "measure every setting of TestTraces, not a few")
	seed = flag.Uint64("seed", 1, "seed of the requests of TestTraces")
)

// The function that TestTraces scales: each request takes 10 ms on a replica, which handles one at a time and has a whole GPU.
const (
	traceWork = 10 * ms
	traceSLO  = 100 * ms
	traceRate = 70          // requests per second of which a replica answers nearly all in time
	idle      = 20 * second // before a trace begins, so that replicas of a minimum are ready
)

// setting is one row of the table of TestTraces.
type setting struct {
	window, keepShared string // empty: the defaults
	min                int
	start              time.Duration // time until a replica is ready
	variant            string        // other changes, as named in the table
	policy             func(p *scaling.Policy)
	foreseen           time.Duration // by how much the autoscaler sees the load in advance
}

// outcome is the result of a setting.
type outcome struct {
	requests, inTime int
	// Requests that were not answered in time, by the state of the replicas when they came: too few were wanted, one was starting, or neither.
	window, starting, other int
	starts, most            int
	gpu                     time.Duration // time for which replicas had their GPUs
}

// percent returns a number of requests as a percentage of all.
func (o outcome) percent(n int) float64 { return 100 * float64(n) / float64(o.requests) }

// gpuByNeed returns the GPU time relative to the time that the requests themselves need.
func (o outcome) gpuByNeed() float64 {
	return float64(o.gpu) / float64(o.requests) / float64(traceWork)
}

// trace is the load of the function.
type trace struct {
	name   string
	series arrival.Series
	length time.Duration
}

// rate returns the expected rate at a time, in requests per second.
func (tr *trace) rate(at time.Duration) float64 {
	if at < 0 || at >= tr.length {
		return 0
	}
	return tr.series.Counts[int(at/tr.series.Step)%len(tr.series.Counts)] / tr.series.Step.Seconds()
}

// expected returns the expected number of requests until a time.
func (tr *trace) expected(until time.Duration) uint64 {
	sum := 0.0
	for at := time.Duration(0); at < until; at += tr.series.Step {
		sum += tr.rate(at) * min(tr.series.Step, until-at).Seconds()
	}
	return uint64(sum)
}

// periodic returns a load with the shape of Dilu's periodic one: within a tenth of the period it rises from almost zero to 110 requests per
// second, stays there for a third with a dip in the middle, then falls and stays low.
func periodic(period time.Duration, periods int) trace {
	shape := []float64{2, 4, 35, 80, 105, 110, 100, 75, 60, 80, 100, 95, 80, 60, 45, 35, 30, 25, 20, 15, 12, 10, 8, 5, 3, 1}
	s := arrival.Series{Name: "periodic", Step: period / time.Duration(len(shape))}
	for _, rate := range shape {
		s.Counts = append(s.Counts, rate*s.Step.Seconds())
	}
	return trace{fmt.Sprintf("periodic, %v", period), s, time.Duration(periods) * period}
}

// bursts returns a load of 20 to 40 requests per second with bursts of 5 to 90 s to 150 to 250.
func bursts(length time.Duration) trace {
	random := rand.New(rand.NewPCG(*seed, 7))
	s := arrival.Series{Name: "bursts", Step: time.Second}
	for len(s.Counts) < int(length/time.Second) {
		for range 20 + random.IntN(60) {
			s.Counts = append(s.Counts, 20+20*random.Float64())
		}
		height := 150 + 100*random.Float64()
		for range []int{5, 10, 60, 90}[random.IntN(4)] {
			s.Counts = append(s.Counts, height)
		}
	}
	return trace{"bursts", s, length}
}

// ramp returns a load that rises from 10 requests per second to 250 and falls again.
func ramp(length time.Duration) trace {
	seconds := int(length / 2 / time.Second)
	s := arrival.Ramp(10, 250, seconds)
	s.Counts = append(s.Counts, arrival.Ramp(250, 10, seconds).Counts...)
	return trace{"ramp", s, length}
}

// level returns a load just below the capacity of one replica, which only the noise of single seconds exceeds.
func level(length time.Duration) trace {
	return trace{"level, 65/s", arrival.Series{Step: time.Second, Counts: []float64{65}}, length}
}

// conversations returns the beginning of Azure's trace of an LLM service, with more requests for each recorded one.
func conversations(t *testing.T, length time.Duration, more float64) trace {
	all, err := arrival.Read(published.Read(t, "serving/AzureLLMInferenceTrace_conv.csv"))
	if err != nil {
		t.Fatal(err)
	}
	s := all[0].Coarser(10) // for single seconds, the noise would be multiplied
	for i := range s.Counts {
		s.Counts[i] *= more
	}
	return trace{"Azure LLM", s, length}
}

// foresight shows the autoscaler the load of a later time.
type foresight struct {
	Gateways
	trace *trace
	by    time.Duration
	begin time.Time // of the trace
}

func (f *foresight) Load(name gateway.FunctionName) gateway.Load {
	l := f.Gateways.Load(name)
	l.Received = f.trace.expected(time.Since(f.begin) + f.by)
	return l
}

// measure plays a trace to the gateway of a function with a setting.
func (tr *trace) measure(t *testing.T, s setting) (o outcome) {
	object := decode(t, fmt.Sprintf("requestsPerSecond: %d, window: %q, keepShared: %q, minReplicas: %d", traceRate, s.window, s.keepShared, s.min),
		func(f *api.GPUFunction) {
			f.Spec.SLO.Latency = api.Duration(traceSLO.String())
			f.Spec.Resources.Share.SM = new(int64(100))
		})
	prepare := func(f *Fleet) {
		if s.policy != nil {
			p, fn := PolicyOf(object), f.functions[0]
			s.policy(&p)
			scaler, err := scaling.New(p, []scaling.Configuration{fn.variants[0].configuration})
			if err != nil {
				t.Fatal(err)
			}
			fn.scaler = scaler
		}
		if s.foreseen > 0 {
			f.gateways = &foresight{f.gateways, tr, s.foreseen, time.Now().Add(idle)}
		}
	}
	startObject(t, object, func(int) life { return life{start: s.start, ends: 100 * ms} }, prepare, func(w *world) {
		var wait sync.WaitGroup
		var mu sync.Mutex
		var missed []time.Duration // times of their arrival
		arrivals := arrival.Draw([]arrival.Source{{Series: &tr.series, Scale: 1}}, tr.length, *seed)
		sleep(idle)
		o = outcome{requests: len(arrivals), gpu: -w.status().GPUTime}
		for _, a := range arrivals {
			time.Sleep(idle + a.At - time.Since(w.begin))
			wait.Go(func() {
				if status, took := w.ask(traceWork); status != 200 || took > traceSLO {
					mu.Lock()
					defer mu.Unlock()
					missed = append(missed, a.At)
				}
			})
		}
		sleep(idle + tr.length - time.Since(w.begin))
		o.starts, o.most = len(w.creations()), w.mostAtOnce()
		o.gpu += w.status().GPUTime
		wait.Wait()
		o.inTime = o.requests - len(missed)
		for _, at := range missed {
			switch starting, ready := w.replicasAt(idle+at, s.start); {
			case starting > 0:
				o.starting++
			case float64(ready)*traceRate < tr.rate(at):
				o.window++
			default:
				o.other++
			}
		}
	})
	return o
}

// replicasAt returns how many replicas were starting, and how many were ready, at a time.
func (m *memory) replicasAt(at, start time.Duration) (starting, ready int) {
	for _, created := range m.creations() {
		switch {
		case created+start <= at:
			ready++
		case created <= at:
			starting++
		}
	}
	for _, deleted := range m.deletions() {
		if deleted <= at {
			ready--
		}
	}
	return starting, ready
}

// settings returns the rows of the table. In most, one parameter at a time differs from a window of 10 s, 30 s in reserve, no minimum and 2 s
// to start; some differ from the defaults.
func settings() []setting {
	base := func(change func(s *setting)) setting {
		s := setting{window: "10s", keepShared: "30s", start: 2 * second}
		change(&s)
		return s
	}
	var all []setting
	for _, window := range []string{"2s", "5s", "10s", "20s", "40s"} {
		for _, starts := range []time.Duration{0, 500 * ms, 2 * second, 10 * second} {
			all = append(all, base(func(s *setting) { s.window, s.start = window, starts }))
		}
	}
	for _, window := range []string{"10s", "20s", "40s"} {
		for _, keep := range []string{"1ms", "5m"} {
			all = append(all, base(func(s *setting) { s.window, s.keepShared = window, keep }))
		}
		for _, least := range []int{1, 2} {
			all = append(all, base(func(s *setting) { s.window, s.min = window, least }))
		}
	}
	for _, window := range []string{"10s", "20s", "40s"} {
		all = append(all, base(func(s *setting) {
			s.window, s.variant, s.policy = window, "predict mean or trend", trend
		}))
	}
	return append(all,
		base(func(s *setting) {
			s.window, s.variant, s.policy = "20s", "predict the mean", func(p *scaling.Policy) { p.Predict = mean }
		}),
		base(func(s *setting) { s.variant, s.foreseen = "load known 2 s ahead", 2*second }),
		base(func(s *setting) { s.variant, s.foreseen = "load known 7 s ahead", 7*second }),
		base(func(s *setting) { s.window, s.variant, s.policy = "40s", "2 samples add", early }),
	)
}

// early has two samples add replicas, however long the window is.
func early(p *scaling.Policy) { p.Out = 2 }

// trend predicts as package scaling does by default.
func trend(p *scaling.Policy) { p.Predict = scaling.MeanOrTrend }

// mean is a predictor that sees no trend.
func mean(samples []scaling.Rate) scaling.Rate {
	var sum scaling.Rate
	for _, s := range samples {
		sum += s
	}
	return sum / scaling.Rate(len(samples))
}

// TestTraces plays loads that rise and fall to a gateway and a fleet in virtual time, and prints what windows, reserves, minima and predictors
// give and take. With -full it measures all of them: docs/adr/0025 has the figures.
func TestTraces(t *testing.T) {
	traces := []trace{periodic(13*second, 7)}
	rows := []setting{
		{window: "2s", keepShared: "30s"}, {window: "10s", keepShared: "30s"}, {window: "10s", keepShared: "30s", start: 2 * second},
		{window: "10s", keepShared: "30s", start: 2 * second, min: 2},
		{window: "10s", keepShared: "30s", start: 2 * second, foreseen: 7 * second, variant: "load known 7 s ahead"},
	}
	if *full {
		traces = append(traces, periodic(130*second, 3), bursts(200*second), conversations(t, 200*second, 20), ramp(120*second), level(120*second))
		rows = settings()
	}
	outcomes := make([][]outcome, len(traces))
	t.Run("play", func(t *testing.T) {
		for at := range traces {
			outcomes[at] = make([]outcome, len(rows))
			for row, s := range rows {
				t.Run(fmt.Sprintf("%s, row %d", traces[at].name, row), func(t *testing.T) {
					t.Parallel()
					outcomes[at][row] = traces[at].measure(t, s)
				})
			}
		}
	})
	for at, tr := range traces {
		t.Log("\n" + table(tr, rows, outcomes[at]))
		for row, o := range outcomes[at] {
			if o.requests == 0 || o.percent(o.other) > 0.5 {
				t.Errorf("%s: %+v: %+v: want misses only while replicas are missing", tr.name, rows[row], o)
			}
		}
	}
	if !*full {
		checkOrder(t, outcomes[0])
	}
}

// TestDefaultScaling holds that the default window and predictor answer more in time than a window of 40 s with a trend does, at its GPU time.
func TestDefaultScaling(t *testing.T) {
	for _, tr := range []trace{periodic(130*second, 2), bursts(200 * second)} {
		t.Run(tr.name, func(t *testing.T) {
			got, long := tr.measure(t, setting{start: 2 * second}), tr.measure(t, setting{window: "40s", start: 2 * second, policy: trend})
			if got.percent(got.inTime) < long.percent(long.inTime) || got.gpuByNeed() > 1.03*long.gpuByNeed() {
				t.Errorf("%+v, with 40 s and a trend %+v", got, long)
			}
		})
	}
}

// checkOrder checks what the few rows of TestTraces have to show, in their order.
func checkOrder(t *testing.T, o []outcome) {
	t.Helper()
	short, long, slow, least, foreseen := o[0], o[1], o[2], o[3], o[4]
	if short.starting+long.starting > 0 || 2*short.window > long.window {
		t.Errorf("without start-up a window of 2 s misses %d, one of 10 s %d: want less than half", short.window, long.window)
	}
	if slow.window > 2*long.window || slow.starting < long.window {
		t.Errorf("with a start-up of 2 s %d wait for the window and %d for the start, without %d", slow.window, slow.starting, long.window)
	}
	if least.inTime <= slow.inTime || least.gpu <= slow.gpu {
		t.Errorf("two replicas at least: %+v, none: %+v: want more in time for more GPU time", least, slow)
	}
	if 10*foreseen.starting > slow.starting || foreseen.inTime <= slow.inTime {
		t.Errorf("with the load known ahead %+v, without %+v: want hardly any that wait for a start", foreseen, slow)
	}
}

// table returns the rows in Markdown.
func table(tr trace, rows []setting, outcomes []outcome) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %d requests in %v\n\n", tr.name, outcomes[0].requests, tr.length)
	b.WriteString("| window | start-up | reserve | minimum | also | in time, % | missed: window, % | start-up, % | else, % " +
		"| starts | GPU time by need | replicas at most |\n")
	b.WriteString("|---|---|---|---|---|---|---|---|---|---|---|---|\n")
	for row, s := range rows {
		o := outcomes[row]
		fmt.Fprintf(&b, "| %s | %v | %s | %d | %s | %.2f | %.2f | %.2f | %.2f | %d | %.2f | %d |\n", s.window, s.start, s.keepShared, s.min, s.variant,
			o.percent(o.inTime), o.percent(o.window), o.percent(o.starting), o.percent(o.other), o.starts, o.gpuByNeed(), o.most)
	}
	return b.String()
}
