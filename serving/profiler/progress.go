package profiler

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/gshare-dev/gshare/vgpu/profile"
)

// Progress says how a program is measured that answers no requests, such as a training: by the kernels that it launches in a second. Each of its steps
// launches the same ones, so that their rate is that of the steps, as long as only one program is compared with itself.
type Progress struct {
	Length time.Duration // for which the rate has to be steady
}

// A rate is steady once it differs by no more than precision over some windows, each a part of Length. A program that is not steady within maxLengths counts
// as it is then, with its confidence. One that launches nothing for idleLimit does not run: that is long enough to load weights. One that again and again
// launches nothing for a window, since a step of it takes longer than one, counts as it is in the mean once both times have passed.
const (
	steadyWindows = 3
	maxLengths    = 8
	idleLimit     = 10 * time.Minute
)

// Measure measures a running program. The trial has as Throughput the kernels that it launches in a second, and as Mean the time for one. The error is a
// *FailedError if it launches none.
func (p *Progress) Measure(ctx context.Context, s Server) (Trial, error) {
	var (
		window = p.Length / steadyWindows
		rates  []float64    // of the last windows, without a pause between them
		idle   = time.Now() // since which nothing was launched
		begin  time.Time    // at which something was
		sum    uint64       // of the launches since then
		bursts int          // of launches, with a pause after each
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
		launched := used.Launches - min(last.Launches, used.Launches) // fewer, if a process has ended
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
			t.Confidence = 1 // from nothing at all to more
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

// trialOfRates returns a trial with the mean of some rates, and by how much they differ from it.
func trialOfRates(rates []float64, used Usage) (t Trial, spread float64) {
	sum := 0.0
	for _, r := range rates {
		sum += r
	}
	mean := sum / float64(len(rates))
	spread = max(slices.Max(rates)-mean, mean-slices.Min(rates)) / mean
	t = Trial{Confidence: spread, Plateau: mean, Confirmed: true} // it was as long as a second time would be
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
