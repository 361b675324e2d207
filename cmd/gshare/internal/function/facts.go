package function

import (
	"slices"
	"time"
)

// Facts is what is known about a function at one moment. Each of its many fields is something that a finding depends on.
type Facts struct {
	Name, Namespace string

	SLO        time.Duration
	P99        time.Duration // 0 if there were no requests
	Hit        float64       // fraction of the recent requests that were answered in time; NaN if there were none
	Rate       float64       // recent requests per second
	Unprofiled bool          // the share or RequestsPerSecond is not set
	Profile    string        // name of the GPUProfile that is to measure both; empty if there is none
	Reason     string        // of the condition Ready
	Message    string        // of the condition Ready
	BackOff    string        // message of the condition BackingOff; empty if it is not True
	OverQuota  string        // likewise of the condition QuotaExceeded
	CannotPark string        // likewise of the condition CannotPark
	Conflict   string        // likewise of the condition ScalingConflict

	MinReplicas, MaxReplicas int
	Hot                      int     // replicas that have their whole share
	RequestsPerSecond        float64 // declared throughput of a replica; if shares differ in size, of one with the largest
	Least                    float64 // likewise of one with the smallest; 0 if all replicas have the same share
	Together                 float64 // declared throughput of all Hot replicas; 0 if all replicas have the same share
	Concurrency              int
	KeepShared               string
	Replicas                 []Replica
	Decisions                []Decision // of the last hour, the latest first
	Traffic                  *Traffic   // nil if it is not known
}

// Replica is a pod of a function.
type Replica struct {
	Pod       string `json:"pod"`
	Phase     Phase  `json:"phase"`
	Residency string `json:"residency"`
	Node      string `json:"node,omitempty"`
	Slice     string `json:"slice,omitempty"`
	Share     string `json:"share,omitempty"`
	Waits     string `json:"waits,omitempty"` // what it waits for, or why it fails; empty if it does neither

	Age time.Duration `json:"-"` // since its creation
}

// Phase is what a replica does.
type Phase string

// The phases of a replica.
const (
	PhasePending  Phase = "Pending" // has no node
	PhaseStarting Phase = "Starting"
	PhaseReady    Phase = "Ready"
	PhaseParked   Phase = "Parked"   // has given its GPU memory back, and gets no requests
	PhaseFailing  Phase = "Failing"  // a container has failed, and the kubelet starts it again
	PhaseDraining Phase = "Draining" // answers the requests that it has
	PhaseEnding   Phase = "Ending"
)

// Decision is an event of a function: what the autoscaler decided, or a warning.
type Decision struct {
	Time      time.Time `json:"time"`
	Text      string    `json:"text"`
	Scaled    bool      `json:"scaled"` // the event reports a change of scale
	Up        bool      `json:"up"`     // by a replica more, not one less
	ColdStart bool      `json:"coldStart,omitempty"`
	Count     int       `json:"count"` // how often it was decided

	Ago time.Duration `json:"-"`
}

// Traffic is what the gateways counted for a function while their counters were watched.
type Traffic struct {
	During   time.Duration  // for how long they were watched
	Requests int            // that have ended
	Refusals map[string]int // of these, by reason
	Took     time.Duration  // mean time of a request
	Queued   time.Duration  // the part of Took that was spent waiting for a replica
}

// Scalings returns the decisions of the autoscaler, the latest first.
func (f *Facts) Scalings() []Decision {
	return slices.DeleteFunc(slices.Clone(f.Decisions), func(d Decision) bool { return !d.Scaled })
}
