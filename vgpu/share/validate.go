package share

import "cmp"

// Bounds that keep sums of shares from overflowing and the placement of a pod small.
const (
	MaxVGPUs  = 64             // of one pod; a node of 8 GPUs with 7 MIG instances each has 56 slices
	MaxMemory = Bytes(1) << 50 // of one container
)

// Validate returns an error if no slice could hold the share. Errors are *FieldError.
func (s Share) Validate() error {
	if err := s.inBounds(); err != nil {
		return err
	}
	if s.SMLimit > s.SMRequest && s.QuotaRequest < Whole {
		return Invalid(FieldSMLimit, "SMs above the request (%s) and a quota below 100%% (%s) cannot be had on one share",
			formatRange(s.SMRequest, s.SMLimit), s.QuotaRequest.Percent())
	}
	return nil
}

func (s Share) inBounds() error {
	return cmp.Or(
		inRange(FieldSM, int64(s.SMRequest), 1, int64(Whole), "per mille"),
		inRange(FieldQuota, int64(s.QuotaRequest), 1, int64(Whole), "per mille"),
		inRange(FieldMemory, int64(s.Memory), 1, int64(MaxMemory), "bytes"),
		atLeastRequest(FieldSMLimit, s.SMLimit, s.SMRequest),
		atLeastRequest(FieldQuotaLimit, s.QuotaLimit, s.QuotaRequest),
	)
}

// ValidateFor returns an error if slices of the isolation class could not enforce the share's requests and limits. The share must be valid.
func (s Share) ValidateFor(class Isolation) error {
	switch {
	case !class.Schedulable():
		return Invalid(FieldIsolation, "%.64q is none of exclusive, mps, elastic, swap", string(class))
	case (class == MPS || class == Swap) && s.SMLimit != s.SMRequest:
		return Invalid(FieldIsolation, "%s fixes the SMs, but sm-limit (%s) is above sm (%s)", class, s.SMLimit.Percent(), s.SMRequest.Percent())
	case class == Elastic && s.QuotaRequest != Whole:
		return Invalid(FieldIsolation, "elastic needs quota 100%%, not %s", s.QuotaRequest.Percent())
	}
	return nil
}

// Validate returns an error if the shares of the container could not be placed together. Errors are *FieldError.
func (c Container) Validate() error {
	if err := inRange(FieldVGPU, int64(c.VGPUs), 1, MaxVGPUs, "vGPUs"); err != nil {
		return err
	}
	if err := c.Share.Validate(); err != nil {
		return err
	}
	if c.Slice != "" && !validSlice(c.Slice) {
		return invalidSlice(FieldContainerSlice+c.Name, c.Slice)
	}
	if c.VGPUs > 1 && c.Share.QuotaRequest < Whole {
		return Invalid(FieldQuota, "%s with %d vGPUs: more than one vGPU needs quota 100%%, as turns on several slices would have to coincide",
			c.Share.QuotaRequest.Percent(), c.VGPUs)
	}
	return nil
}

// Validate returns an error if no node could hold the request. Every error wraps a *FieldError.
func (r Request) Validate() error {
	if err := r.Terms.Validate(); err != nil {
		return err
	}
	if len(r.Containers) == 0 {
		return Invalid(FieldSM, "no container asks for a share")
	}
	total := 0
	for _, c := range r.Containers {
		if err := r.validateContainer(c); err != nil {
			return inContainer(c.Name, err)
		}
		total += c.VGPUs // cannot overflow: each is at most MaxVGPUs
	}
	if r.Isolation == Swap && total > 1 { // two vGPUs of one pod could have to wait for each other's turn
		return Invalid(FieldIsolation, "swap is for one vGPU of a pod, not for %d", total)
	}
	return inRange(FieldVGPU, int64(total), 1, MaxVGPUs, "vGPUs in one pod")
}

func (r Request) validateContainer(c Container) error {
	if err := c.Validate(); err != nil || r.Isolation == AnyIsolation {
		return err
	}
	return c.Share.ValidateFor(r.Isolation)
}

// ValidateDevices returns an error if a container would share several slices with others. Each slice has an MPS daemon of its own. A
// process is a client of the one daemon that CUDA_MPS_PIPE_DIRECTORY names, and sees only that daemon's device. Running containers are not
// checked again. Errors wrap a *FieldError.
func (r Request) ValidateDevices() error {
	for _, c := range r.Containers {
		alone := r.Isolation == Exclusive || r.Isolation == AnyIsolation && c.Share.IsWhole()
		if c.VGPUs > 1 && !alone {
			return inContainer(c.Name, Invalid(FieldIsolation, "%d vGPUs can be had as whole devices only, as a process can share one device: "+
				"ask for all SMs of each, or for isolation exclusive", c.VGPUs))
		}
	}
	return nil
}

func atLeastRequest(field string, limit, request PerMille) error {
	if limit < request {
		return Invalid(field, "%s is below the request of %s", limit.Percent(), request.Percent())
	}
	return inRange(field, int64(limit), 1, int64(Whole), "per mille")
}
