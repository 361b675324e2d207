package load

import (
	"context"
	"encoding/json"
	"iter"
	"math"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

const ms = time.Millisecond

// every returns a schedule of n requests with a gap between them.
func every(gap time.Duration, n int) iter.Seq[time.Duration] {
	return func(yield func(time.Duration) bool) {
		for i := range n {
			if !yield(time.Duration(i) * gap) {
				return
			}
		}
	}
}

type sendFunc func(ctx context.Context, n int) Answer

func (f sendFunc) Send(ctx context.Context, n int) Answer { return f(ctx, n) }

// takes returns a Sender whose answers take a time.
func takes(d time.Duration) sendFunc {
	return func(ctx context.Context, _ int) Answer {
		select {
		case <-time.After(d):
			return Answer{OK: true}
		case <-ctx.Done():
			return Answer{Status: reason(context.Cause(ctx))}
		}
	}
}

func mustRun(t *testing.T, p Plan, s Sender) *Result {
	t.Helper()
	r, err := Run(t.Context(), p, s, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func near(got, want float64) bool { return math.Abs(got-want) <= want/100 }

// stalling is a server for one request at a time, 1 ms each, that stands still for a second.
type stalling struct {
	turn  chan struct{} // a mutex that the virtual clock knows
	start time.Time
}

func newStalling() *stalling { return &stalling{turn: make(chan struct{}, 1), start: time.Now()} }

func (s *stalling) Send(context.Context, int) Answer {
	s.turn <- struct{}{}
	defer func() { <-s.turn }()
	if at := time.Since(s.start); at >= 5*time.Second && at < 6*time.Second {
		time.Sleep(6*time.Second - at)
	}
	time.Sleep(ms)
	return Answer{OK: true}
}

// TestStallIsMeasured checks that a stall of a second in ten is in the p95. The control is a client that waits for each answer: it sends
// no requests during the stall and does not see it.
func TestStallIsMeasured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := mustRun(t, Plan{Schedule: every(10*ms, 1000), Length: 10 * time.Second}, newStalling())
		if r.Latency.P50 > 2 || r.Latency.P95 < 400 || r.Latency.P99 < 800 || r.ClientLate {
			t.Errorf("a stall of a second: %+v, client late %v", r.Latency, r.ClientLate)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		s := newStalling()
		var took []time.Duration
		for time.Since(s.start) < 10*time.Second {
			sent := time.Now()
			s.Send(t.Context(), 0)
			took = append(took, time.Since(sent))
			time.Sleep(10*ms - time.Since(sent)%(10*ms))
		}
		slices.Sort(took)
		if p99 := took[len(took)*99/100]; p99 > 2*ms {
			t.Errorf("the waiting client saw the stall: p99 %v", p99)
		}
	})
}

// TestCounts checks what is counted of answers, failures, timeouts and a warm-up.
func TestCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sender := sendFunc(func(ctx context.Context, n int) Answer {
			switch n % 10 {
			case 0:
				return Answer{Status: "503"}
			case 2:
				return takes(time.Hour)(ctx, n)
			case 3:
				return takes(80*ms)(ctx, n)
			}
			return takes(20*ms)(ctx, n)
		})
		r := mustRun(t, Plan{Schedule: every(100*ms, 200), WarmUp: 10 * time.Second, Length: 20 * time.Second, Timeout: time.Second, SLO: 50 * ms}, sender)
		if r.Scheduled != 100 || r.Answered != 80 || r.Failed() != 20 || r.Failures["503"] != 10 || r.Failures["timeout"] != 10 {
			t.Errorf("%d scheduled, %d answered, failures %v", r.Scheduled, r.Answered, r.Failures)
		}
		if !near(r.Latency.P50, 20) || !near(r.Latency.P99, 80) || r.OfferedRate != 10 || r.AnsweredRate != 8 || r.Seconds != 10 {
			t.Errorf("latency %+v, rates %v and %v in %v s", r.Latency, r.OfferedRate, r.AnsweredRate, r.Seconds)
		}
		if *r.SLO != (Attainment{Milliseconds: 50, InTime: 70, Ratio: 0.7, Goodput: 7}) {
			t.Errorf("%+v", *r.SLO)
		}
		if len(r.Intervals) != 20 || r.Intervals[19].Scheduled != 10 || r.Intervals[19].Answered != 8 || !near(r.Intervals[19].P99, 80) {
			t.Errorf("intervals: %+v", r.Intervals)
		}
		if got := r.Reasons(); !slices.Equal(got, []string{"503", "timeout"}) {
			t.Errorf("reasons %v", got)
		}
	})
}

