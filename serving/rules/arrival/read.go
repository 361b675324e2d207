package arrival

import (
	"fmt"
	"iter"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
	"github.com/gshare-dev/gshare/vgpu/table"
)

// Steps of the series: a second for rate files and single requests, a minute for tables of counts per minute.
const (
	second = time.Second
	minute = time.Minute
)

// Read parses a trace, whose format it detects:
//
//   - one number per line: requests per second (Dilu's rate files);
//   - CSV with the columns app, func, end_timestamp, duration: single requests (Azure Functions 2021);
//   - CSV with a column TIMESTAMP: single requests (Azure LLM inference 2023);
//   - CSV with the columns HashFunction, Trigger, 1, 2, ...: requests per minute (Azure Functions 2019).
//
// It returns the series in order of descending rate, then name. Errors are *share.FieldError and name the line and the column.
func Read(text string) ([]Series, error) {
	header, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	columns := strings.Split(strings.TrimSpace(header), ",")
	var all []Series
	var err error
	switch {
	case slices.Contains(columns, "end_timestamp"):
		all, err = readRequests(text, requestTable{time: "end_timestamp", less: "duration", name: "func", parse: parseNumber})
	case slices.Contains(columns, "TIMESTAMP"):
		all, err = readRequests(text, requestTable{time: "TIMESTAMP", parse: parseDate})
	case slices.Contains(columns, "HashFunction"):
		all, err = readMinutes(text)
	default:
		all, err = readRates(text)
	}
	if err != nil {
		return nil, err
	}
	for i := range all {
		if err := all[i].Validate(); err != nil {
			return nil, err
		}
	}
	sortByRate(all)
	return all, nil
}

func sortByRate(all []Series) {
	slices.SortFunc(all, func(a, b Series) int {
		if x, y := a.Rate(), b.Rate(); x != y {
			return map[bool]int{true: -1, false: 1}[x > y]
		}
		return strings.Compare(a.Name, b.Name)
	})
}

func readRates(text string) ([]Series, error) {
	s := Series{Name: "rate", Step: second}
	line := 0
	for word := range strings.Lines(text) {
		line++
		if word = strings.TrimSpace(word); word == "" {
			continue
		}
		rate, err := parseNumber(word, line, "rate")
		if err != nil {
			return nil, err
		}
		if len(s.Counts) == MaxSteps {
			return nil, share.Invalid("rate", "more than %d lines", MaxSteps)
		}
		s.Counts = append(s.Counts, rate)
	}
	if len(s.Counts) == 0 {
		return nil, share.Invalid("trace", "is empty")
	}
	return []Series{s}, nil
}

// parseNumber parses a finite number of at least zero.
func parseNumber(word string, line int, column string) (float64, error) {
	x, err := strconv.ParseFloat(word, 64)
	if err != nil || !(x >= 0) || math.IsInf(x, 0) {
		return 0, share.Invalid(fmt.Sprintf("line %d, %s", line, column), "%.64q is no number of at least 0", word)
	}
	return x, nil
}

// csvRows returns an iterator over the rows of CSV text with a header.
func csvRows(text string) iter.Seq2[table.Row, error] {
	return func(yield func(table.Row, error) bool) {
		for r, err := range table.Rows(strings.NewReader(text)) {
			if err != nil {
				err = share.Invalid("csv", "%v", err)
			}
			if !yield(r, err) {
				return
			}
		}
	}
}

// columnIndex returns the index of a column, or an error if the header of the table lacks it.
func columnIndex(r *table.Row, name string) (int, error) {
	i := r.Column(name)
	if i < 0 {
		return 0, share.Invalid("line 1", "there is no column %s", name)
	}
	return i, nil
}
