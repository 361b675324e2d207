package profiler

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gshare-dev/gshare/serving/load"
	"github.com/gshare-dev/gshare/serving/rules/profile"
	"github.com/gshare-dev/gshare/serving/rules/profile/search"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// model is a Target whose server runs one request after the other, each for the time of a surface.
type model struct {
	time   func(rows int, sm, quota share.PerMille) time.Duration
	starts []share.PerMille // SMs of each server that was started
	fixed  bool             // servers keep their quota
	fail   func(start int) error
	event  func(string) // called before each step
}

func (m *model) Start(_ context.Context, sm, quota share.PerMille) (Server, error) {
	m.step("start")
	m.starts = append(m.starts, sm)
	if m.fail != nil {
		if err := m.fail(len(m.starts)); err != nil {
			return nil, err
		}
	}
	time.Sleep(200 * time.Millisecond)
	return &server{model: m, sm: sm, quota: quota, whole: sm == share.Whole && quota == share.Whole, ended: make(chan struct{})}, nil
}

func (m *model) step(what string) {
	if m.event != nil {
		m.event(what)
	}
}

type server struct {
	model     *model
	sm, quota share.PerMille
	whole     bool // it has the device alone, and keeps all of the time
	busy      sync.Mutex
	ended     chan struct{}
	usage     error
}

func (s *server) Infer(ctx context.Context, rows int) load.Answer {
	s.busy.Lock()
	defer s.busy.Unlock()
	if ctx.Err() != nil {
		return load.Answer{Status: "cancelled"}
	}
	if rows < 1 {
		return load.Answer{Status: "400"}
	}
	time.Sleep(s.model.time(rows, s.sm, s.quota))
	return load.Answer{OK: true}
}

func (s *server) Usage(context.Context) (Usage, error) {
	s.model.step("usage")
	return Usage{Memory: 100 << 20, Utilisation: 900}, s.usage
}

func (s *server) Narrow(_ context.Context, quota share.PerMille) bool {
	if s.model.fixed || s.whole {
		return false
	}
	s.quota = quota
	return true
}

func (s *server) Ended() <-chan struct{} { return s.ended }

func (s *server) Failure() string { return "" }

func (s *server) Close() {
	s.busy.Lock()
	defer s.busy.Unlock()
}

// kernel is a known surface: a batch takes a time of its own and one for each row, on the SMs that it can keep busy; on fewer, in proportion
// longer.
type kernel struct {
	fixed, row  time.Duration
	busy, grows share.PerMille // SMs that a batch of one keeps busy, and each further row
}

func (k kernel) time(rows int, sm, quota share.PerMille) time.Duration {
	busy := min(share.Whole, k.busy+share.PerMille(rows-1)*k.grows)
	alone := k.fixed + time.Duration(rows)*k.row
	return time.Duration(float64(alone) * max(1, float64(busy)/float64(sm)) * float64(share.Whole) / float64(quota))
}

func loadOf(slo time.Duration) Load {
	return Load{SLO: slo, Objective: 0.99, Bound: slo / 2, Concurrency: 1, Seed: 1}
}

// TestKnownSurface recovers known surfaces by hybrid growth, in at most 11 trials: each time of a batch, the most efficient share of
// the whole grid, and, within 10 %, the rate that a server on the recommended share answers within the objective, as a simulation of 200,000
// requests has it.
func TestKnownSurface(t *testing.T) {
	for name, c := range map[string]struct {
		kernel kernel
		slo    time.Duration
	}{
		"a large batch pays":     {kernel{4 * time.Millisecond, time.Millisecond, 120, 10}, 100 * time.Millisecond},
		"the objective is tight": {kernel{6 * time.Millisecond, 2 * time.Millisecond, 400, 100}, 69 * time.Millisecond},
		"one row fills many SMs": {kernel{time.Millisecond, 9 * time.Millisecond, 350, 0}, 60 * time.Millisecond},
		"rows fill SMs in turn":  {kernel{5 * time.Millisecond, 500 * time.Microsecond, 100, 90}, 150 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				growth := search.Growth{SLO: c.slo, Step: 100, MaxBatch: 16, Device: "GPU"}
				m := &model{time: c.kernel.time}
				record := &Record{Model: "m"}
				begin := time.Now()
				err := Run(t.Context(), Config{Strategy: growth, Target: m, Load: loadOf(c.slo), Save: func(*Record) error { return nil }}, record)
				if err != nil || !record.Complete || len(record.Trials) > 11 {
					t.Fatalf("%v, complete %v after %d trials", err, record.Complete, len(record.Trials))
				}
				for _, trial := range record.Trials {
					p := trial.Point
					within(t, "time of a batch", p.Mean.Seconds(), c.kernel.time(p.Batch, p.Resource.SM, share.Whole).Seconds(), 0.05)
				}
				best, err := growth.Best(record.history())
				if err != nil {
					t.Fatal(err)
				}
				within(t, "efficacy", search.Efficacy(best.Point), mostEfficient(c.kernel, growth), 0.05)
				chosen, err := record.Best(growth)
				if err != nil {
					t.Fatal(err)
				}
				p := chosen.Point
				truth := capacity(c.kernel, p.Batch, p.Resource.SM, c.slo)
				within(t, "rate within the objective", p.Throughput, truth, 0.1)
				t.Logf("%d trials on %d servers in %v; recommended batch %d on %d per mille with %.1f/s, truly %.1f/s; growth has batch %d on %d", len(record.Trials),
					len(m.starts), time.Since(begin).Round(time.Second), p.Batch, p.Resource.SM, p.Throughput, truth, best.Point.Batch, best.Point.Resource.SM)
			})
		})
	}
}

