package kube

import (
	"encoding/json"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// Bounds of an inventory. Sixteen GPUs with seven MIG instances each make 112 slices.
const (
	MaxSlices         = 256
	MaxInventoryBytes = 128 << 10
)

// Defaults for what the inventory of a node omits of a slice.
const (
	DefaultReserve   = share.PerMille(50)
	DefaultMaxShares = 16
)

// Inventory lists the slices that a node offers for shares, as its agent publishes them in the annotation gshare.dev/inventory.
type Inventory struct {
	Rules  *Rules // as the agent publishes them; nil if it is of a version that does not, see RulesOrDefault
	Slices []Slice
}

// Rules are the settings of a node by which its agent admits shares and divides time, and by which others place shares there.
type Rules struct {
	GammaPercent int64           `json:"gammaPercent"` // bound on the sum of SM limit x quota limit over a slice, in percent of the slice
	MixTenants   bool            `json:"mixTenants"`   // whether pods of several namespaces may share a slice
	Window       metav1.Duration `json:"window"`       // the period in which slot tables repeat and quotas are accounted
}

// DefaultWindow is the period of slot tables and quotas on a node whose configuration sets none.
const DefaultWindow = 100 * time.Millisecond

// DefaultRules returns the rules of a node whose configuration sets none.
func DefaultRules() Rules {
	return Rules{GammaPercent: 150, Window: metav1.Duration{Duration: DefaultWindow}}
}

// RulesOrDefault returns the node's rules. Agents of the versions that do not publish any have the defaults unless their configuration says
// otherwise; where it allows less, the agent itself refuses what does not fit.
func (inv Inventory) RulesOrDefault() Rules {
	if inv.Rules == nil {
		return DefaultRules()
	}
	return *inv.Rules
}

// Slice is a whole GPU or one MIG instance in a node's inventory: the isolation domain on which shares are placed. It has so many fields because
// schedulers of every version read it, each the fields that it knows.
type Slice struct {
	ID        string            `json:"id"`                 // UUID of the GPU or of the MIG instance
	Device    string            `json:"device"`             // UUID of the GPU; equals ID for a whole GPU
	Model     string            `json:"model"`              // model of the device, as pods name it: A100
	Profile   string            `json:"profile,omitempty"`  // MIG profile; empty for a whole GPU
	Room      uint8             `json:"room,omitzero"`      // for a MIG instance made on demand: bit mask of the memory slices that it occupies
	SMs       int               `json:"sms"`                // streaming multiprocessors of the slice
	MemoryMiB int64             `json:"memoryMiB"`          // device memory for all shares together
	Classes   []share.Isolation `json:"classes,omitempty"`  // classes that the node can enforce here; only one if the slice is pinned to it
	Healthy   bool              `json:"healthy"`            // accepts new pods; false if omitted
	Reason    Reason            `json:"reason,omitempty"`   // why it accepts no new pods; may be empty
	Reserve   share.PerMille    `json:"reserve,omitzero"`   // part of the window lost to switching; 0 is DefaultReserve
	MaxShares int               `json:"maxShares,omitzero"` // number of device IDs; 0 is DefaultMaxShares
	NUMA      *int              `json:"numa,omitempty"`     // NUMA node of a whole GPU, as the kernel numbers it; nil if not known
	NVLink    int               `json:"nvlink,omitzero"`    // number of a set of whole GPUs, every two of them joined by NVLink; 0: none, or not known
	Store     bool              `json:"store,omitzero"`     // whether pods of a namespace can share weights here, in the node's model store
	Swap      *Swap             `json:"swap,omitempty"`     // bounds for shares of class swap; nil if the slice does not take that class
}

// Swap bounds the memory of shares of class swap, which hold the memory of their slice in turn: what they may have outside the slice, and what they
// keep on it while they wait.
type Swap struct {
	HostMiB int64 `json:"hostMiB"` // host memory for what they give back between turns, beyond the memory of the slice
	KeptMiB int64 `json:"keptMiB"` // the most device memory that each keeps while another has its turn
}

// Reason is a single word for why a slice accepts no new pods. Schedulers decide by Healthy alone; a reason that they do not know is only displayed.
type Reason string

// The reasons.
const (
	// ReasonFault says that the device has failed or the driver no longer finds it.
	//
	//	kind: taint
	//	name: gshare.dev/fault
	//	object: device of a ResourceSlice
	//	written by: node agent
	//	values: effect NoSchedule
	ReasonFault Reason = "fault"

	// ReasonUsed says that processes without a share use the device.
	//
	//	kind: taint
	//	name: gshare.dev/used
	//	object: device of a ResourceSlice
	//	written by: node agent
	//	values: effect NoSchedule
	ReasonUsed Reason = "used"

	// ReasonCordoned says that the agent's configuration cordons or drains the device.
	//
	//	kind: taint
	//	name: gshare.dev/cordoned
	//	object: device of a ResourceSlice
	//	written by: node agent
	//	values: effect NoSchedule
	ReasonCordoned Reason = "cordoned"

	// ReasonClosing says that the agent is shutting down. This reason and those after it close only the slices of the inventory annotation: a
	// device in a ResourceSlice has no taint for them.
	ReasonClosing Reason = "closing"

	// ReasonUnwatched says that the kubelet is not connected to the agent's device plugin because one of them is down or starting.
	ReasonUnwatched Reason = "unwatched"

	// ReasonUnsaved says that the agent cannot save on its node what it publishes, such as for lack of disk space.
	ReasonUnsaved Reason = "unsaved"
)

type inventoryText struct {
	Version int     `json:"v"`
	Rules   *Rules  `json:"rules,omitempty"`
	Slices  []Slice `json:"slices"`
}

// DecodeInventory parses the text of an inventory annotation, refuses unknown or repeated fields, and fills in the defaults. Every error
// wraps ErrMalformed.
func DecodeInventory(text string) (Inventory, error) {
	if len(text) > MaxInventoryBytes {
		return Inventory{}, malformedError("inventory", "%d bytes are more than %d", len(text), MaxInventoryBytes)
	}
	var read inventoryText
	if err := decodeStrict(text, &read); err != nil {
		return Inventory{}, malformedError("inventory", "%v", err)
	}
	if read.Version != formatVersion {
		return Inventory{}, malformedError("inventory", "version %d is not %d", read.Version, formatVersion)
	}
	inv := Inventory{Rules: read.Rules, Slices: withDefaults(read.Slices)}
	if err := inv.Validate(); err != nil {
		return Inventory{}, err
	}
	return inv, nil
}

// EncodeInventory returns the annotation text of a valid inventory. DecodeInventory returns an equal inventory, with defaults filled in.
// Every error wraps ErrMalformed.
func EncodeInventory(inv Inventory) (string, error) {
	if err := (Inventory{Rules: inv.Rules, Slices: withDefaults(inv.Slices)}).Validate(); err != nil {
		return "", err
	}
	// A valid inventory stays below the bound on bytes, which TestLargestInventory verifies.
	text, err := json.Marshal(inventoryText{Version: formatVersion, Rules: inv.Rules, Slices: append([]Slice{}, inv.Slices...)})
	if err != nil {
		return "", malformedError("inventory", "%v", err)
	}
	return string(text), nil
}

// InventoryOf decodes the inventory annotation of a node; present is false on a node without gshare. Every error wraps ErrMalformed; no share may be
// placed on such a node.
func InventoryOf(node *v1.Node) (inv Inventory, present bool, err error) {
	text, present := node.Annotations[AnnotationInventory]
	if !present {
		return Inventory{}, false, nil
	}
	inv, err = DecodeInventory(text)
	return inv, true, err
}

// withDefaults returns a copy of the slices in which an omitted reserve and an omitted maximum of shares have their defaults. Empty lists
// become nil, so that equal inventories compare equal.
func withDefaults(in []Slice) []Slice {
	out := append([]Slice(nil), in...)
	for i := range out {
		s := &out[i]
		if s.Reserve == 0 {
			s.Reserve = DefaultReserve
		}
		if s.MaxShares == 0 {
			s.MaxShares = DefaultMaxShares
		}
		if len(s.Classes) == 0 {
			s.Classes = nil
		}
	}
	return out
}
