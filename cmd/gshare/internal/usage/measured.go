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

// Table holds the measured GPU use of pods.
type Table map[Pod]Measured

// Pod identifies a pod by namespace and name.
type Pod struct{ Namespace, Name string }

// Measured is the measured use of each GPU of a pod: SMs and memory.
type Measured struct {
	SM        int64 // percent of the GPU's SMs, rounded up, at least 1
	MemoryMiB int64
}

var columns = []string{"namespace", "pod", "sm_percent", "memory_mib"}

// Read parses CSV with the columns namespace, pod, sm_percent and memory_mib, in this order and with this header. Of several lines for
// a pod, it keeps the largest values. Errors contain the line number.
func Read(in io.Reader) (Table, error) {
	r := csv.NewReader(in)
	r.FieldsPerRecord = len(columns)
	header, err := r.Read()
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if !slices.Equal(header, columns) {
		return nil, fmt.Errorf("invalid header: must be %v", columns)
	}
	t := Table{}
	for {
		row, err := r.Read()
		if errors.Is(err, io.EOF) {
			return t, nil
		}
		if err != nil {
			return nil, err // contains the line number
		}
		if err := t.addRow(row); err != nil {
			line, _ := r.FieldPos(0)
			return nil, fmt.Errorf("line %d: %w", line, err)
		}
	}
}

// addRow parses one row of the CSV file and adds it to the table.
func (t Table) addRow(row []string) error {
	sm, err := parseMeasured("sm_percent", row[2], 100)
	if err != nil {
		return err
	}
	memory, err := parseMeasured("memory_mib", row[3], maxMiB)
	if err != nil {
		return err
	}
	name := Pod{row[0], row[1]}
	t[name] = Measured{SM: max(t[name].SM, sm), MemoryMiB: max(t[name].MemoryMiB, memory)}
	return nil
}

// parseMeasured parses a number from 0 to most and rounds it up to an integer of at least 1, because a share must not be empty.
func parseMeasured(column, text string, most float64) (int64, error) {
	x, err := strconv.ParseFloat(text, 64)
	if err != nil || !(x >= 0 && x <= most) {
		return 0, fmt.Errorf("%s: invalid value %.64q: must be a number from 0 to %g", column, text, most)
	}
	return max(1, int64(math.Ceil(x))), nil
}
