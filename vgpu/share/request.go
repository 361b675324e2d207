package share

// Isolation is the class of a slice: the way in which the shares on it are isolated from each other. A slice has one class at a
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

// Priority is the priority class of a share on its slice; it is not the pod's scheduling priority.
type Priority string

// The priority classes.
const (
	BestEffort Priority = "best-effort"
	SLO        Priority = "slo"
)

// Enforcement is the policy for a node that cannot enforce a share.
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

// Terms are the conditions that a pod states for all of its containers.
type Terms struct {
	Isolation   Isolation
	Priority    Priority
	Models      []string // acceptable device models, sorted; empty accepts every model
	Workload    string   // affinity key (Dilu principle 1)
	Slice       string   // WholeGPU, AnyMIG or a MIG profile
	Enforcement Enforcement
}

// Container is the request of one container: VGPUs equal shares on different devices.
type Container struct {
	Name  string
	VGPUs int
	Share Share
}

// Request is all that one pod requests of the GPUs of a node. It is placed as a whole or not at all.
type Request struct {
	Terms
	Containers []Container
}

// Area returns the guaranteed SM-time of the whole request.
func (r Request) Area() Area {
	var sum Area
	for _, c := range r.Containers {
		sum += Area(c.VGPUs) * c.Share.RequestArea()
	}
	return sum
}
