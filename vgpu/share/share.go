// Package share holds the quantities of GPU sharing: what one vGPU requests of a slice, in integers whose units are types.
package share

import "fmt"

// PerMille is a fraction, in thousandths, of a slice's SMs or of a time window.
type PerMille int32

// Whole is the fraction for all SMs of a slice, or for the whole of every window.
const Whole PerMille = 1000

// Bytes is an amount of device memory.
type Bytes int64

// MiB is the unit in which users state device memory.
const MiB Bytes = 1 << 20

// Area is an amount of SM-time: SM per-mille times quota per-mille. FaST-GShare calls it second-cores.
type Area int64

// WholeArea is the SM-time of one whole slice: all SMs for the whole of every window.
const WholeArea Area = Area(Whole) * Area(Whole)

// Share is what one vGPU requests of one slice.
//
// The requests are guaranteed. The share may use more, up to its limits, while other shares leave it idle. FaST-GShare has shares with SMRequest =
// SMLimit, Dilu shares with QuotaRequest = QuotaLimit = 1000.
type Share struct {
	SMRequest    PerMille
	SMLimit      PerMille
	QuotaRequest PerMille
	QuotaLimit   PerMille
	Memory       Bytes
}

// RequestArea returns the share's guaranteed SM-time.
func (s Share) RequestArea() Area { return area(s.SMRequest, s.QuotaRequest) }

// LimitArea returns the share's SM-time at its limits. γ bounds the sum of these areas over a slice.
func (s Share) LimitArea() Area { return area(s.SMLimit, s.QuotaLimit) }

// IsWhole reports whether the share requests all SMs of a slice for all of the time.
func (s Share) IsWhole() bool { return s.SMRequest == Whole && s.QuotaRequest == Whole }

func area(sm, quota PerMille) Area { return Area(sm) * Area(quota) }

// String returns the share in percent and MiB, for events and logs: "24% SM x 40% time, 8192 MiB".
func (s Share) String() string {
	return fmt.Sprintf("%s SM x %s time, %d MiB", formatRange(s.SMRequest, s.SMLimit), formatRange(s.QuotaRequest, s.QuotaLimit), s.Memory/MiB)
}

func formatRange(request, limit PerMille) string {
	if request == limit {
		return request.Percent()
	}
	return request.Percent() + "-" + limit.Percent()
}

// Percent formats the fraction in percent, with one decimal only if it is needed: "40%", "12.5%".
func (p PerMille) Percent() string {
	if p%10 == 0 {
		return fmt.Sprintf("%d%%", p/10)
	}
	return fmt.Sprintf("%d.%d%%", p/10, p%10)
}

// Isolation is the isolation class of a slice: the mechanism that isolates the shares on it from each other. A slice has one class at a
// time.
type Isolation string

// The isolation classes. AnyIsolation leaves the choice to the packer, which never chooses Swap, the class in which shares hold the memory of the
// slice in turn.
const (
	AnyIsolation Isolation = ""
	Exclusive    Isolation = "exclusive"
	MPS          Isolation = "mps"
	Elastic      Isolation = "elastic"
	Swap         Isolation = "swap"
)

// Priority is the priority class of a share on its slice (slo or best-effort). It has nothing to do with the scheduling priority of the pod.
type Priority string

// The priority classes.
const (
	BestEffort Priority = "best-effort"
	SLO        Priority = "slo"
)

// Enforcement is a pod's choice of what happens on a node that cannot enforce its share: the node refuses the pod, or runs it and reports what it
// does not enforce.
type Enforcement string

// With Strict, such a node refuses the pod; with BestEffortEnforcement, it runs the pod and flags it in the enforcement status.
const (
	Strict                Enforcement = "strict"
	BestEffortEnforcement Enforcement = "best-effort"
)

// Packing is a pod's preference for full or for empty devices.
type Packing string

// The preferences. Without one, the profile of the scheduler decides.
const (
	AnyPacking Packing = ""
	Binpack    Packing = "binpack"
	Spread     Packing = "spread"
)

// The kinds of slice that a pod may name; any other value is a MIG profile such as "1g.18gb".
const (
	WholeGPU = "gpu"
	AnyMIG   = "mig"
)

// Terms holds the conditions that a pod sets for the slices of all its containers: isolation class, priority, GPU models, workload, kind of slice,
// enforcement, the weights that each slice is to hold, and which devices the pod prefers or keeps away from.
type Terms struct {
	Isolation   Isolation
	Priority    Priority
	Models      []string // acceptable device models, sorted; empty accepts every model
	Workload    string   // affinity key (Dilu principle 1)
	Slice       string   // WholeGPU, AnyMIG or a MIG profile, for containers that name none of their own
	Enforcement Enforcement
	Weights     []Weights // sorted by digest; in addition to the memory of the shares, which is private
	Packing     Packing

	// AntiAffinity keeps the shares away from devices that hold a share of the same namespace with the same key; if empty, from none.
	AntiAffinity string
}

// Container is the GPU request of one container: equal shares on different devices, one for each of its vGPUs.
type Container struct {
	Name  string
	VGPUs int
	Share Share
	Slice string // WholeGPU, AnyMIG or a MIG profile; empty means the pod's
}

// Request is everything that one pod requests of the GPUs of a node. It is placed as a whole or not at all.
type Request struct {
	Terms
	Containers []Container
}

// TermsOf returns the conditions for the slices of the container with index c: the pod's, with the container's own kind of slice if it names one.
func (r Request) TermsOf(c int) Terms {
	t := r.Terms
	if own := r.Containers[c].Slice; own != "" {
		t.Slice = own
	}
	return t
}

// Area returns the guaranteed SM-time of all containers together, in SM per-mille x quota per-mille.
func (r Request) Area() Area {
	var sum Area
	for _, c := range r.Containers {
		sum += Area(c.VGPUs) * c.Share.RequestArea()
	}
	return sum
}
