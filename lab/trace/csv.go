package trace

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/gshare-dev/gshare/lab/dataset"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/share"
	"github.com/gshare-dev/gshare/vgpu/table"
)

// ReadNodes reads nodes from a CSV file, or from package dataset, with the columns sn, cpu_milli, memory_mib, gpu, model, and optionally
// gpu_memory_mib and gpu_sms of each GPU, which models need that are not in KnownModels.
func ReadNodes(file string) ([]Node, error) {
	return readFile(file, []string{"sn", "cpu_milli", "memory_mib", "gpu", "model"}, nodeOf)
}

// ReadPods reads pods from a CSV file, or from package dataset, with the columns name, cpu_milli, memory_mib, num_gpu, gpu_milli, gpu_spec;
// others are ignored. Some of openb's lists have no gpu_spec: their pods accept every model.
func ReadPods(file string) ([]Pod, error) {
	return readFile(file, []string{"name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli"}, podOf)
}

func nodeOf(r *row) Node {
	n := Node{Name: r.text("sn"), MilliCPU: r.count("cpu_milli"), MemoryMiB: r.count("memory_mib"),
		GPUs: int(r.count("gpu")), Model: r.text("model")}
	if n.GPUs > maxGPUs {
		r.fail("gpu", fmt.Sprintf("%d GPUs are more than %d", n.GPUs, maxGPUs))
	}
	if n.GPUs > 0 {
		n.Device = deviceOf(r, n.Model)
	}
	return n
}

// deviceOf returns the device that a row describes, or else that of its model.
func deviceOf(r *row, model string) Device {
	d, known := devices[model]
	switch described := r.Text("gpu_memory_mib") != "" || r.Text("gpu_sms") != ""; {
	case described:
		d = Device{r.within("gpu_memory_mib", int64(share.MaxMemory/share.MiB)), int(r.within("gpu_sms", kube.MaxSMs))}
		if !share.ValidModel(model) {
			r.fail("model", fmt.Sprintf("%.64q is not the name of a GPU model, such as A100", model))
		}
	case !known:
		r.fail("model", fmt.Sprintf("unknown GPU model %.64q: fill in the columns gpu_memory_mib and gpu_sms, too, or use a model of %s",
			model, strings.Join(KnownModels(), ", ")))
	}
	return d
}

const maxGPUs = 64

func podOf(r *row) Pod {
	p := Pod{Name: r.text("name"), MilliCPU: r.count("cpu_milli"), MemoryMiB: r.count("memory_mib"),
		GPUs: int(r.count("num_gpu")), MilliGPU: r.count("gpu_milli")}
	if spec := r.Text("gpu_spec"); spec != "" {
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

// readFile parses the rows of a CSV file with a header. Errors name file, line and column.
func readFile[T any](file string, columns []string, parse func(*row) T) ([]T, error) {
	text, err := dataset.ReadFile(file)
	if err != nil {
		return nil, err
	}
	out, err := read(string(text), columns, parse)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return out, nil
}

func read[T any](text string, columns []string, parse func(*row) T) ([]T, error) {
	var out []T
	for r, err := range table.Rows(strings.NewReader(text), columns...) {
		if err != nil {
			return nil, err
		}
		cells := &row{Row: r}
		value := parse(cells)
		if cells.err != nil {
			return nil, cells.err
		}
		out = append(out, value)
	}
	if len(out) == 0 {
		return nil, errors.New("no rows")
	}
	return out, nil
}

// row is one line of a CSV file. It keeps the first error in its columns.
type row struct {
	table.Row
	err error
}

// text returns the field of a column. An empty field is recorded as an error, except in the column model.
func (r *row) text(column string) string {
	s := r.Text(column)
	if s == "" && column != "model" {
		r.fail(column, "is empty")
	}
	return s
}

func (r *row) count(column string) int64 {
	n, err := strconv.ParseInt(r.Text(column), 10, 64)
	if err != nil || n < 0 || n > 1<<40 {
		r.fail(column, fmt.Sprintf("%q is not a count", r.Text(column)))
	}
	return n
}

func (r *row) within(column string, most int64) int64 {
	n := r.count(column)
	if n < 1 || n > most {
		r.fail(column, fmt.Sprintf("%d is not between 1 and %d", n, most))
	}
	return n
}

func (r *row) fail(column, why string) {
	if r.err == nil {
		r.err = fmt.Errorf("line %d, column %s: %s", r.Line, column, why)
	}
}