// mostEfficient returns the highest efficacy of all settings that a search may choose.
func mostEfficient(k kernel, g search.Growth) (highest float64) {
	for batch := 1; batch <= g.MaxBatch; batch *= 2 {
		for sm := g.Step; sm <= share.Whole; sm += g.Step {
			if d := k.time(batch, sm, share.Whole); d <= g.SLO/2 {
				highest = max(highest, search.Efficacy(profile.Point{Batch: batch, Mean: d, Resource: profile.Resource{SM: sm}}))
			}
		}
	}
	return highest
}

func within(t *testing.T, what string, got, want, part float64) {
	t.Helper()
	if math.Abs(got-want) > part*want {
		t.Errorf("%s: %.4g, want %.4g within %v %%", what, got, want, 100*part)
	}
}

// capacity returns the highest rate of which 99 % are in time, by a simulation of a single queue: 200,000 requests at each rate.
func capacity(k kernel, batch int, sm share.PerMille, slo time.Duration) float64 {
	l := Load{Seed: 99}
	low, high := 0.0, 0.0
	for n := 1; n <= batch; n++ {
		high = max(high, float64(n)/k.time(n, sm, share.Whole).Seconds())
	}
	for high-low > 0.005*high {
		rate := (low + high) / 2
		due := l.arrivals(rate, time.Duration(200_000/rate*1e9), 0)
		late, free := 0, time.Duration(0)
		for i := 0; i < len(due); {
			start := max(free, due[i])
			n := i
			for n < len(due) && n < i+batch && due[n] <= start {
				n++
			}
			free = start + k.time(n-i, sm, share.Whole)
			for ; i < n; i++ {
				if free-due[i] > slo {
					late++
				}
			}
		}
		if float64(late) <= 0.01*float64(len(due)) {
			low = rate
		} else {
			high = rate
		}
	}
	return low
}

// errKilled stands for SIGKILL: nothing of the profiler runs after it.
var errKilled = errors.New("killed")

// TestKilledAtEveryStep kills the profiler at each step of a grid and starts another one: it measures what the first would have measured,
// and repeats at most the trial that was under way.
func TestKilledAtEveryStep(t *testing.T) {
	grid := search.Grid{SM: []share.PerMille{500, 1000}, Quota: []share.PerMille{1000}, Batches: []int{1, 4}, Device: "GPU"}
	synctest.Test(t, func(t *testing.T) {
		folder := t.TempDir()
		tried := map[string]int{}
		run := func(file string, step func()) (record *Record, err error) {
			defer func() {
				if recover() != nil {
					err = errKilled
				}
			}()
			if record, err = (Record{Model: "m"}).Load(file); err != nil {
				return nil, err
			}
			m := &model{time: func(rows int, sm, _ share.PerMille) time.Duration {
				return time.Duration(rows) * 50 * time.Millisecond * time.Duration(share.Whole/sm)
			}, event: func(string) { step() }}
			return record, Run(t.Context(), Config{
				Strategy: grid, Target: m, Load: loadOf(time.Second),
				Save: func(r *Record) error {
					step()
					if err := r.Save(file); err != nil {
						return err
					}
					step()
					return nil
				},
				Begin: func(s search.Setting, again bool) { step(); tried[fmt.Sprint(s, again)]++ },
			}, record)
		}
		steps := 0
		want, err := run(filepath.Join(folder, "whole"), func() { steps++ })
		if err != nil || len(want.Trials) != 4 || steps < 25 {
			t.Fatalf("%v, %d steps: %+v", err, steps, want)
		}
		for last := 1; last <= steps; last++ {
			file := filepath.Join(folder, strconv.Itoa(last))
			clear(tried)
			n := 0
			if _, err := run(file, func() {
				if n++; n == last {
					panic(errKilled)
				}
			}); !errors.Is(err, errKilled) {
				t.Fatalf("step %d: %v", last, err)
			}
			got, err := run(file, func() {})
			if err != nil {
				t.Fatalf("killed at step %d: %v", last, err)
			}
			got.GPUSeconds, want.GPUSeconds = 0, 0
			for i := range got.Trials { // whether a server was started for it
				got.Trials[i].GPUSeconds, want.Trials[i].GPUSeconds = 0, 0
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("killed at step %d: %s", last, diff)
			}
			repeated := 0
			for _, times := range tried {
				repeated += times - 1
			}
			if repeated > 1 {
				t.Errorf("killed at step %d: %d trials were repeated: %v", last, repeated, tried)
			}
		}
	})
}

