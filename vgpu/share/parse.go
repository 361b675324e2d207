package share

import (
	"cmp"
	"fmt"
	"strconv"
)

// RawContainer holds the numbers that a user wrote for one container; nil means not written. All but Quota are totals of the container, not
// of each vGPU.
type RawContainer struct {
	SM     *int64 // percent points: 200 is two slices' worth
	Quota  *int64 // percent of every window; not written is 100
	Memory *int64 // MiB
	VGPUs  *int64 // count
}

// Limits holds the SM and quota limits of every vGPU of a pod, in percent of one slice or window; nil means equal to the request.
type Limits struct {
	SM    *int64
	Quota *int64
}

// NewContainer validates what a user wrote for the named container and divides it into equal shares, one for each vGPU.
//
// Every error wraps a *FieldError. Memory has no default, because a share without a memory limit could not be enforced.
func NewContainer(name string, raw RawContainer, limits Limits) (Container, error) {
	c := Container{Name: name}
	if err := c.read(raw, limits); err != nil {
		return Container{}, inContainer(name, err)
	}
	return c, nil
}

// ParsePercent parses an integer percentage in an annotation, and returns nil for an empty text. The caller checks the range.
func ParsePercent(field, text string) (*int64, error) {
	if text == "" {
		return nil, nil
	}
	value, err := strconv.ParseInt(text, 10, 64)
	if err != nil || strconv.FormatInt(value, 10) != text { // the second refuses "+48" and "048"
		return nil, Invalid(field, "%.64q is not a whole number of percent", text)
	}
	return &value, nil
}

func (c *Container) read(raw RawContainer, limits Limits) error {
	if err := raw.check(); err != nil {
		return err
	}
	sm, err := divide(FieldSM, "percent points", *raw.SM, *raw.VGPUs)
	if err != nil {
		return err
	}
	if sm > 100 {
		return Invalid(FieldSM, "%d percent points need at least %d vGPUs, not %d: a slice has 100", *raw.SM, (*raw.SM+99)/100, *raw.VGPUs)
	}
	memory, err := divide(FieldMemory, "MiB", *raw.Memory, *raw.VGPUs)
	if err != nil {
		return err
	}
	c.VGPUs = int(*raw.VGPUs)
	c.Share = Share{SMRequest: perMille(sm), QuotaRequest: perMille(raw.quota()), Memory: Bytes(memory) * MiB}
	if err := c.Share.setLimits(limits); err != nil {
		return err
	}
	return c.Validate()
}

// check returns an error if a required number is missing, or a number is too large to calculate with.
func (raw RawContainer) check() error {
	switch {
	case raw.SM == nil:
		return Invalid(FieldSM, "a share needs it; quota, mem or vgpu alone ask for nothing")
	case raw.VGPUs == nil:
		return Invalid(FieldVGPU, "a share needs gshare/vgpu, which the admission policy fills in; is it installed?")
	case raw.Memory == nil:
		return Invalid(FieldMemory, "a share needs it, or the annotation gshare.dev/mem: at least 1 MiB of device memory for each vGPU")
	}
	return cmp.Or(
		inRange(FieldVGPU, *raw.VGPUs, 1, MaxVGPUs, "vGPUs"),
		inRange(FieldSM, *raw.SM, 1, 100*MaxVGPUs, "percent points"),
		inRange(FieldQuota, raw.quota(), 1, 100, "percent"),
		inRange(FieldMemory, *raw.Memory, 1, int64(MaxMemory/MiB), "MiB"),
	)
}

func (raw RawContainer) quota() int64 {
	if raw.Quota == nil {
		return 100
	}
	return *raw.Quota
}

// setLimits sets the limits of the share, which are equal to the requests unless the user wrote others.
func (s *Share) setLimits(l Limits) error {
	var smErr, quotaErr error
	s.SMLimit, smErr = limitOrRequest(FieldSMLimit, l.SM, s.SMRequest)
	s.QuotaLimit, quotaErr = limitOrRequest(FieldQuotaLimit, l.Quota, s.QuotaRequest)
	return cmp.Or(smErr, quotaErr)
}

func limitOrRequest(field string, percent *int64, request PerMille) (PerMille, error) {
	if percent == nil {
		return request, nil
	}
	return perMille(*percent), inRange(field, *percent, 1, 100, "percent")
}

func divide(field, unit string, total, vgpus int64) (int64, error) {
	if total%vgpus != 0 {
		return 0, Invalid(field, "%d %s cannot be divided evenly among %d vGPUs", total, unit, vgpus)
	}
	return total / vgpus, nil
}

func perMille(percent int64) PerMille { return PerMille(percent * 10) }

func inContainer(name string, err error) error { return fmt.Errorf("container %.64q: %w", name, err) }

// The names under which users write the parts of a share. They stand here because a refusal has to name them;
// package kube reads and writes them.
const (
	FieldSM     = "gshare/sm"
	FieldQuota  = "gshare/quota"
	FieldMemory = "gshare/mem"
	FieldVGPU   = "gshare/vgpu"
	FieldSMTime = "gshare/sm-time"

	FieldMemorySize  = "gshare.dev/mem"
	FieldSMLimit     = "gshare.dev/sm-limit"
	FieldQuotaLimit  = "gshare.dev/quota-limit"
	FieldClass       = "gshare.dev/class"
	FieldIsolation   = "gshare.dev/isolation"
	FieldModel       = "gshare.dev/model"
	FieldWorkload    = "gshare.dev/workload"
	FieldSlice       = "gshare.dev/slice"
	FieldEnforcement = "gshare.dev/enforcement"
)

// FieldError is the error for an invalid field of a user's request. Its text is one sentence for an event on the pod.
type FieldError struct {
	Field  string // one of the Field names, so that other front ends can name their own flag
	Reason string // what is wrong, with the value
}

func (e *FieldError) Error() string { return e.Field + ": " + e.Reason }

// Invalid returns a FieldError for the field with the formatted reason. The format must bound text that a user controls, for example by
// %.64q.
func Invalid(field, format string, args ...any) error {
	return &FieldError{Field: field, Reason: fmt.Sprintf(format, args...)}
}

func inRange(field string, value, low, high int64, unit string) error {
	if value < low || value > high {
		return Invalid(field, "%d %s is outside %d to %d", value, unit, low, high)
	}
	return nil
}
