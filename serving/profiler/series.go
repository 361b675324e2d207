package profiler

import (
	"fmt"
	"time"
)

// Series holds the kernel launches of a program as another process counts them from time to time. It keeps only the last counts.
type Series struct {
	First   *Count        // the first count with a launch; nil if it has launched nothing
	Changed time.Duration // time of the last count that exceeded the one before; 0 if none did
	Counts  []Count       // the last counts, oldest first
}

// Count is the number of kernels that a program has launched up to a time.
type Count struct {
	At       time.Duration // since the counts began
	Launches uint64
}

// Judge is like Measure, but judges a program by the counts of another process. done is false while they do not suffice; then call it again with a longer
// series. A series must reach back for at least Length. The error is a *FailedError for a program that launches nothing.
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
	case all >= maxLengths*p.Length+idleLimit: // windows without launches occur again and again
		t, _ := trialOfRates([]float64{float64(now.Launches-s.First.Launches) / all.Seconds()}, Usage{})
		t.Confidence = 1
		return t, true, nil
	}
	return Trial{}, false, nil
}

// rates returns the launches per second in up to steadyWindows of the last windows, the latest first. Each window is at least the fraction 1/steadyWindows
// of Length, lies after the first launch, and has launches.
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
