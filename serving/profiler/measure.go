package profiler

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/gshare-dev/gshare/serving/load"
)

// Load says how a setting is measured.
type Load struct {
	SLO         time.Duration `json:"slo"`         // within which a request is to be answered
	Objective   float64       `json:"objective"`   // part of the requests that are to be answered within SLO
	Bound       time.Duration `json:"bound"`       // mean time of a batch above which the rate within SLO is not looked for
	Concurrency int           `json:"concurrency"` // requests that the server gets at once
	Seed        uint64        `json:"seed"`        // of the arrivals
}

// Times of a trial. A closed loop ends early when the mean is known well enough, an open loop when enough requests are late.
const (
	closedLength = 3 * time.Second
	openLength   = 4 * time.Second // at least, and long enough for openRequests
	openLongest  = time.Minute
	openRequests = 30
	openWarmUp   = 500 * time.Millisecond
	maxSteps     = 5

	confirmLength = 15 * time.Second
	confirmSteps  = 10
)

// precision is the confidence of the mean time of a batch, and the width of the last interval of rates, at which measuring ends.
const precision = 0.05

// Measure measures a batch size on a server: first the time of a batch, with the server always busy, then the highest rate within the
// objective. The error is a *FailedError if the server answers with errors.
func (l *Load) Measure(ctx context.Context, s Server, batch int) (Trial, error) {
	closed, err := l.closedLoop(ctx, s, batch)
	if err != nil {
		return Trial{}, err
	}
	var t Trial
	t.Plateau, t.Confidence = closed.rate*float64(batch), closed.confidence()
	t.Point.Mean, t.Point.P95, t.Point.P99 = closed.mean(), closed.quantile(0.95), closed.quantile(0.99)
	used, err := s.Usage(ctx)
	if err != nil {
		return Trial{}, err
	}
	t.Point.Memory, t.Point.Utilisation = used.Memory, used.Utilisation
	if t.Point.Mean > l.Bound {
		return t, nil
	}
	err = l.bisect(ctx, s, batch, &t)
	if _, alone := s.Usage(ctx); alone != nil {
		err = errors.Join(err, alone)
	}
	return t, err
}

// bisect finds the highest rate within the objective, which is below that of the closed loop. Its first step is at three quarters: most
// servers do that.
func (l *Load) bisect(ctx context.Context, s Server, batch int, t *Trial) error {
	low, high := 0.0, t.Plateau
	rate := high * 3 / 4
	for n := 0; n < maxSteps && high-low > precision*high; n++ {
		step, result, err := l.openLoop(ctx, s, batch, rate, openLength, n)
		if err == nil && !step.Met && step.ClientLate { // a rate that is met is met, whoever was late
			step, result, err = l.openLoop(ctx, s, batch, rate, openLength, n+maxSteps)
		}
		if err != nil {
			return err
		}
		t.Steps = append(t.Steps, step)
		if step.Met {
			low = rate
			t.Point.Throughput, t.P50, t.P99 = rate, result.Latency.P50, result.Latency.P99
		} else {
			high = rate
			t.ClientLate = t.ClientLate || step.ClientLate
		}
		rate = (low + high) / 2
	}
	return nil
}

// Confirm measures the rate of a trial again, for longer: a few hundred requests in time may be luck, above all where the highest of several
// rates was chosen. The rate falls by 5 % until enough requests are in time; after confirmSteps there is none. Where the client was too slow
// to tell, the rate of before stays, with ClientLate.
func (l *Load) Confirm(ctx context.Context, s Server, t *Trial) error {
	if _, err := l.closedLoop(ctx, s, t.Point.Batch); err != nil { // warm again, if the server is a new one
		return err
	}
	rate, late, met := t.Point.Throughput, 0, false
	for n := 0; n < confirmSteps && late < 2 && !met; n++ {
		step, result, err := l.openLoop(ctx, s, t.Point.Batch, rate, confirmLength, 2*maxSteps+n)
		if err != nil {
			return err
		}
		t.Steps = append(t.Steps, step)
		switch met = step.Met; {
		case met:
			t.Point.Throughput, t.P50, t.P99 = rate, result.Latency.P50, result.Latency.P99
		case step.ClientLate:
			late++
		default:
			rate *= 1 - precision
		}
	}
	t.Confirmed, t.ClientLate = true, !met && late > 0
	if !met && late == 0 {
		t.Point.Throughput, t.P50, t.P99 = 0, 0, 0
	}
	_, err := s.Usage(ctx)
	return err
}

// openLoop sends rows at random times at a rate, joined into batches as they wait, and returns how many were in time. It ends early when so
// many are late that the rest cannot make up for them.
func (l *Load) openLoop(ctx context.Context, s Server, batch int, rate float64, least time.Duration, n int) (Step, *load.Result, error) {
	if a := s.Infer(ctx, 1); !a.OK && ctx.Err() == nil { // the step before may have left a batch in the server
		return Step{}, nil, &FailedError{"answers " + a.Status}
	}
	length := min(max(least, time.Duration(openRequests/rate*float64(time.Second))), openLongest)
	due := l.arrivals(rate, length, n)
	running, cancel := context.WithCancel(ctx)
	defer cancel()
	b := newBatcher(running, s, batch, l.Concurrency)
	defer b.wait()
	defer cancel()
	counter := &lateCounter{sender: b, due: due, slo: l.SLO, start: time.Now(), end: cancel}
	measured := len(due)
	if at, _ := slices.BinarySearch(due, openWarmUp); at < measured {
		measured -= at
	}
	counter.most = int64((1 - l.Objective) * float64(measured))
	result, err := load.Run(running, load.Plan{
		Schedule: slices.Values(due), WarmUp: openWarmUp, Length: length, SLO: l.SLO, Timeout: 10*l.SLO + time.Second,
	}, counter, nil)
	switch {
	case err != nil:
		return Step{}, nil, err
	case ctx.Err() != nil:
		return Step{}, nil, ctx.Err()
	}
	step := Step{Rate: rate, InTime: result.SLO.Ratio, P99: result.Latency.P99, ClientLate: result.ClientLate}
	step.Met = !result.Interrupted && result.SLO.Ratio >= l.Objective && result.Scheduled > 0
	return step, result, nil
}

// arrivals returns random times within a length, as those of a Poisson process, but exactly as many as the rate says: of a few hundred requests
// a step could have a tenth more or fewer by chance, which would decide it. They are the same each time for a step.
func (l *Load) arrivals(rate float64, length time.Duration, n int) []time.Duration {
	random := rand.New(rand.NewPCG(l.Seed, uint64(n)))
	due := make([]time.Duration, int(rate*length.Seconds()+0.5))
	for i := range due {
		due[i] = time.Duration(random.Float64() * float64(length))
	}
	slices.Sort(due)
	return due
}

// lateCounter passes on requests and ends the step once more than the most that may be late were.
type lateCounter struct {
	sender load.Sender
	due    []time.Duration
	slo    time.Duration
	start  time.Time
	most   int64
	late   atomic.Int64
	end    context.CancelFunc
}

// Send implements load.Sender.
func (c *lateCounter) Send(ctx context.Context, n int) load.Answer {
	a := c.sender.Send(ctx, n)
	if n < len(c.due) && c.due[n] >= openWarmUp && (!a.OK || time.Since(c.start)-c.due[n] > c.slo) && c.late.Add(1) > c.most {
		c.end()
	}
	return a
}

// answersError returns a *FailedError for answers of which more failed than the objective allows.
func answersError(failed, all int, status string) error {
	return &FailedError{fmt.Sprintf("%d of %d requests failed: %s", failed, all, status)}
}