// TestEnds lets servers and requests fail in the ways that end a trial, but not the profile.
func TestEnds(t *testing.T) {
	grid := search.Grid{SM: []share.PerMille{500, 1000}, Quota: []share.PerMille{1000}, Batches: []int{1}, Device: "GPU"}
	for name, c := range map[string]struct {
		fail   func(start int) error
		time   time.Duration
		budget int
		err    error
		failed []string // of each trial
		starts int
	}{
		"fails once":      {fail: failTimes(1), failed: []string{"", ""}, starts: 3},
		"fails twice":     {fail: failTimes(2), failed: []string{"exited with code 1", ""}, starts: 3},
		"the agent ended": {fail: func(int) error { return errKilled }, err: errKilled, starts: 1},
		"budget":          {budget: 1, err: ErrBudget, failed: []string{""}, starts: 1},
		"too slow":        {time: time.Hour, failed: []string{"0 of 0 requests failed: too slow to measure: fewer than 3 answers in a minute", ""}, starts: 3},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := &model{fail: c.fail, time: func(_ int, sm, _ share.PerMille) time.Duration {
					if sm < share.Whole && c.time > 0 {
						return c.time
					}
					return 100 * time.Millisecond * time.Duration(share.Whole/sm)
				}}
				r := &Record{Model: "m"}
				err := Run(t.Context(), Config{Strategy: grid, Target: m, Load: loadOf(time.Second), MaxTrials: c.budget, Save: func(*Record) error { return nil }}, r)
				var failed []string
				for _, trial := range r.Trials {
					failed = append(failed, trial.Failed)
				}
				if diff := cmp.Diff(c.failed, failed); !errors.Is(err, c.err) || diff != "" || len(m.starts) != c.starts {
					t.Errorf("%v, %d starts: %s", err, len(m.starts), diff)
				}
				if r.Complete != (c.err == nil) || r.Attempt != nil {
					t.Errorf("complete %v, attempt %+v", r.Complete, r.Attempt)
				}
			})
		})
	}
}

func failTimes(n int) func(start int) error {
	return func(start int) error {
		if start <= n {
			return &FailedError{"exited with code 1"}
		}
		return nil
	}
}

// TestKilledTwice: a setting in which the profiler was killed twice is not tried a third time.
func TestKilledTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		resource := profile.Resource{SM: 1000, Quota: 1000, Device: "GPU"}
		r := &Record{Model: "m", Attempt: &Attempt{Resource: resource, Batch: 1, Count: 2}}
		m := &model{time: func(int, share.PerMille, share.PerMille) time.Duration { return time.Millisecond }}
		grid := search.Grid{SM: []share.PerMille{1000}, Quota: []share.PerMille{1000}, Batches: []int{1}, Device: "GPU"}
		err := Run(t.Context(), Config{Strategy: grid, Target: m, Load: loadOf(time.Second), Save: func(*Record) error { return nil }}, r)
		if err != nil || len(r.Trials) != 1 || r.Trials[0].Failed != "the profiler has ended 2 times during this trial" || len(m.starts) > 0 {
			t.Errorf("%v: %+v", err, r)
		}
		if _, err := r.Best(nil); !errors.Is(err, search.ErrNoSetting) {
			t.Errorf("best: %v", err)
		}
	})
}

