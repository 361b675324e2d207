package profiler

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/gshare-dev/gshare/serving/rules/profile"
)

// Progress says how to measure a program that answers no requests, such as a training: by its rate of kernel launches. Each training step launches the
// same kernels, so this rate is proportional to that of the steps, as long as a program is compared only with itself.
type Progress struct {
	Length time.Duration // time for which the rate must be steady
}

// A rate is steady once it differs by no more than precision over steadyWindows windows, which together are Length. For a program that is not steady within
// maxLengths, the rate at that time counts, with its confidence. A program that launches nothing for idleLimit does not run: that is long enough to load
// weights. If windows without launches occur again and again, because one step takes longer than a window, the mean rate counts once both times have passed.
const (
	steadyWindows = 3
	maxLengths    = 8
	idleLimit     = 10 * time.Minute
)

// Measure measures a running program. The trial's Throughput is the number of kernels launched per second, and its Mean the time per kernel. The error
// is a *FailedError if the program launches none.
func (p *Progress) Measure(ctx context.Context, s Server) (Trial, error) {
	var (
		window = p.Length / steadyWindows
		rates  []float64    // of the last windows; a pause clears them
		idle   = time.Now() // end of the last window with a launch
		begin  time.Time    // end of the first window with a launch
		sum    uint64       // launches since begin
		bursts int          // number of series of windows with launches that ended in a pause
	)
	last, at, err := launches(ctx, s)
	for err == nil {
		if err = sleep(ctx, window); err != nil {
			break
		}
		var used Usage
		var now time.Time
		if used, now, err = launches(ctx, s); err != nil {
			break
		}
		launched := used.Launches - min(last.Launches, used.Launches) // fewer than before if a process has ended
		rate := float64(launched) / now.Sub(at).Seconds()
		last, at = used, now
		if rate == 0 {
			if len(rates) > 0 {
				bursts++
			}
			if rates = nil; now.Sub(idle) >= idleLimit {
				return Trial{}, &FailedError{fmt.Sprintf("launches no kernels within %v", idleLimit)}
			}
			continue
		}
		if idle = now; begin.IsZero() {
			begin = now
		} else {
			sum += launched
		}
		if all := now.Sub(begin); len(rates) < steadyWindows-1 && bursts >= steadyWindows && all >= maxLengths*p.Length+idleLimit {
			t, _ := trialOfRates([]float64{float64(sum) / all.Seconds()}, used)
			t.Confidence = 1 // the rate varies from zero upward
			return t, nil
		}
		rates = append(rates, rate)
		rates = rates[max(0, len(rates)-steadyWindows):]
		if t, spread := trialOfRates(rates, used); len(rates) == steadyWindows && (spread <= precision || now.Sub(begin) >= maxLengths*p.Length) {
			return t, nil
		}
	}
	return Trial{}, err
}

// trialOfRates returns a trial with the mean of the rates, and the largest relative difference of a rate from the mean.
func trialOfRates(rates []float64, used Usage) (t Trial, spread float64) {
	sum := 0.0
	for _, r := range rates {
		sum += r
	}
	mean := sum / float64(len(rates))
	spread = max(slices.Max(rates)-mean, mean-slices.Min(rates)) / mean
	t = Trial{Confidence: spread, Plateau: mean, Confirmed: true} // Confirmed: a second measurement would be no longer
	t.Point = profile.Point{Throughput: mean, Mean: max(1, time.Duration(float64(time.Second)/mean)), Memory: used.Memory, Utilisation: used.Utilisation}
	return t, spread
}

func launches(ctx context.Context, s Server) (Usage, time.Time, error) {
	used, err := s.Usage(ctx)
	return used, time.Now(), err
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
