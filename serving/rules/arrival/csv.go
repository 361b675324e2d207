package arrival

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
	"github.com/gshare-dev/gshare/vgpu/table"
)

// requestTable names the columns of a CSV table with one request per row.
type requestTable struct {
	time  string // column of the time at which the request arrived or was answered
	less  string // column of the seconds to subtract from that time; none if empty
	name  string // column of the function's name; if empty, all requests go to one function
	parse func(word string, line int, column string) (float64, error)
}

// request is the function name and the time, in seconds, of one recorded request.
type request struct {
	name string
	at   float64
}

func readRequests(text string, form requestTable) ([]Series, error) {
	var all []request
	for row, err := range csvRows(text) {
		if err != nil {
			return nil, err
		}
		r, err := form.request(&row)
		if err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	return countPerSecond(all)
}

func (form requestTable) request(row *table.Row) (request, error) {
	r := request{name: "requests"}
	at, err := columnIndex(row, form.time)
	if err != nil {
		return r, err
	}
	if r.at, err = form.parse(row.Fields[at], row.Line, form.time); err != nil {
		return r, err
	}
	if form.less == "" {
		return r, nil
	}
	less, lessErr := columnIndex(row, form.less)
	name, nameErr := columnIndex(row, form.name)
	if err := cmp.Or(lessErr, nameErr); err != nil {
		return r, err
	}
	took, err := parseNumber(row.Fields[less], row.Line, form.less)
	r.at, r.name = r.at-took, row.Fields[name]
	return r, err
}

// parseDate parses a timestamp and returns it in seconds since the Unix epoch.
func parseDate(word string, line int, column string) (float64, error) {
	at, err := time.Parse("2006-01-02 15:04:05.9999999", word)
	if err != nil {
		return 0, share.Invalid(fmt.Sprintf("line %d, %s", line, column), "%.64q is no time such as 2023-11-16 18:15:46.6805900", word)
	}
	return float64(at.UnixNano()) / 1e9, nil
}

// countPerSecond returns the number of requests per second for each function. All series start at the first request to any function.
func countPerSecond(all []request) ([]Series, error) {
	if len(all) == 0 {
		return nil, share.Invalid("trace", "has no requests")
	}
	first, last := math.Inf(1), math.Inf(-1)
	for _, r := range all {
		first, last = min(first, r.at), max(last, r.at)
	}
	steps := math.Floor(last-first) + 1
	if !(steps <= MaxSteps) {
		return nil, share.Invalid("trace", "lasts %g s; want at most %d", last-first, MaxSteps)
	}
	found := map[string]*Series{}
	for _, r := range all {
		s := found[r.name]
		if s == nil {
			if (len(found)+1)*int(steps) > 64*MaxSteps {
				return nil, share.Invalid("trace", "has too many functions for %g s", steps)
			}
			s = &Series{Name: r.name, Step: second, Counts: make([]float64, int(steps))}
			found[r.name] = s
		}
		s.Counts[int(r.at-first)]++
	}
	var out []Series
	for _, s := range found {
		out = append(out, *s)
	}
	slices.SortFunc(out, func(a, b Series) int { return cmp.Compare(a.Name, b.Name) })
	return out, nil
}

// readMinutes parses a table with one function per line and one column of request counts per minute.
func readMinutes(text string) ([]Series, error) {
	var all []Series
	for row, err := range csvRows(text) {
		if err != nil {
			return nil, err
		}
		name, nameErr := columnIndex(&row, "HashFunction")
		first, firstErr := columnIndex(&row, "1")
		if err := cmp.Or(nameErr, firstErr); err != nil {
			return nil, err
		}
		if len(all) == maxSeries {
			return nil, share.Invalid("trace", "more than %d functions", maxSeries)
		}
		s := Series{Name: row.Fields[name], Step: minute}
		for i, word := range row.Fields[first:] {
			n, err := parseNumber(word, row.Line, "minute "+strconv.Itoa(i+1))
			if err != nil {
				return nil, err
			}
			s.Counts = append(s.Counts, n)
		}
		all = append(all, s)
	}
	if len(all) == 0 {
		return nil, share.Invalid("trace", "has no functions")
	}
	return all, nil
}

// Sum returns the sum of all series, so that a sparse trace can drive a busy function. They must have equal steps.
func Sum(all []Series) Series {
	sum := Series{Name: "sum", Step: all[0].Step}
	for _, s := range all {
		for len(sum.Counts) < len(s.Counts) {
			sum.Counts = append(sum.Counts, 0)
		}
		for i, n := range s.Counts {
			sum.Counts[i] += n
		}
	}
	return sum
}

// Coarser returns the series with steps n times as long.
func (s *Series) Coarser(n int) Series {
	out := Series{Name: s.Name, Step: s.Step * time.Duration(n), Counts: make([]float64, (len(s.Counts)+n-1)/n)}
	for i, c := range s.Counts {
		out.Counts[i/n] += c
	}
	return out
}
