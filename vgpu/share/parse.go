package share

import (
	"cmp"
	"fmt"
	"strconv"
)

// RawContainer holds the numbers that a user wrote for one container; nil stands for a number that is missing. All but Quota are totals of the
// container, not values for each vGPU.
type RawContainer struct {
	SM     *int64 // percentage points: 200 is two slices' worth
	Quota  *int64 // percent of every window; 100 if missing
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
	// FieldSM is the share of streaming multiprocessors (SMs), in percentage points of a GPU, as a total for the container: 200 with two vGPUs is two
	// whole GPUs. Limit and request are equal.
	//
	//	kind: resource
	//	object: container
	//	written by: user
	//	values: 1 to 100 for each vGPU
	//	default: none, a share needs it
	//	example: gshare/sm: 24
	FieldSM = "gshare/sm"

	// FieldQuota is the guaranteed time, in percent of every window (100 ms unless the node's configuration says otherwise). Values below 100 require a
	// single vGPU.
	//
	//	kind: resource
	//	object: container
	//	written by: user
	//	values: 1 to 100
	//	default: 100
	//	example: gshare/quota: 40
	FieldQuota = "gshare/quota"

	// FieldMemory is the device memory in MiB, as a total for the container. It is a plain number: `4Gi` would mean four thousand million MiB.
	//
	//	kind: resource
	//	object: container
	//	written by: user
	//	values: 1 or more for each vGPU
	//	default: what the annotation `gshare.dev/mem` says; one of the two is needed
	//	example: gshare/mem: 4096
	FieldMemory = "gshare/mem"

	// FieldVGPU is the number of GPUs of one node among which `gshare/sm` and `gshare/mem` are divided evenly. With several GPUs, a container must have
	// whole GPUs (100 of `gshare/sm` for each) or isolation class `exclusive`.
	//
	//	kind: resource
	//	object: container
	//	written by: user
	//	values: 1 to 64
	//	default: gshare/sm / 100, rounded up
	//	example: gshare/vgpu: 2
	FieldVGPU = "gshare/vgpu"

	// FieldSMTime is `gshare/sm` times `gshare/quota`: 10000 is the whole time of a whole GPU. Use it in ResourceQuotas of namespaces.
	//
	//	kind: resource
	//	object: container
	//	written by: admission policy
	//	values: gshare/sm x gshare/quota
	//	default: filled in
	//	example: requests.gshare/sm-time: "40000" in a ResourceQuota
	FieldSMTime = "gshare/sm-time"

	// FieldMemorySize is the value of `gshare/mem`, as a size, for each container that has `gshare/sm` and leaves `gshare/mem` out.
	//
	//	kind: annotation
	//	object: pod
	//	written by: user
	//	values: whole numbers of Mi, Gi or Ti
	//	default: none
	//	example: gshare.dev/mem: 16Gi
	FieldMemorySize = "gshare.dev/mem"

	// FieldSMLimit is how many SMs a vGPU may use while others leave them idle, in percent of the GPU. It can be changed while the pod runs, up to its
	// first value, and only on slices of class `elastic`.
	//
	//	kind: annotation
	//	object: pod
	//	written by: user
	//	values: from gshare/sm of one vGPU to 100
	//	default: gshare/sm, which is no limit above the request
	//	example: gshare.dev/sm-limit: "48"
	FieldSMLimit = "gshare.dev/sm-limit"

	// FieldQuotaLimit is the percentage of each window that a vGPU may use while others leave it unused. It cannot be combined with an SM limit above
	// the request.
	//
	//	kind: annotation
	//	object: pod
	//	written by: user
	//	values: from gshare/quota to 100
	//	default: gshare/quota
	//	example: gshare.dev/quota-limit: "80"
	FieldQuotaLimit = "gshare.dev/quota-limit"

	// FieldClass is the priority on an elastic slice: pods with `slo` (service level objective) get their SMs back first. An administrator may require
	// the label `gshare.dev/slo` on the namespace.
	//
	//	kind: annotation
	//	object: pod
	//	written by: user
	//	values: slo, best-effort
	//	default: best-effort
	//	example: gshare.dev/class: slo
	FieldClass = "gshare.dev/class"

	// FieldIsolation is how the SMs of pods on one GPU are kept apart. `exclusive` gives the GPU to one pod at a time, `mps` gives each pod a fixed part
	// of the SMs, and `elastic` a part that may grow up to its limit. With `swap`, pods of one namespace take turns in holding the memory of the GPU,
	// one at a time; nodes accept it if `kubernetes.swap` of the agent is set.
	//
	//	kind: annotation
	//	object: pod
	//	written by: user
	//	values: exclusive, mps, elastic, swap
	//	default: any that the share allows
	//	example: gshare.dev/isolation: mps
	FieldIsolation = "gshare.dev/isolation"

	// FieldModel is a comma-separated list of GPU models. The pod gets one of them. `kubectl gshare map` shows the models in the cluster.
	//
	//	kind: annotation
	//	object: pod
	//	written by: user
	//	values: up to 16 names
	//	default: any model
	//	example: gshare.dev/model: "A100,H200"
	FieldModel = "gshare.dev/model"

	// FieldWorkload is a name for what the pod does. The scheduler profile `gshare-complementary` prefers GPUs that have pods with the same name.
	//
	//	kind: annotation
	//	object: pod
	//	written by: user
	//	values: up to 63 letters, digits, '-', '_' and '.'
	//	default: none
	//	example: gshare.dev/workload: resnet50
	FieldWorkload = "gshare.dev/workload"

	// FieldSlice is what the percentages of the share refer to: a whole GPU, a MIG instance of any profile, or a MIG instance of one profile.
	//
	//	kind: annotation
	//	object: pod
	//	written by: user
	//	values: gpu, mig, or a MIG profile
	//	default: gpu
	//	example: gshare.dev/slice: 1g.18gb
	FieldSlice = "gshare.dev/slice"

	// FieldContainerSlice is `gshare.dev/slice` for one container alone; the name of the container follows the dot. The stages of a pipeline use it to
	// request MIG instances of different profiles. The container name can have at most 57 characters because Kubernetes limits the length of annotation
	// names.
	//
	//	kind: annotation
	//	object: pod
	//	written by: user
	//	values: gpu, mig, or a MIG profile
	//	default: gshare.dev/slice
	//	example: gshare.dev/slice.decoder: 3g.40gb
	FieldContainerSlice = "gshare.dev/slice."

	// FieldEnforcement is whether the pod may run where the node cannot hold it, or its neighbours, to their shares.
	//
	//	kind: annotation
	//	object: pod
	//	written by: user
	//	values: strict, best-effort
	//	default: strict
	//	example: gshare.dev/enforcement: best-effort
	FieldEnforcement = "gshare.dev/enforcement"

	// FieldWeights names the weights that the pod shares with other pods of its namespace that name the same ones. They count only once on a slice.
	//
	//	kind: annotation
	//	object: pod
	//	written by: user
	//	values: sha256:DIGEST=SIZE of each, separated by commas
	//	default: none, all memory is the pod's own
	//	example: gshare.dev/weights: sha256:2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae=2634Mi
	FieldWeights = "gshare.dev/weights"

	// FieldPacking is which GPUs a pod prefers, across all nodes: with `binpack` the fullest that can take it, with `spread` the emptiest. It is a
	// preference that takes precedence over the other preferences of the scheduler profile; among equally full GPUs, the profile decides.
	//
	//	kind: annotation
	//	object: pod
	//	written by: user
	//	values: binpack, spread
	//	default: what the scheduler's profile prefers
	//	example: gshare.dev/packing: spread
	FieldPacking = "gshare.dev/packing"

	// FieldAntiAffinity is a key that keeps shares apart: shares of pods in the same namespace with the same key never share a physical GPU. Keys of
	// other namespaces do not matter. A pod waits while no GPU without its key has room. The key that counts is the one at the time when the pod was
	// placed.
	//
	//	kind: annotation
	//	object: pod
	//	written by: user
	//	values: up to 63 letters, digits, '-', '_' and '.'
	//	default: none
	//	example: gshare.dev/anti-affinity: resnet50
	FieldAntiAffinity = "gshare.dev/anti-affinity"
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
