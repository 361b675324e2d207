package share

import "fmt"

// The names under which users write the parts of a share. They stand here because a refusal has to name them;
// package kube reads and writes them.
const (
	FieldSM     = "gshare/sm"
	FieldQuota  = "gshare/quota"
	FieldMemory = "gshare/mem"
	FieldVGPU   = "gshare/vgpu"
	FieldSMTime = "gshare/sm-time"

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
