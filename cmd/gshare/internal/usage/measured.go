package usage

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
)

// Table is what was measured, by pod.
type Table map[Pod]Measured

// Pod names a pod.
type Pod struct{ Namespace, Name string }

// Measured is the use of each GPU that a pod holds.
type Measured struct {
	SM        int64 // percent of the GPU's SMs, rounded up, at least 1
	MemoryMiB int64
}

var columns = []string{"namespace", "pod", "sm_percent", "memory_mib"}

// Read reads CSV with the columns namespace, pod, sm_percent and memory_mib, in this order and with this header. A pod
// that is listed several times counts with its largest values. Errors name the line.
func Read(in io.Reader) (Table, error) {
	r := csv.NewReader(in)
	r.FieldsPerRecord = len(columns)
	header, err := r.Read()
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if !slices.Equal(header, columns) {
		return nil, fmt.Errorf("the first line is not %v", columns)
	}
	t := Table{}
	for {
		row, err := r.Read()
		if errors.Is(err, io.EOF) {
			return t, nil
		}
		if err != nil {
			return nil, err // names the line
		}
		if err := t.add(row); err != nil {
			line, _ := r.FieldPos(0)
			return nil, fmt.Errorf("line %d: %w", line, err)
		}
	}
}

func (t Table) add(row []string) error {
	sm, err := measure("sm_percent", row[2], 100)
	if err != nil {
		return err
	}
	memory, err := measure("memory_mib", row[3], maxMiB)
	if err != nil {
		return err
	}
	name := Pod{row[0], row[1]}
	t[name] = Measured{SM: max(t[name].SM, sm), MemoryMiB: max(t[name].MemoryMiB, memory)}
	return nil
}

// measure reads a number from 0 to most and rounds it up, to 1 at least: no share is empty.
func measure(column, text string, most float64) (int64, error) {
	x, err := strconv.ParseFloat(text, 64)
	if err != nil || !(x >= 0 && x <= most) {
		return 0, fmt.Errorf("%s: %.64q is not a number from 0 to %g", column, text, most)
	}
	return max(1, int64(math.Ceil(x))), nil
}
