// Package report collects the figures of repeated runs and writes them as a table or as JSON.
package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strconv"
	"text/tabwriter"
)

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

// Write writes the summaries as an aligned table or, in any other format, as JSON. One summary is written as an object, several as a list.
// A summary of one run has the figures in its object; a summary of several runs has them under the keys runs, mean and stddev.
func Write(out io.Writer, format string, summaries []Summary) error {
	if format == "table" {
		return writeTable(out, summaries)
	}
	var value any = summaries
	if len(summaries) == 1 {
		value = summaries[0]
	}
	text, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return err
	}
	_, err = out.Write(append(text, '\n'))
	return err
}

// MarshalJSON implements json.Marshaler. The figures keep their order.
func (s Summary) MarshalJSON() ([]byte, error) {
	var o orderedObject
	o.add("policy", s.Policy)
	if len(s.Runs) == 1 {
		o.add("seed", s.Runs[0].Seed)
		o.figures(s.Runs[0].Figures)
		return o.bytes()
	}
	var runs []json.RawMessage
	for _, r := range s.Runs {
		var run orderedObject
		run.add("seed", r.Seed)
		run.figures(r.Figures)
		text, err := run.bytes()
		if err != nil {
			return nil, err
		}
		runs = append(runs, text)
	}
	o.add("runs", runs)
	o.nested("mean", s.Mean())
	o.nested("stddev", s.StdDev())
	return o.bytes()
}

// orderedObject is a JSON object whose fields keep the order in which they were added.
type orderedObject struct {
	text bytes.Buffer
	err  error
}

func (o *orderedObject) add(name string, value any) {
	text, err := json.Marshal(value)
	if err != nil && o.err == nil {
		o.err = fmt.Errorf("%s: %w", name, err)
	}
	if o.text.Len() > 0 {
		o.text.WriteByte(',')
	}
	fmt.Fprintf(&o.text, "%q:%s", name, text)
}

func (o *orderedObject) figures(figures []Figure) {
	for _, f := range figures {
		o.add(f.Name, f.Value)
	}
}

func (o *orderedObject) nested(name string, figures []Figure) {
	var inner orderedObject
	inner.figures(figures)
	text, err := inner.bytes()
	if err != nil && o.err == nil {
		o.err = err
	}
	o.add(name, json.RawMessage(text))
}

func (o *orderedObject) bytes() ([]byte, error) {
	return []byte("{" + o.text.String() + "}"), o.err
}

func writeTable(out io.Writer, summaries []Summary) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	for i, s := range summaries {
		mean, dev := s.Mean(), s.StdDev()
		if i == 0 {
			fmt.Fprint(w, "policy\t")
			for _, f := range mean {
				fmt.Fprintf(w, "%s\t", f.Name)
			}
			fmt.Fprintln(w)
		}
		fmt.Fprintf(w, "%s\t", s.Policy)
		for j, f := range mean {
			fmt.Fprint(w, strconv.FormatFloat(f.Value, 'f', f.Digits, 64))
			if len(s.Runs) > 1 {
				fmt.Fprint(w, " ±", strconv.FormatFloat(dev[j].Value, 'f', f.Digits, 64))
			}
			fmt.Fprint(w, "\t")
		}
		fmt.Fprintln(w)
	}
	return w.Flush()
}
