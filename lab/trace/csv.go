package trace

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
)

// ReadNodes reads a node list: sn, cpu_milli, memory_mib, gpu, model.
func ReadNodes(file string) ([]Node, error) {
	return readFile(file, []string{"sn", "cpu_milli", "memory_mib", "gpu", "model"}, nodeOf)
}

// ReadPods reads a pod list: name, cpu_milli, memory_mib, num_gpu, gpu_milli, gpu_spec, and columns that are not used. Some of
// openb's lists have no gpu_spec: their pods accept every model.
func ReadPods(file string) ([]Pod, error) {
	return readFile(file, []string{"name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli"}, podOf)
}

func nodeOf(r *row) Node {
	n := Node{Name: r.text("sn"), MilliCPU: r.count("cpu_milli"), MemoryMiB: r.count("memory_mib"),
		GPUs: int(r.count("gpu")), Model: r.text("model")}
	if _, known := DeviceOf(n.Model); n.GPUs > 0 && !known {
		r.fail("model", fmt.Sprintf("unknown GPU model %q", n.Model))
	}
	if n.GPUs > maxGPUs {
		r.fail("gpu", fmt.Sprintf("%d GPUs are more than %d", n.GPUs, maxGPUs))
	}
	return n
}

const maxGPUs = 64

func podOf(r *row) Pod {
	p := Pod{Name: r.text("name"), MilliCPU: r.count("cpu_milli"), MemoryMiB: r.count("memory_mib"),
		GPUs: int(r.count("num_gpu")), MilliGPU: r.count("gpu_milli")}
	if spec := strings.TrimSpace(r.cells["gpu_spec"]); spec != "" {
		p.Models = strings.Split(spec, "|")
	}
	switch {
	case p.GPUs > maxGPUs:
		r.fail("num_gpu", fmt.Sprintf("%d GPUs are more than %d", p.GPUs, maxGPUs))
	case p.GPUs > 1 && p.MilliGPU != 1000:
		r.fail("gpu_milli", "several GPUs must be whole ones (1000)")
	case p.GPUs == 1 && (p.MilliGPU < 1 || p.MilliGPU > 1000):
		r.fail("gpu_milli", fmt.Sprintf("%d is not between 1 and 1000", p.MilliGPU))
	}
	return p
}

// readFile reads a CSV file with a header; each error names file, line and column.
func readFile[T any](file string, want []string, parse func(*row) T) ([]T, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	out, err := read(f, want, parse)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return out, nil
}

func read[T any](in io.Reader, want []string, parse func(*row) T) ([]T, error) {
	r := csv.NewReader(in)
	header, err := r.Read()
	if err != nil {
		return nil, fmt.Errorf("read header: %w", err)
	}
	if missing := missingColumns(header, want); len(missing) > 0 {
		return nil, fmt.Errorf("line 1: no column %s", strings.Join(missing, ", "))
	}
	var out []T
	for {
		fields, err := r.Read()
		if errors.Is(err, io.EOF) {
			return out, nonEmpty(out)
		}
		if err != nil {
			return nil, err // names the line
		}
		line, _ := r.FieldPos(0)
		cells := newRow(header, fields, line)
		value := parse(cells)
		if cells.err != nil {
			return nil, cells.err
		}
		out = append(out, value)
	}
}

func nonEmpty[T any](rows []T) error {
	if len(rows) == 0 {
		return errors.New("no rows")
	}
	return nil
}

func missingColumns(header, want []string) []string {
	var missing []string
	for _, w := range want {
		found := false
		for _, h := range header {
			found = found || strings.TrimSpace(h) == w
		}
		if !found {
			missing = append(missing, w)
		}
	}
	return missing
}

// row is one line by column name; it keeps its first error.
type row struct {
	line  int
	cells map[string]string
	err   error
}

func newRow(header, fields []string, line int) *row {
	r := &row{line: line, cells: make(map[string]string, len(header))}
	for i, h := range header {
		r.cells[strings.TrimSpace(h)] = fields[i]
	}
	return r
}

func (r *row) text(column string) string {
	s := strings.TrimSpace(r.cells[column])
	if s == "" && column != "model" {
		r.fail(column, "is empty")
	}
	return s
}

func (r *row) count(column string) int64 {
	n, err := strconv.ParseInt(strings.TrimSpace(r.cells[column]), 10, 64)
	if err != nil || n < 0 || n > 1<<40 {
		r.fail(column, fmt.Sprintf("%q is not a count", r.cells[column]))
	}
	return n
}

func (r *row) fail(column, why string) {
	if r.err == nil {
		r.err = fmt.Errorf("line %d, column %s: %s", r.line, column, why)
	}
}
