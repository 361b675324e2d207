// Package arrival parses recorded request traces and draws the arrival times of requests from them.
//
// Whether a file lists single requests or counts, it is read as counts over equal steps of time. Arrivals are drawn from these counts by a
// Poisson process, or another renewal process, whose rate is that of the current step. A trace can therefore be played faster or denser
// than it was recorded, and with several seeds.
package arrival

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// Series is the number of requests to one function in each step of time.
type Series struct {
	Name   string
	Step   time.Duration
	Counts []float64
}

// Bounds of a trace, so that a simulation does not run out of memory, whatever the file.
const (
	MaxSteps    = 1 << 20
	MaxRequests = 100_000_000
	maxSeries   = 100_000
)

// Length returns the duration of the series.
func (s *Series) Length() time.Duration { return time.Duration(len(s.Counts)) * s.Step }

// Rate returns the mean number of requests a second.
func (s *Series) Rate() float64 {
	sum := 0.0
	for _, n := range s.Counts {
		sum += n
	}
	return sum / max(s.Length().Seconds(), 1e-9)
}

// Validate returns a *share.FieldError if the step or a count is out of bounds, or nil.
func (s *Series) Validate() error {
	switch {
	case s.Step < time.Millisecond || s.Step > 24*time.Hour:
		return share.Invalid("step", "%v is outside 1ms to 24h", s.Step)
	case len(s.Counts) == 0 || len(s.Counts) > MaxSteps:
		return share.Invalid("counts", "%d steps; want 1 to %d", len(s.Counts), MaxSteps)
	}
	sum := 0.0
	for i, n := range s.Counts {
		if !(n >= 0 && n <= MaxRequests) { // NaN too
			return share.Invalid(fmt.Sprintf("counts[%d]", i), "%v is no number of requests", n)
		}
		if sum += n; sum > MaxRequests {
			return share.Invalid("counts", "more than %d requests", MaxRequests)
		}
	}
	return nil
}

// Source describes how the arrivals of one function are drawn from a series of request counts.
type Source struct {
	Series *Series
	Scale  float64       // requests to draw per recorded request
	Gaps   Gaps          // Exponential if nil
	Shift  time.Duration // where in the series to start; at its end the series starts over
}

// Validate returns a *share.FieldError if the series, scale or shift is out of bounds, or nil.
func (s *Source) Validate() error {
	if err := s.Series.Validate(); err != nil {
		return err
	}
	switch {
	case !(s.Scale > 0 && s.Scale <= 1e6):
		return share.Invalid("scale", "%v is not above 0 and at most 1e6", s.Scale)
	case s.Shift < 0 || s.Shift > s.Series.Length():
		return share.Invalid("shift", "%v is outside 0 to %v, the length of the series", s.Shift, s.Series.Length())
	case s.Scale*s.Series.Rate()*s.Series.Length().Seconds() > MaxRequests:
		return share.Invalid("scale", "%v gives more than %d requests", s.Scale, MaxRequests)
	}
	return nil
}

// Arrival is the arrival time of one request and the index of its function.
type Arrival struct {
	At       time.Duration
	Function int32
}

// Draw draws the requests of all functions until a time, in order of time. Each function has its own random number generator, so that
// adding a function does not change the arrivals of the others.
func Draw(sources []Source, until time.Duration, seed uint64) []Arrival {
	var all []Arrival
	for f := range sources {
		all = drawArrivals(all, &sources[f], int32(f), until, rand.New(rand.NewPCG(seed, uint64(f)+100)))
	}
	slices.SortFunc(all, func(a, b Arrival) int { return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.Function, b.Function)) })
	return all
}

// drawArrivals appends the arrivals of one function. It draws gaps in units of expected requests and maps them to time by the rate of each
// step (the time change of a renewal process).
func drawArrivals(all []Arrival, s *Source, function int32, until time.Duration, random *rand.Rand) []Arrival {
	gap := s.Gaps
	if gap == nil {
		gap = Exponential
	}
	next, passed := gap(random), 0.0
	first := int(s.Shift / s.Series.Step)
	for i := 0; time.Duration(i)*s.Series.Step < until; i++ {
		expected := s.Scale * s.Series.Counts[(first+i)%len(s.Series.Counts)]
		for next < passed+expected {
			at := float64(i) + (next-passed)/expected
			if t := time.Duration(math.Floor(at * float64(s.Series.Step))); t < until {
				all = append(all, Arrival{t, function})
			}
			next += gap(random)
		}
		passed += expected
	}
	return all
}
