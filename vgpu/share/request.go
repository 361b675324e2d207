package share

// Isolation is the isolation class of a slice: the mechanism that isolates the shares on it from each other. A slice has one class at a
// time.
type Isolation string

// The isolation classes. AnyIsolation leaves the choice to the packer; Swap cannot be scheduled yet.
const (
	AnyIsolation Isolation = ""
	Exclusive    Isolation = "exclusive"
	MPS          Isolation = "mps"
	Elastic      Isolation = "elastic"
	Swap         Isolation = "swap"
)

// Priority is the priority class of a share on its slice (slo or best-effort); it is not the pod's scheduling priority.
type Priority string

// The priority classes.
const (
	BestEffort Priority = "best-effort"
	SLO        Priority = "slo"
)

// Enforcement is a pod's choice of what happens on a node that cannot enforce its share: the node refuses the pod, or runs it and reports
// it.
type Enforcement string

// Strict refuses such a node; BestEffortEnforcement runs there and is flagged in the enforcement status.
const (
	Strict                Enforcement = "strict"
	BestEffortEnforcement Enforcement = "best-effort"
)

// The kinds of slice that a pod may name; any other value is a MIG profile such as "1g.18gb".
const (
	WholeGPU = "gpu"
	AnyMIG   = "mig"
)

// Terms holds the conditions of a pod for the slices of all its containers: isolation class, priority, GPU models, workload, kind of slice,
// and enforcement.
type Terms struct {
	Isolation   Isolation
	Priority    Priority
	Models      []string // acceptable device models, sorted; empty accepts every model
	Workload    string   // affinity key (Dilu principle 1)
	Slice       string   // WholeGPU, AnyMIG or a MIG profile
	Enforcement Enforcement
}

// Container is the GPU request of one container: equal shares on different devices, one for each of its vGPUs.
type Container struct {
	Name  string
	VGPUs int
	Share Share
}

// Request is everything that one pod requests of the GPUs of a node. It is placed as a whole or not at all.
type Request struct {
	Terms
	Containers []Container
}

// Area returns the guaranteed SM-time of all containers together, in SM per-mille x quota per-mille.
func (r Request) Area() Area {
	var sum Area
	for _, c := range r.Containers {
		sum += Area(c.VGPUs) * c.Share.RequestArea()
	}
	return sum
}
