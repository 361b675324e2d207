package audit

// Kind names the rule that a violation breaks.
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
	TooManyPods  Kind = "too-many-pods" // more pods than the node takes
	Affinity     Kind = "affinity"      // node selector or required node affinity not met
	Tainted      Kind = "tainted"       // a taint that the pod does not tolerate
)
