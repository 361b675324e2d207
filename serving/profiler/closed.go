package profiler

import (
	"context"
	"math"
	"slices"
	"sync"
	"time"
)

// closedLoop holds the latencies of a server that is kept busy: it always has its next request.
type closedLoop struct {
	latencies []time.Duration // ascending
	rate      float64         // requests per second
}

// Bounds of a closed loop: the numbers of answers that are enough for a mean, the time after which the loop may end early, and the time
// after which it ends in any case.
const (
	fewAnswers    = 20
	fewestAnswers = 3
	closedLeast   = 1200 * time.Millisecond // the agent's figures cover the last second
	closedMost    = time.Minute
)

// closedLoop keeps l.Concurrency requests at the server: it sends the next one as soon as one is answered. It does not count the first
// answer of each.
func (l *Load) closedLoop(ctx context.Context, s Server, batch int) (*closedLoop, error) {
	running, cancel := context.WithTimeout(ctx, closedMost)
	defer cancel()
	var (
		mu     sync.Mutex // guards the variables below
		all    closedLoop
		failed int
		status string
		group  sync.WaitGroup
		begin  = time.Now()
	)
	answered := func(took time.Duration, ok bool, why string) (done bool) {
		mu.Lock()
		defer mu.Unlock()
		if ok {
			all.latencies = append(all.latencies, took)
		} else if running.Err() == nil {
			failed, status = failed+1, why
		}
		elapsed := time.Since(begin)
		n := len(all.latencies)
		return failed >= fewestAnswers && failed > n/100 || elapsed >= closedLength && n >= fewestAnswers ||
			elapsed >= closedLeast && n >= fewAnswers && n%fewAnswers == 0 && all.confidence() <= precision
	}
	for range l.Concurrency {
		group.Go(func() {
			for first := true; running.Err() == nil; first = false {
				start := time.Now()
				a := s.Infer(running, batch)
				if first && a.OK {
					continue
				}
				if answered(time.Since(start), a.OK, a.Status) {
					cancel()
				}
			}
		})
	}
	group.Wait()
	switch n := len(all.latencies); {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case failed > n/100:
		return nil, answersError(failed, failed+n, status)
	case n < fewestAnswers:
		return nil, answersError(0, n, "too slow to measure: fewer than 3 answers in a minute")
	}
	slices.Sort(all.latencies)
	all.rate = float64(l.Concurrency) / all.mean().Seconds() // Little's law
	return &all, nil
}

func (c *closedLoop) mean() time.Duration {
	sum := time.Duration(0)
	for _, d := range c.latencies {
		sum += d
	}
	return sum / time.Duration(max(1, len(c.latencies)))
}

// confidence returns half the width of the 95 % confidence interval of the mean, as a fraction of the mean.
func (c *closedLoop) confidence() float64 {
	n, mean := float64(len(c.latencies)), float64(c.mean())
	if n < 2 || mean == 0 {
		return 1
	}
	squares := 0.0
	for _, d := range c.latencies {
		squares += (float64(d) - mean) * (float64(d) - mean)
	}
	return 1.96 * math.Sqrt(squares/(n-1)/n) / mean
}

// quantile returns the quantile q of the latencies, which must be sorted.
func (c *closedLoop) quantile(q float64) time.Duration {
	return c.latencies[min(len(c.latencies)-1, int(q*float64(len(c.latencies))))]
}