// TestInFlightIsBounded checks that no more requests are under way than allowed, and that those not sent are said to be.
func TestInFlightIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := mustRun(t, Plan{Schedule: every(10*ms, 100), Length: time.Second, MaxInFlight: 5}, takes(95*ms))
		if r.Answered != 50 || r.Failures[Unsent] != 50 || !r.ClientLate {
			t.Errorf("%d answered, %v, client late %v; want half of 100", r.Answered, r.Failures, r.ClientLate)
		}
	})
}

// TestLateClientSaysSo checks that a client which sends late counts it in the latency, and says that it was late.
func TestLateClientSaysSo(t *testing.T) {
	slow := func(yield func(time.Duration) bool) {
		for at := range every(10*ms, 100) {
			if at == 500*ms {
				time.Sleep(50 * ms)
			}
			if !yield(at) {
				return
			}
		}
	}
	synctest.Test(t, func(t *testing.T) {
		r := mustRun(t, Plan{Schedule: slow, Length: time.Second, SLO: 100 * ms}, takes(ms))
		if !r.ClientLate || !near(r.Lateness.Max, 40) || !near(r.Latency.Max, 41) {
			t.Errorf("late %v: lateness %+v, latency %+v", r.ClientLate, r.Lateness, r.Latency)
		}
	})
}

// TestInterrupted checks that cancelling ends a run at once, with what was measured until then.
func TestInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second+5*ms)
		defer cancel()
		seconds := 0
		r, err := Run(ctx, Plan{Schedule: every(10*ms, 1000), Length: 10 * time.Second}, takes(95*ms), func(p Progress) {
			seconds++
			if p.InFlight != 9 && p.InFlight != 10 {
				t.Errorf("%v: %d in flight", p.Elapsed, p.InFlight)
			}
		})
		if err != nil || !r.Interrupted || r.Answered < 490 || r.Scheduled != 501 || seconds != 5 || !near(r.OfferedRate, 100) || len(r.Intervals) != 6 {
			t.Errorf("%+v after %d reports: %v", r, seconds, err)
		}
	})
}

// TestStreams checks that the objective of a streamed answer is that of its first token.
func TestStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sender := sendFunc(func(context.Context, int) Answer {
			time.Sleep(30 * ms)
			first := time.Now()
			time.Sleep(90 * ms)
			return Answer{OK: true, First: first, Tokens: 10}
		})
		r := mustRun(t, Plan{Schedule: every(100*ms, 10), Length: time.Second, SLO: 40 * ms}, sender)
		if !near(r.FirstToken.P99, 30) || !near(r.TokenGap.P50, 10) || !near(r.Latency.P50, 120) || r.SLO.Ratio != 1 {
			t.Errorf("%+v %+v %+v %+v", r.FirstToken, r.TokenGap, r.Latency, r.SLO)
		}
	})
}

func TestPlanIsChecked(t *testing.T) {
	good := Plan{Schedule: every(ms, 1), Length: time.Second}
	for field, change := range map[string]func(*Plan){
		"schedule":    func(p *Plan) { p.Schedule = nil },
		"length":      func(p *Plan) { p.Length = 0 },
		"length max":  func(p *Plan) { p.Length = maxLength + 1 },
		"warmUp":      func(p *Plan) { p.WarmUp = time.Second },
		"timeout":     func(p *Plan) { p.Timeout = maxLatency + 1 },
		"maxInFlight": func(p *Plan) { p.MaxInFlight = -1 },
		"slo":         func(p *Plan) { p.SLO = -1 },
	} {
		p := good
		change(&p)
		if _, err := Run(t.Context(), p, takes(0), nil); err == nil {
			t.Errorf("%s: accepted", field)
		}
	}
}

// TestResultJSON checks that a result survives JSON, and that its form changes only with its version.
func TestResultJSON(t *testing.T) {
	r := &Result{Version: ResultVersion, Scheduled: 2, Answered: 1, Failures: map[string]int{"503": 1}, SLO: &Attainment{Milliseconds: 69}, Intervals: []Interval{{Scheduled: 2}}}
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var again Result
	if err := json.Unmarshal(text, &again); err != nil || !reflect.DeepEqual(&again, r) {
		t.Errorf("%+v, want %+v: %v", again, *r, err)
	}
	const want = `{"version":1,"seconds":0,"scheduled":2,"answered":1,"failures":{"503":1},"offeredRate":0,"answeredRate":0,` +
		`"latencyMs":{"mean":0,"p50":0,"p90":0,"p95":0,"p99":0,"p999":0,"max":0},"slo":{"ms":69,"inTime":0,"ratio":0,"goodput":0},` +
		`"latenessMs":{"mean":0,"p50":0,"p90":0,"p95":0,"p99":0,"p999":0,"max":0},"clientLate":false,` +
		`"intervals":[{"from":0,"scheduled":2,"answered":0,"p50Ms":0,"p99Ms":0}]}`
	if string(text) != want {
		t.Errorf("version %d is\n%s, want\n%s", ResultVersion, text, want)
	}
}
