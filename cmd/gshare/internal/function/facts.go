package function

import (
	"slices"
	"time"
)

// Facts is what is known of a function, as of one moment. It has many fields: one for each thing that a finding depends on.
type Facts struct {
	Name, Namespace string

	SLO        time.Duration
	P99        time.Duration // 0 if there were no requests
	Hit        float64       // part of the requests of late that were answered in time; NaN without any
	Rate       float64       // requests per second of late
	Unprofiled bool          // the share or RequestsPerSecond is not set
	Profile    string        // name of the GPUProfile that is to find both; empty without one
	Reason     string        // of the condition Ready
	Message    string        // of the condition Ready
	BackOff    string        // message of the condition BackingOff; empty if it is not True
	OverQuota  string        // of the condition QuotaExceeded, likewise
	CannotPark string        // of the condition CannotPark, likewise
	Conflict   string        // of the condition ScalingConflict, likewise

	MinReplicas, MaxReplicas int
	Hot                      int     // replicas that have their whole share
	RequestsPerSecond        float64 // that one replica is said to answer; of shares of several sizes, the largest
	Least                    float64 // likewise, the smallest; 0 if all replicas have the same share
	Together                 float64 // that the Hot replicas are said to answer together; 0 if all replicas have the same share
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
	Waits     string `json:"waits,omitempty"` // for what, or why it fails; empty if it is ready

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

// Decision is what the autoscaler has decided, from an event.
type Decision struct {
	Time      time.Time `json:"time"`
	Text      string    `json:"text"`
	Scaled    bool      `json:"scaled"` // else it is a warning
	Up        bool      `json:"up"`     // a replica more
	ColdStart bool      `json:"coldStart,omitempty"`
	Count     int       `json:"count"` // how often it was decided

	Ago time.Duration `json:"-"`
}

// Traffic is what the gateways have counted of a function during a time.
type Traffic struct {
	During   time.Duration  // for how long they were watched
	Requests int            // that have ended
	Refusals map[string]int // of these, by reason
	Took     time.Duration  // of a request, on the average
	Queued   time.Duration  // of that, waiting for a replica
}

// missed reports whether too many requests are late: fewer than 99 % are in time.

// Scalings returns the decisions of the autoscaler, the latest first.
func (f *Facts) Scalings() []Decision {
	return slices.DeleteFunc(slices.Clone(f.Decisions), func(d Decision) bool { return !d.Scaled })
}
