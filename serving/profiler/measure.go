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

// Load says how to measure a setting.
type Load struct {
	SLO         time.Duration `json:"slo"`         // time within which a request should be answered
	Objective   float64       `json:"objective"`   // fraction of the requests that should be answered within SLO
	Bound       time.Duration `json:"bound"`       // mean time of a batch above which there is no search for the rate within SLO
	Concurrency int           `json:"concurrency"` // number of requests at the server at once
	Seed        uint64        `json:"seed"`        // of the random arrivals
}

// Times of a trial. A closed loop ends early when the mean is known well enough, an open loop when too many requests are late.
const (
	closedLength = 3 * time.Second
	openLength   = 4 * time.Second // minimum; longer if openRequests take longer
	openLongest  = time.Minute
	openRequests = 30
	openWarmUp   = 500 * time.Millisecond
	maxSteps     = 5

	confirmLength = 15 * time.Second
	confirmSteps  = 10
)

// precision ends a measurement: it is the relative confidence of the mean time of a batch, and the relative width of the last interval of
// rates, that is good enough.
const precision = 0.05

// Measure measures a batch size on a server: first the time of a batch while the server is always busy, then the highest rate that
// meets the objective. The error is a *FailedError if the server answers with errors.
func (l *Load) Measure(ctx context.Context, s Server, batch int) (Trial, error) {
	before, err := s.Usage(ctx)
	if err != nil {
		return Trial{}, err
	}
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
	if used.Counted && used.Launches == before.Launches {
		return Trial{}, ErrNoKernels
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

// bisect finds the highest rate that meets the objective, which lies below the rate of the closed loop. It first tries three quarters
// of the latter, which most servers reach.
func (l *Load) bisect(ctx context.Context, s Server, batch int, t *Trial) error {
	low, high := 0.0, t.Plateau
	rate := high * 3 / 4
	for n := 0; n < maxSteps && high-low > precision*high; n++ {
		step, result, err := l.openLoop(ctx, s, batch, rate, openLength, n)
		if err == nil && !step.Met && step.ClientLate { // a rate that is met counts, even if the client was late
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

// Confirm measures the rate of a trial again, for longer: a few hundred requests in time may be luck, especially if the rate was chosen as
// the highest of several. The rate falls in steps of 5 % until enough requests are in time. If it is still too high after confirmSteps, the
// trial ends with no rate. If the client was too slow to tell, the previous rate remains, with ClientLate set.
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

// openLoop sends rows at random times at the given rate, joins waiting ones into batches, and returns how many were answered in time. It
// ends early when so many are late that the rest cannot make up for them.
func (l *Load) openLoop(ctx context.Context, s Server, batch int, rate float64, least time.Duration, n int) (Step, *load.Result, error) {
	if a := s.Infer(ctx, 1); !a.OK && ctx.Err() == nil { // also waits for a batch that the previous step may have left at the server
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

// arrivals returns random times within length, like those of a Poisson process, except that their number is exactly rate times length: with a
// few hundred requests, a tenth more or fewer by chance would decide the step. The same step always gets the same times.
func (l *Load) arrivals(rate float64, length time.Duration, n int) []time.Duration {
	random := rand.New(rand.NewPCG(l.Seed, uint64(n)))
	due := make([]time.Duration, int(rate*length.Seconds()+0.5))
	for i := range due {
		due[i] = time.Duration(random.Float64() * float64(length))
	}
	slices.Sort(due)
	return due
}

// lateCounter passes requests on, and ends the step once more than `most` of them are late.
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

// answersError returns a *FailedError for a server of whose answers too many failed.
func answersError(failed, all int, status string) error {
	return &FailedError{fmt.Sprintf("%d of %d requests failed: %s", failed, all, status)}
}
