package profiler

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gshare-dev/gshare/serving/load"
	"github.com/gshare-dev/gshare/serving/rules/profile/search"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// training is a Target whose program launches kernels at a rate, in a second, that depends on the time since its start and on its SMs.
type training struct {
	rate   func(since time.Duration, sm share.PerMille) float64
	starts int
	life   time.Duration // of the program; 0: it does not end
}

func (p *training) Start(_ context.Context, sm, _ share.PerMille) (Server, error) {
	p.starts++
	started := &trainer{training: p, sm: sm, begin: time.Now(), ended: make(chan struct{})}
	if p.life > 0 {
		time.AfterFunc(p.life, func() { close(started.ended) })
	}
	return started, nil
}

type trainer struct {
	*training
	sm    share.PerMille
	begin time.Time
	ended chan struct{} // closed after life
}

// Usage implements Server. Its kernels are those of the whole milliseconds since its start.
func (p *trainer) Usage(context.Context) (Usage, error) {
	sum := 0.0
	for ms := time.Duration(0); ms < time.Since(p.begin); ms += 10 * time.Millisecond {
		sum += p.rate(ms, p.sm) / 100
	}
	return Usage{Memory: 1 << 30, Utilisation: 1000, Launches: uint64(max(0, sum))}, nil
}

func (p *trainer) Infer(context.Context, int) load.Answer { panic("it answers no requests") }

func (p *trainer) Narrow(context.Context, share.PerMille) bool { return false }

func (p *trainer) Ended() <-chan struct{} { return p.ended }

func (p *trainer) Failure() string { return "exited with code 1: no such file" }

func (p *trainer) Close() {}

// TestProgress measures programs that do not launch kernels at the same rate all the time.
func TestProgress(t *testing.T) {
	for name, c := range map[string]struct {
		rate func(since time.Duration) float64
		want float64 // kernels a second
		most time.Duration
		fail string
	}{
		"steady":        {rate: func(time.Duration) float64 { return 1000 }, want: 1000, most: 15 * time.Second},
		"loads a model": {rate: func(since time.Duration) float64 { return 1000 * float64(min(1, since/(3*time.Minute))) }, want: 1000, most: 200 * time.Second},
		"warms up":      {rate: func(since time.Duration) float64 { return 50 * min(20, since.Seconds()) }, want: 1000, most: 50 * time.Second},
		"pauses":        {rate: func(since time.Duration) float64 { return 1000 * float64(since/(30*time.Second)%2) }, want: 1000, most: 45 * time.Second},
		"never steady": {rate: func(since time.Duration) float64 {
			return 500 + 1000*float64(since/(5*time.Second)%2)
		}, want: 1000, most: 3 * time.Minute},
		"long steps": {rate: func(since time.Duration) float64 { // each begins with its launches, and takes 20 s
			if since%(20*time.Second) < time.Second {
				return 20_000
			}
			return 0
		}, want: 1000, most: 13 * time.Minute},
		"no kernels": {rate: func(time.Duration) float64 { return 0 }, fail: "launches no kernels within 10m0s", most: 10 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &training{rate: func(since time.Duration, _ share.PerMille) float64 { return c.rate(since) }}
				server, err := p.Start(t.Context(), share.Whole, share.Whole)
				if err != nil {
					t.Fatal(err)
				}
				begin := time.Now()
				got, err := (&Progress{Length: 15 * time.Second}).Measure(t.Context(), server)
				if failed := (*FailedError)(nil); c.fail != "" {
					if !errors.As(err, &failed) || !strings.Contains(failed.Reason, c.fail) {
						t.Errorf("%+v, %v", got, err)
					}
				} else if err != nil {
					t.Error(err)
				} else {
					within(t, "kernels a second", got.Point.Throughput, c.want, 0.2)
					if unsteady := got.Confidence > precision; unsteady != (name == "never steady" || name == "long steps") {
						t.Errorf("%.3f of confidence", got.Confidence)
					}
				}
				if took := time.Since(begin); took > c.most {
					t.Errorf("took %v", took)
				}
			})
		})
	}
}

