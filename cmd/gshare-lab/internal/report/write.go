package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"
)

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