// TestBest: the cheapest share for a request is the best, and once enough trials were measured again, only these count.
func TestBest(t *testing.T) {
	trial := func(sm share.PerMille, rate float64, confirmed bool) Trial {
		return Trial{Point: profile.Point{Resource: profile.Resource{SM: sm, Quota: 1000}, Throughput: rate}, Confirmed: confirmed}
	}
	for name, c := range map[string]struct {
		trials []Trial
		want   share.PerMille
	}{
		"none in the objective":     {[]Trial{trial(100, 0, false)}, 0},
		"the cheapest":              {[]Trial{trial(100, 10, false), trial(200, 30, false), trial(300, 40, true)}, 200},
		"the smaller of equals":     {[]Trial{trial(200, 20, false), trial(100, 10, false)}, 100},
		"enough are measured again": {[]Trial{trial(100, 99, false), trial(200, 10, true), trial(300, 30, true), trial(400, 10, true)}, 300},
	} {
		t.Run(name, func(t *testing.T) {
			best, err := (&Record{Trials: c.trials}).Best(nil)
			if best.Point.Resource.SM != c.want || (c.want == 0) != errors.Is(err, search.ErrNoSetting) {
				t.Errorf("%+v, %v", best, err)
			}
		})
	}
}

// TestOthersOnTheDevice: what is measured beside another program does not count.
func TestOthersOnTheDevice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &model{time: func(int, share.PerMille, share.PerMille) time.Duration { return 10 * time.Millisecond }}
		s := &server{model: m, sm: 1000, quota: 1000, ended: make(chan struct{}), usage: errKilled}
		l := loadOf(time.Second)
		if _, err := l.Measure(t.Context(), s, 1); !errors.Is(err, errKilled) {
			t.Errorf("%v", err)
		}
	})
}

// counted is a server whose kernels are counted: its requests launch some, or none.
type counted struct {
	*server
	launches, each uint64
}

func (c *counted) Infer(ctx context.Context, rows int) load.Answer {
	c.launches += c.each
	return c.server.Infer(ctx, rows)
}

func (c *counted) Usage(ctx context.Context) (Usage, error) {
	u, err := c.server.Usage(ctx)
	u.Launches, u.Counted = c.launches, true
	return u, err
}

// TestNoKernels: a server that answers without a kernel is not measured, also if it launched some when it started.
func TestNoKernels(t *testing.T) {
	for name, each := range map[string]uint64{"none": 0, "one": 1} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := &model{time: func(int, share.PerMille, share.PerMille) time.Duration { return 10 * time.Millisecond }}
				s := &counted{&server{model: m, sm: 1000, quota: 1000, ended: make(chan struct{})}, 7, each}
				l := loadOf(15 * time.Millisecond) // too short for a batch: only the closed loop is measured
				if _, err := l.Measure(t.Context(), s, 1); errors.Is(err, ErrNoKernels) != (each == 0) {
					t.Errorf("%v", err)
				}
			})
		})
	}
}

// TestRecord: a record is read again as it was, and one of anything else is refused.
func TestRecord(t *testing.T) {
	file := filepath.Join(t.TempDir(), "m.json")
	own := Record{Model: "m", Fingerprint: Fingerprint{"p", "d", "r", "v"}, Plan: Plan{SLO: 1, Strategy: "growth", MaxBatch: 8}}
	r, err := own.Load(file)
	if err != nil || len(r.Trials) > 0 {
		t.Fatal(r, err)
	}
	r.Trials = append(r.Trials, Trial{Point: profile.Point{Model: "m", Batch: 1, Mean: 1, Resource: profile.Resource{SM: 100, Quota: 1000}}, Steps: []Step{{Rate: 3}}})
	r.Attempt = &Attempt{Batch: 2, Count: 1, Resource: profile.Resource{SM: 200, Quota: 1000}}
	if err := r.Save(file); err != nil {
		t.Fatal(err)
	}
	again, err := own.Load(file)
	if diff := cmp.Diff(r, again); err != nil || diff != "" {
		t.Errorf("%v %s", err, diff)
	}
	for want, change := range map[string]func(*Record){
		"function":  func(r *Record) { r.Model = "other" },
		"command":   func(r *Record) { r.Fingerprint.Program = "other" },
		"device":    func(r *Record) { r.Fingerprint.Device = "other" },
		"driver":    func(r *Record) { r.Fingerprint.Driver = "other" },
		"version":   func(r *Record) { r.Fingerprint.Gshare = "other" },
		"objective": func(r *Record) { r.Plan.SLO = 2 },
	} {
		other := own
		change(&other)
		if _, err := other.Load(file); err == nil || !strings.Contains(err.Error(), "measured with another "+want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	r.Trials[0].Point.Mean = -1
	if err := r.Save(file); err != nil {
		t.Fatal(err)
	}
	if _, err := own.Load(file); err == nil || !strings.Contains(err.Error(), "trials[0]: ") {
		t.Errorf("a negative time: %v", err)
	}
}
