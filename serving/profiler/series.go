package profiler

import (
	"fmt"
	"time"
)

// Series is what is known of the launches of a program that somebody else counts, now and then, and of which only the last counts are kept.
type Series struct {
	First   *Count        // the first count with a launch; nil if it has launched nothing
	Changed time.Duration // of the last count that had more launches than the one before; 0 if none had
	Counts  []Count       // the last ones, the oldest first
}

// Count is how many kernels a program has launched until a time.
type Count struct {
	At       time.Duration // since the counts began
	Launches uint64
}

// Judge returns what a program does by its counts, as Measure does of one that it looks at itself. done is false while they do not say enough: then there is to
// be a longer series. It has to reach back for Length at the least. The error is a *FailedError for a program that launches nothing.
func (p *Progress) Judge(s Series) (t Trial, done bool, err error) {
	if len(s.Counts) == 0 {
		return Trial{}, false, nil
	}
	now := s.Counts[len(s.Counts)-1]
	if now.At-s.Changed >= idleLimit {
		return Trial{}, false, &FailedError{fmt.Sprintf("launches no kernels within %v", idleLimit)}
	}
	if s.First == nil {
		return Trial{}, false, nil
	}
	all := now.At - s.First.At
	rates := p.rates(s)
	switch {
	case len(rates) == steadyWindows:
		t, spread := trialOfRates(rates, Usage{})
		return t, spread <= precision || all >= maxLengths*p.Length, nil
	case all >= maxLengths*p.Length+idleLimit: // again and again it launches nothing for a window
		t, _ := trialOfRates([]float64{float64(now.Launches-s.First.Launches) / all.Seconds()}, Usage{})
		t.Confidence = 1
		return t, true, nil
	}
	return Trial{}, false, nil
}

// rates returns the launches in a second in the last windows, up to steadyWindows of them, the latest first: each at least a part of Length, after the first
// launch, and above 0.
func (p *Progress) rates(s Series) (rates []float64) {
	end := s.Counts[len(s.Counts)-1]
	for at := len(s.Counts) - 2; at >= 0 && len(rates) < steadyWindows; at-- {
		begin := s.Counts[at]
		if begin.At < s.First.At {
			break
		}
		if end.At-begin.At < p.Length/steadyWindows {
			continue
		}
		if begin.Launches >= end.Launches {
			break
		}
		rates = append(rates, float64(end.Launches-begin.Launches)/(end.At-begin.At).Seconds())
		end = begin
	}
	return rates
}
