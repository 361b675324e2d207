// Package profile holds measurements of a model on a resource, and the latency models that are fitted to them.
package profile

import (
	"cmp"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// MilliCPU is a number of vCPUs in thousandths.
type MilliCPU int64

// Resource is the hardware of a measurement: exactly one of vCPUs, a share of a slice, or a whole MIG instance. Device names the GPU
// model, because per-mille of its SMs cannot be converted to those of another model.
type Resource struct {
	CPU    MilliCPU       `json:"cpu,omitempty"`
	SM     share.PerMille `json:"sm,omitempty"`
	Quota  share.PerMille `json:"quota,omitempty"`
	Slice  string         `json:"slice,omitempty"`  // MIG profile, such as 1g.10gb
	Device string         `json:"device,omitempty"` // model of the GPU; empty for vCPUs
}

// Point is one measurement of a model on a resource. All searches, fits and plans use this form.
type Point struct {
	Model    string   `json:"model"`
	Stage    int      `json:"stage,omitempty"` // stage of a partitioned model, from 1; 0 is the whole model
	Resource Resource `json:"resource"`
	Batch    int      `json:"batch"`

	Mean, P95, P99 time.Duration  // of one batch on a warm instance; zero if not measured
	Throughput     float64        // requests per second
	Memory         share.Bytes    // peak memory
	LoadWarm       time.Duration  // time to load the model from host memory
	LoadCold       time.Duration  // time to load the model from storage
	Utilisation    share.PerMille // fraction of time in which a kernel ran
	Occupancy      share.PerMille // fraction of SMs in use while a kernel ran
}

// MaxBatch is the largest valid batch size of a measurement, so that arithmetic on sizes cannot overflow.
const MaxBatch = 1 << 16

// Validate returns a *share.FieldError if a value is out of bounds, or nil.
func (p Point) Validate() error {
	if err := p.Resource.Validate(); err != nil {
		return err
	}
	switch {
	case p.Model == "":
		return share.Invalid("model", "is empty")
	case p.Batch < 1 || p.Batch > MaxBatch:
		return share.Invalid("batch", "%d is outside 1 to %d", p.Batch, MaxBatch)
	case p.Stage < 0:
		return share.Invalid("stage", "%d is negative", p.Stage)
	case p.Mean <= 0:
		return share.Invalid("mean", "%v is not a positive time", p.Mean)
	case p.P95 < 0 || p.P99 < 0 || p.LoadWarm < 0 || p.LoadCold < 0:
		return share.Invalid("p95, p99, load", "a time is negative")
	case p.P95 > p.P99 && p.P99 > 0:
		return share.Invalid("p95, p99", "%v is more than %v", p.P95, p.P99)
	case !(p.Throughput >= 0 && p.Throughput < maxCoefficient): // NaN too
		return share.Invalid("throughput", "%v is not a rate", p.Throughput)
	case p.Memory < 0 || p.Memory > share.MaxMemory:
		return share.Invalid("memory", "%d bytes is outside 0 to %d", p.Memory, share.MaxMemory)
	case p.Utilisation < 0 || p.Utilisation > share.Whole:
		return share.Invalid("utilisation", "%d per mille is outside 0 to %d", p.Utilisation, share.Whole)
	case p.Occupancy < 0 || p.Occupancy > share.Whole:
		return share.Invalid("occupancy", "%d per mille is outside 0 to %d", p.Occupancy, share.Whole)
	}
	return nil
}

// Validate returns a *share.FieldError unless the resource is exactly one of vCPUs, a share and a MIG instance.
func (r Resource) Validate() error {
	kinds := 0
	for _, has := range []bool{r.CPU != 0, r.SM != 0 || r.Quota != 0, r.Slice != ""} {
		if has {
			kinds++
		}
	}
	switch {
	case kinds != 1:
		return share.Invalid("resource", "names %d of vCPUs, share and slice, instead of one", kinds)
	case r.CPU < 0:
		return share.Invalid("resource.cpu", "%d is negative", r.CPU)
	case r.CPU == 0 && r.Slice == "" && (r.SM < 1 || r.SM > share.Whole || r.Quota < 1 || r.Quota > share.Whole):
		return share.Invalid("resource.sm, quota", "%d x %d per mille is no share", r.SM, r.Quota)
	}
	return nil
}

// WithinField returns a *share.FieldError with its field's path prefixed by that of the parent field, and any other error unchanged.
func WithinField(path string, err error) error {
	if field, ok := err.(*share.FieldError); ok {
		return &share.FieldError{Field: path + "." + field.Field, Reason: field.Reason}
	}
	return err
}

// Model holds the latency models of one neural network by execution mode. Modes that were not measured are nil.
type Model struct {
	Name        string       `json:"name"`
	CPU         *CPU         `json:"cpu,omitempty"`
	GPU         *GPU         `json:"gpu,omitempty"`
	Partitioned *Partitioned `json:"partitioned,omitempty"`
	Share       *Share       `json:"share,omitempty"`
}

// Validate returns a *share.FieldError if there is no latency model or one is invalid, or nil.
func (m *Model) Validate() error {
	switch {
	case m.Name == "":
		return share.Invalid("name", "is empty")
	case m.CPU == nil && m.GPU == nil && m.Partitioned == nil && m.Share == nil:
		return share.Invalid("cpu, gpu, partitioned, share", "the profile of %.64q has none of them", m.Name)
	}
	return cmp.Or(validPart("cpu", m.CPU), validPart("gpu", m.GPU), validPart("partitioned", m.Partitioned), validPart("share", m.Share))
}

func validPart[P interface {
	Validate() error
	comparable
}](name string, part P) error {
	var none P
	if part == none {
		return nil
	}
	return WithinField(name, part.Validate())
}
