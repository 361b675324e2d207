// Package report collects the figures of repeated runs and writes them as a table or as JSON.
package report

import "math"

// Figure is a number that a run measured, with its name in JSON and tables.
type Figure struct {
	Name   string
	Value  float64
	Digits int // after the decimal point, in tables
}

// Run holds the figures measured with one random seed.
type Run struct {
	Seed    uint64
	Figures []Figure
}

// Summary holds the repeated runs of one policy, which differ only in their random seed. All runs have the same figures in the same order.
type Summary struct {
	Policy string
	Runs   []Run
}

// Add appends the figures of the run with this random seed.
func (s *Summary) Add(seed uint64, figures []Figure) {
	s.Runs = append(s.Runs, Run{Seed: seed, Figures: figures})
}

// Mean returns the mean of each figure over the runs.
func (s *Summary) Mean() []Figure {
	mean := s.zeroFigures()
	for _, r := range s.Runs {
		for i, f := range r.Figures {
			mean[i].Value += f.Value / float64(len(s.Runs))
		}
	}
	return mean
}

// StdDev returns the sample standard deviation of each figure over the runs, or zeros if there is only one run.
func (s *Summary) StdDev() []Figure {
	mean, dev := s.Mean(), s.zeroFigures()
	if len(s.Runs) < 2 {
		return dev
	}
	for i := range dev {
		for _, r := range s.Runs {
			d := r.Figures[i].Value - mean[i].Value
			dev[i].Value += d * d
		}
		dev[i].Value = math.Sqrt(dev[i].Value / float64(len(s.Runs)-1))
	}
	return dev
}

// Value returns the mean over the runs of the figure with this name, or NaN if there is no such figure.
func (s *Summary) Value(name string) float64 {
	for _, f := range s.Mean() {
		if f.Name == name {
			return f.Value
		}
	}
	return math.NaN()
}

// zeroFigures returns the figures of the first run with their values set to zero.
func (s *Summary) zeroFigures() []Figure {
	if len(s.Runs) == 0 {
		return nil
	}
	out := make([]Figure, len(s.Runs[0].Figures))
	for i, f := range s.Runs[0].Figures {
		out[i] = Figure{Name: f.Name, Digits: f.Digits}
	}
	return out
}
