package packing

// Refusal says why a share was not admitted. Later values got further through the checks, so over the slices of a node the
// largest one is the most telling.
type Refusal int

// The refusals, in the order of the checks. Those up to NeverFits hold on an empty node too: evicting pods cannot help.
const (
	Admitted Refusal = iota
	NoSlices
	WrongKind
	WrongModel
	Unhealthy
	NotEnforceable
	TooLarge
	TooFewDevices
	OtherClass
	OtherPackingModel
	OtherTenant
	SliceFull
	NoMemory
	OverLimits
	NoRoom
	NoRoomTogether
)

// NeverFits says that the refusal does not depend on what runs on the node.
func (r Refusal) NeverFits() bool { return r >= NoSlices && r <= TooFewDevices }

var refusalText = [...]string{
	Admitted:          "admitted",
	NoSlices:          "no gshare GPUs",
	WrongKind:         "no slice of the requested kind",
	WrongModel:        "no GPU of an accepted model",
	Unhealthy:         "matching GPUs are unhealthy",
	NotEnforceable:    "isolation class cannot be enforced",
	TooLarge:          "share larger than a slice",
	TooFewDevices:     "fewer GPUs than requested vGPUs",
	OtherClass:        "GPUs serve another isolation class",
	OtherPackingModel: "GPUs are packed by another model",
	OtherTenant:       "GPUs are shared by another namespace",
	SliceFull:         "GPUs hold their maximum number of shares",
	NoMemory:          "insufficient GPU memory",
	OverLimits:        "limits would exceed the oversubscription bound",
	NoRoom:            "insufficient GPU SM-time",
	NoRoomTogether:    "containers of the pod do not fit together",
}

// String is the reason as it appears in events; it never names a pod or a slice, so that equal reasons add up over nodes.
func (r Refusal) String() string { return refusalText[r] }
