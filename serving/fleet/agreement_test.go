package fleet

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	simulator "github.com/gshare-dev/gshare/lab/serving"
	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/serving/rules/arrival"
	"github.com/gshare-dev/gshare/serving/rules/scaling"
	"github.com/gshare-dev/gshare/test/published"
)

// replicated is a function that both the simulation and the fleet run.
type replicated struct {
	rate        int           // requests per second that a replica answers in time
	work        time.Duration // of a request
	slo         time.Duration
	start, ends time.Duration // of a replica, until it is ready and until it is gone
	replicas    int           // maximum
}

// object returns the function as its user writes it.
func (r replicated) object(t *testing.T) *api.GPUFunction {
	return decode(t, fmt.Sprintf("requestsPerSecond: %d, maxReplicas: %d, keepShared: 30s", r.rate, r.replicas), func(f *api.GPUFunction) {
		f.Spec.SLO.Latency = api.Duration(r.slo.String())
		f.Spec.Resources.Share.SM = new(int64(100))
	})
}

// decision is a decision of an autoscaler with its time.
type decision struct {
	at     time.Duration
	action scaling.Action
}

// run is the result of playing a trace.
type run struct {
	decisions []decision
	missed    int // requests that were not answered in time
}

// simulate plays the arrivals in the simulator.
func (r replicated) simulate(t *testing.T, arrivals []arrival.Arrival, length time.Duration) (got run) {
	t.Helper()
	object := r.object(t)
	in := &simulator.Input{
		Functions: []simulator.Function{{Name: "f", SLO: r.slo, LoadCold: r.start, Replicas: &simulator.Replicas{
			Share: object.Share(), Rate: scaling.Rate(r.rate), Takes: r.work, Ends: r.ends, Policy: PolicyOf(object),
		}}},
		Arrivals: arrivals, Until: length,
		Decided: func(at time.Duration, _ string, d scaling.Decision) {
			got.decisions = append(got.decisions, decision{at, d.Action})
		},
	}
	result, err := simulator.Run(t.Context(), in, "replicas")
	if err != nil {
		t.Fatal(err)
	}
	got.missed = result.Violations
	return got.until(length)
}

// play plays the arrivals with a gateway and a fleet, in virtual time.
func (r replicated) play(t *testing.T, arrivals []arrival.Arrival, length time.Duration) (got run) {
	t.Helper()
	begin := time.Time{}
	prepare := func(f *Fleet) {
		begin = time.Now()
		f.decided = func(_ *api.GPUFunction, d scaling.Decision, _ scaling.Rate) {
			got.decisions = append(got.decisions, decision{time.Since(begin), d.Action})
		}
	}
	startObject(t, r.object(t), func(int) life { return life{start: r.start, ends: r.ends} }, prepare, func(w *world) {
		var wait sync.WaitGroup
		var missed atomic.Int64
		for _, a := range arrivals {
			time.Sleep(a.At - time.Since(w.begin))
			wait.Go(func() {
				if status, took := w.ask(r.work); status != 200 || took > r.slo {
					missed.Add(1)
				}
			})
		}
		sleep(length - time.Since(w.begin))
		wait.Wait()
		got.missed = int(missed.Load())
	})
	return got.until(length)
}

// until returns the run without the decisions made after the trace.
func (r run) until(length time.Duration) run {
	for at, d := range r.decisions {
		if d.at >= length {
			r.decisions = r.decisions[:at]
			break
		}
	}
	return r
}

// agreement returns the percentage of the decisions of two runs that the other run has also made, at most a period apart.
func agreement(a, b []decision) float64 {
	used, same := make([]bool, len(b)), 0
	for _, d := range a {
		for at, other := range b {
			if !used[at] && d.action == other.action && (d.at-other.at).Abs() <= period {
				used[at] = true
				same++
				break
			}
		}
	}
	return 100 * float64(same) / float64(max(len(a), len(b)))
}

// compare plays a trace in the simulator and with the fleet and its gateway, and checks that they make the same decisions and miss equally many
// deadlines.
func (r replicated) compare(t *testing.T, tr trace) {
	t.Helper()
	arrivals := arrival.Draw([]arrival.Source{{Series: &tr.series, Scale: 1}}, tr.length, *seed)
	simulated, played := r.simulate(t, arrivals, tr.length), r.play(t, arrivals, tr.length)
	percent := func(missed int) float64 { return 100 * float64(missed) / float64(len(arrivals)) }
	same := agreement(simulated.decisions, played.decisions)
	other := r
	other.rate++
	if control := agreement(other.simulate(t, arrivals, tr.length).decisions, played.decisions); control >= 99 {
		t.Errorf("the test shows nothing: %.1f %% agree with a simulation of replicas with another rate", control)
	}
	t.Logf("%s: %d requests; %d decisions of the simulator and %d of the fleet, %.1f %% of them within a period; missed %.2f %% and %.2f %%", tr.name,
		len(arrivals), len(simulated.decisions), len(played.decisions), same, percent(simulated.missed), percent(played.missed))
	if same < 99 || len(played.decisions) < 4 || math.Abs(percent(simulated.missed)-percent(played.missed)) > 0.3 {
		t.Errorf("simulator %+v, fleet %+v", simulated, played)
	}
}

// fastRamp is the load of FaST-GShare's figure 12, including its noise: from zero to 110 requests per second and back.
func fastRamp() trace {
	random := rand.New(rand.NewPCG(7, 0))
	s := arrival.Series{Name: "ramp", Step: time.Second}
	for _, step := range []struct {
		seconds int
		load    float64
	}{{5, 0}, {10, 30}, {10, 40}, {10, 50}, {15, 60}, {15, 70}, {15, 80}, {15, 90}, {15, 100}, {15, 110}, {10, 100}, {10, 90}, {15, 70}, {80, 50}, {60, 20}} {
		for range step.seconds {
			s.Counts = append(s.Counts, max(0, step.load+min(0.4*step.load, 20)*(2*random.Float64()-1)))
		}
	}
	return trace{"FaST-GShare's ramp", s, s.Length()}
}

// TestSimulatorAgrees compares the simulator with the fleet and its gateway on the ramp of FaST-GShare, with the paper's SLO, and a replica that has
// about the rate of the paper's smallest one.
func TestSimulatorAgrees(t *testing.T) {
	replicated{rate: 35, work: 20 * ms, slo: 69 * ms, start: 2 * second, ends: 500 * ms, replicas: 8}.compare(t, fastRamp())
}

// TestDiluSimulatorAgrees does the same with Dilu's bursty load, and replicas that start in 10 s.
func TestDiluSimulatorAgrees(t *testing.T) {
	s := arrival.Series{Name: "bursty", Step: time.Second}
	for _, field := range strings.Fields(published.Read(t, "dilu/bursty.txt")) {
		load, err := strconv.ParseFloat(field, 64)
		if err != nil {
			t.Fatal(err)
		}
		s.Counts = append(s.Counts, load)
	}
	replicated{rate: 2, work: 250 * ms, slo: second, start: 10 * second, ends: 500 * ms, replicas: 10}.compare(t, trace{"Dilu's bursty load", s, s.Length()})
}
