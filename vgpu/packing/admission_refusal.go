package packing

// Refusal is the reason why a share was not admitted. The constants are in the order of the checks, so the largest refusal over the slices
// of a node is the most informative one.
type Refusal int

// The refusals in the order of the checks. Those from NoSlices to TooFewDevices hold on an empty node too.
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
	NoSMTime
	NoJointPlacement
)

// NeverFits reports whether the refusal is independent of what runs on the node, so that evicting pods does not help.
func (r Refusal) NeverFits() bool { return r >= NoSlices && r <= TooFewDevices }

// refusalText holds the text of every refusal as scheduling events show it.
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
	NoSMTime:          "insufficient GPU SM-time",
	NoJointPlacement:  "containers of the pod do not fit together",
}

// String returns the reason as text for a scheduling event. It names neither pod nor slice, so that kube-scheduler can count nodes with
// equal reasons.
func (r Refusal) String() string { return refusalText[r] }
