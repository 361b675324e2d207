package audit

import (
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Options holds those settings of the scheduler that no API object contains.
type Options struct {
	GammaPercent int64 // bound of the sum of limits on a slice, in percent of the slice; 0 means 150
	MixTenants   bool  // pods of different namespaces may share a slice
}

const defaultGamma = 150

// limitBound returns γ, the bound of the sum of limits on a slice, as an area (SMs x quota).
func (o Options) limitBound() share.Area {
	if o.GammaPercent == 0 {
		o.GammaPercent = defaultGamma
	}
	return share.Area(o.GammaPercent) * share.WholeArea / 100
}

// Report is the result of Check: the slices of a cluster and the violated rules. It is not safe for concurrent use.
type Report struct {
	Slices     []SliceState // all of them, by node and then by index
	Violations []Violation  // pods first, in the order given, then nodes by name
	Orphans    []Orphan
	GPUsUsed   int        // devices with at least one share
	GPUs       int        // devices of all inventories
	Requested  share.Area // guaranteed to all shares on known slices
	final      *finalState
}

// SliceState describes one slice and the shares on it.
type SliceState struct {
	Node      string
	Index     int // in the inventory of the node
	ID        string
	Device    string // UUID of the GPU
	Model     string // of the device
	Profile   string // of MIG; empty for a whole GPU
	Healthy   bool
	Packing   kube.FitModel   // of the first share; empty on an empty slice
	Class     share.Isolation // of the first share; empty on an empty slice
	Shares    []PlacedShare
	Requested share.Area
	Memory    share.Bytes // promised to the shares
	Capacity  share.Bytes // device memory of the slice
}

// PlacedShare is the share of one vGPU of a container.
type PlacedShare struct {
	Pod       string // namespace/name
	Container string
	VGPU      int // its number inside the container
	Share     share.Share
}

// Violation is a violated rule. Slice and Pod are empty if the rule concerns neither.
type Violation struct {
	Kind  Kind
	Node  string
	Slice string
	Pod   string // namespace/name
	Text  string
}

// Orphan is a share on a slice, or a pod on a node, that no longer exists. It violates no rule, because devices can vanish.
type Orphan struct {
	Node  string
	Slice string // empty if the node itself is gone
	Pod   string // namespace/name
	Text  string
}

// Kind names the rule that a Violation violates.
type Kind string

// The rules about one pod and its placement.
const (
	Unplaced         Kind = "unplaced"          // bound and asking for GPUs, but without a placement
	Unbound          Kind = "unbound"           // a placement on a pod that is not bound
	BadRequest       Kind = "bad-request"       // bound, but what it asks cannot be read
	BadPlacement     Kind = "bad-placement"     // the placement cannot be read
	Foreign          Kind = "foreign"           // the placement is for another node or another UID
	MissingContainer Kind = "missing-container" // a container asks, and its placement is missing
	ExtraContainer   Kind = "extra-container"   // a container is placed, and asks for nothing
	WrongCount       Kind = "wrong-count"       // more or fewer vGPUs than asked for
	WrongShare       Kind = "wrong-share"       // share or priority are not those asked for
	WrongClass       Kind = "wrong-class"       // the isolation class is not one that the pod accepts
	WrongDevice      Kind = "wrong-device"      // the model of device or the kind of slice is not accepted
	NotEnforceable   Kind = "not-enforceable"   // the node does not offer the class on this slice
	SameDevice       Kind = "same-device"       // two vGPUs of one container on one device
)

// The rules about one slice.
const (
	Memory       Kind = "memory"        // promised memory above that of the slice
	Limits       Kind = "limits"        // limits above γ
	TooMany      Kind = "too-many"      // more shares than the slice takes
	MixedTenants Kind = "mixed-tenants" // pods of several namespaces
	MixedClasses Kind = "mixed-classes" // several isolation classes
	MixedModels  Kind = "mixed-models"  // several packing models
	NotExclusive Kind = "not-exclusive" // an exclusive share with neighbours
	NoTable      Kind = "no-table"      // slots: no sound table of turns
	NoPacking    Kind = "no-packing"    // rectangles: no sound packing
)

// The rules about one node.
const (
	BadInventory Kind = "bad-inventory" // the inventory cannot be read
	Resources    Kind = "resources"     // more of a resource is requested than can be allocated
	NotApart     Kind = "not-apart"     // a device holds an anti-affinity key of a namespace twice
	TooManyPods  Kind = "too-many-pods" // more pods than the node takes
	Affinity     Kind = "affinity"      // node selector or required node affinity not met
	Tainted      Kind = "tainted"       // a taint that the pod does not tolerate
)
