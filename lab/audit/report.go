package audit

import (
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Options are the rules of the cluster that no API object contains.
type Options struct {
	GammaPercent int64 // bound of the sum of limits on a slice, percent of the slice; 0 is 150
	MixTenants   bool  // pods of different namespaces may share a slice
}

const defaultGamma = 150

// limitBound is γ as an area.
func (o Options) limitBound() share.Area {
	if o.GammaPercent == 0 {
		o.GammaPercent = defaultGamma
	}
	return share.Area(o.GammaPercent) * share.WholeArea / 100
}

// Report is the slices of a cluster and the violated rules. It is not safe for concurrent use.
type Report struct {
	Slices     []SliceState // all of them, by node and then by index
	Violations []Violation  // pods first, in the order given, then nodes by name
	Orphans    []Orphan
	GPUsUsed   int        // devices with at least one share
	GPUs       int        // devices of all inventories
	Requested  share.Area // guaranteed to all shares that are on a known slice
	final      *final
}

// SliceState is one slice and its shares.
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

// PlacedShare is one vGPU of a container.
type PlacedShare struct {
	Pod       string // namespace/name
	Container string
	VGPU      int // its number inside the container
	Share     share.Share
}

// Violation is a broken rule. Slice and Pod are empty if the rule concerns neither.
type Violation struct {
	Kind  Kind
	Node  string
	Slice string
	Pod   string // namespace/name
	Text  string
}

// Orphan is a share on a slice, or a pod on a node, that no longer exists. It breaks no rule, because devices can vanish.
type Orphan struct {
	Node  string
	Slice string // empty if the node itself is gone
	Pod   string // namespace/name
	Text  string
}