// TestBisection finds the SMs of a training that more than 40 % do not help, and those of a server by the rate within its objective.
func TestBisection(t *testing.T) {
	strategy := search.Bisection{Step: 50, Batch: 1, Device: "GPU"}
	check := func(t *testing.T, c Config, request, limit share.PerMille, most int) Recommendation {
		t.Helper()
		c.Strategy, c.Save = strategy, func(*Record) error { return nil }
		r := &Record{Model: "m", Plan: Plan{Memory: 8 << 30}}
		if err := Run(t.Context(), c, r); err != nil || !r.Complete {
			t.Fatalf("%v: %+v", err, r)
		}
		got, err := r.Recommend(strategy)
		if err != nil || got.Resource.SM != request || got.SMLimit != limit || got.Resource.Quota != share.Whole || len(r.Trials) > most {
			t.Errorf("%+v, %v after %d trials, want %d to %d after %d", got, err, len(r.Trials), request, limit, most)
		}
		for at := range r.Trials { // whoever goes on with fewer trials has no result, and does not recommend one
			fewer := Record{Trials: r.Trials[:at]}
			if got, err := fewer.Recommend(strategy); !errors.Is(err, search.ErrUnfinished) {
				t.Errorf("after %d trials %+v, %v", at, got, err)
			}
		}
		return got
	}
	t.Run("training", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := &training{rate: func(_ time.Duration, sm share.PerMille) float64 { return 10 * float64(min(400, sm)) }}
			got := check(t, Config{Target: p, Progress: &Progress{Length: 3 * time.Second}}, 350, 400, 6) // 80 % less 2 % are at 31.4 % of the SMs
			if p.starts != 6 || got.Rate != 3500 || got.Memory != 1152*share.MiB {
				t.Errorf("%d starts: %+v", p.starts, got)
			}
		})
	})
	t.Run("server", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			k := kernel{4 * time.Millisecond, 4 * time.Millisecond, 400, 0}
			m := &model{time: k.time}
			got := check(t, Config{Target: m, Load: loadOf(200 * time.Millisecond)}, 350, 400, 7)
			within(t, "rate within the objective", got.Rate, capacity(k, 1, 350, 200*time.Millisecond), 0.1)
		})
	})
}

// TestTrainingEnds: a program that ends during its trial says how.
func TestTrainingEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &training{rate: func(time.Duration, share.PerMille) float64 { return 100 }, life: 2 * time.Second}
		r := &Record{Model: "m"}
		c := Config{Strategy: search.Bisection{Step: 500, Batch: 1, Device: "GPU"}, Target: p, Progress: &Progress{Length: 15 * time.Second}, Save: func(*Record) error { return nil }}
		if err := Run(t.Context(), c, r); err != nil {
			t.Fatal(err)
		}
		if want := "the program ended before 15s of steady kernels: exited with code 1: no such file"; len(r.Trials) != 1 || r.NeverRan() != want {
			t.Errorf("%+v, want %s", r.Trials, want)
		}
	})
}

// TestNarrow: one server has all quotas of a number of SMs, from the largest on. A server that keeps its quota is replaced.
func TestNarrow(t *testing.T) {
	grid := search.FaSTGrid("GPU", 1)
	for name, c := range map[string]struct {
		fixed  bool
		starts int
	}{"narrowed": {false, 7 + 1 + 1}, "not narrowed": {true, 35 + 1}} { // one more for all SMs, and one with which the best is measured again
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := kernel{10 * time.Millisecond, 10 * time.Millisecond, 500, 0}
				m := &model{time: k.time, fixed: c.fixed}
				r := &Record{Model: "m"}
				if err := Run(t.Context(), Config{Strategy: grid, Target: m, Load: loadOf(time.Second), Save: func(*Record) error { return nil }}, r); err != nil {
					t.Fatal(err)
				}
				for _, trial := range r.Trials {
					p := trial.Point
					within(t, "time of a batch", p.Mean.Seconds(), k.time(1, p.Resource.SM, p.Resource.Quota).Seconds(), 0.05)
				}
				if len(r.Trials) != 35 || len(m.starts) > c.starts || len(m.starts) < c.starts-1 {
					t.Errorf("%d trials with %d servers, want at most %d", len(r.Trials), len(m.starts), c.starts)
				}
			})
		})
	}
}
