package serving

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/gshare-dev/gshare/serving/rules/profile"
	"github.com/gshare-dev/gshare/vgpu/share"
	"github.com/gshare-dev/gshare/vgpu/table"
)

// ReadShares parses a profile over SMs in the format of Dilu's data. Each line has batch size, percent of the SMs, seconds per batch, and
// requests per second. Errors are *share.FieldError with line and column.
func ReadShares(text, model, device string) ([]profile.Point, error) {
	rows, err := parseNumbers(text, 0, []string{"batch", "percent of SMs", "seconds", "requests a second"})
	if err != nil {
		return nil, err
	}
	var points []profile.Point
	for i, row := range rows {
		took := time.Duration(row[2] * 1e9)
		p := profile.Point{
			Model: model, Resource: profile.Resource{SM: share.PerMille(10 * row[1]), Quota: share.Whole, Device: device}, Batch: int(row[0]),
			Mean: took, P95: took, P99: took, Throughput: row[3],
		}
		if err := p.Validate(); err != nil {
			return nil, profile.WithinField(fmt.Sprintf("line %d", i+1), err)
		}
		points = append(points, p)
	}
	return points, nil
}

// SliceTime is the latency of a batch on a MIG instance with the given number of compute slices.
type SliceTime struct {
	Compute, Batch int
	Takes          time.Duration
}

// ReadSlices parses a profile over MIG sizes in the format of ParvaGPU's data: a header, then lines with compute slices, batch size,
// processes, requests per second, and seconds per batch. It skips lines with several processes or 0 requests per second. Latencies are
// computed from the rates, because the file rounds its times to milliseconds. Errors are *share.FieldError.
func ReadSlices(text string) ([]SliceTime, error) {
	rows, err := parseNumbers(text, 1, []string{"compute slices", "batch", "processes", "requests a second", "seconds"})
	if err != nil {
		return nil, err
	}
	var times []SliceTime
	for i, row := range rows {
		if row[2] != 1 || row[3] == 0 {
			continue
		}
		t := SliceTime{Compute: int(row[0]), Batch: int(row[1]), Takes: time.Duration(row[1] / row[3] * 1e9)}
		if t.Compute < 1 || t.Compute > 7 || t.Batch < 1 || t.Batch > profile.MaxBatch || t.Takes <= 0 || t.Takes > time.Hour {
			return nil, share.Invalid(fmt.Sprintf("line %d", i+2), "%v is no setting of a MIG instance", row)
		}
		times = append(times, t)
	}
	if len(times) == 0 {
		return nil, share.Invalid("line 2", "no setting with one process ran")
	}
	return times, nil
}

// parseNumbers parses CSV lines after the header with one number per column, each from 0 to a million.
func parseNumbers(text string, header int, columns []string) ([][]float64, error) {
	var rows [][]float64
	line := 0
	for r, err := range table.Records(strings.NewReader(text)) {
		line++
		if err != nil {
			return nil, share.Invalid("csv", "%v", err)
		}
		words := r.Fields
		if len(words) != len(columns) {
			return nil, share.Invalid("csv", "line %d has %d fields; want %d", r.Line, len(words), len(columns))
		}
		if line <= header {
			continue
		}
		row := make([]float64, len(words))
		for i, word := range words {
			x, err := strconv.ParseFloat(strings.TrimSpace(word), 64)
			if err != nil || !(x >= 0 && x < 1e6) || math.IsNaN(x) {
				return nil, share.Invalid(fmt.Sprintf("line %d, %s", line, columns[i]), "%.64q is no number from 0 to a million", word)
			}
			row[i] = x
		}
		if rows = append(rows, row); len(rows) > maxPoints {
			return nil, share.Invalid("csv", "more than %d lines", maxPoints)
		}
	}
	if len(rows) == 0 {
		return nil, share.Invalid("csv", "has no lines of numbers")
	}
	return rows, nil
}
