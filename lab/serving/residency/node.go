package residency

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/gshare-dev/gshare/serving/rules/scaling"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Node decides which functions are resident on the shared slices of one node: it manages the slices, the data in host memory and the waiting
// requests. It has many methods because one decision depends on all three. Times are on any monotonic clock; a time before the latest one
// counts as the latest one. It is not safe for concurrent use.
//
// Each function has at most one instance here, at most one function runs on a slice at a time, and the data of the functions on a slice never
// exceeds its memory.
//
// A simulator calls Enqueue, Dispatch and Finish, and carries out what each Start says.
type Node struct {
	policy    Policy
	now       time.Duration
	functions map[string]*function
	order     []*function // in the order of registration
	active    []*function // with waiting requests, now or at the last Dispatch
	slices    []*slice    // in the order in which they were added
	host      hostCache
	resized   time.Duration    // when the number of slices last changed
	outcomes  deadlineOutcomes // since resized
}

// function is a registered function with the state of its instance on this node, of which there is at most one.
type function struct {
	Function
	index       int           // in Node.order
	runs        bool          // whether one of the shared slices can run it
	fastest     time.Duration // time of one request on the fastest shared slice that runs it, or on the fastest kind if none does
	exists      bool          // whether there is an instance
	on          *slice        // where it is resident, or nil
	running     bool
	terminating bool // promoted; the instance ends when the running request does
	waiting     requestQueue
	active      bool          // whether it is in Node.active
	since       time.Duration // when the instance was created
	used        time.Duration // when it last got or finished a request
	meter       Meter
}

// New returns a node without slices. Errors are *share.FieldError.
func New(p Policy) (*Node, error) {
	p = p.withDefaults()
	if err := p.validate(); err != nil {
		return nil, err
	}
	return &Node{policy: p, functions: map[string]*function{}, host: hostCache{limit: p.Host}}, nil
}

// Register adds a function, without an instance: its first request creates one. Errors are *share.FieldError.
func (n *Node) Register(f Function) error {
	if err := f.validate(); err != nil {
		return err
	}
	if n.functions[f.Name] != nil {
		return share.Invalid("name", "%.64q is registered already", f.Name)
	}
	known := &function{Function: f, index: len(n.order)}
	n.functions[f.Name], n.order = known, append(n.order, known)
	n.updateFastest(known)
	return nil
}

func (n *Node) advanceClock(now time.Duration) { n.now = max(n.now, min(now, maxInstant)) }

// deleteInstance deletes the instance of a function, and its data from the slice and from host memory.
func (n *Node) deleteInstance(f *function) {
	n.unload(f)
	n.host.remove(f)
	f.exists, f.terminating, f.meter = false, false, Meter{}
}

// compareLastUse orders functions from the least to the most recently used.
func compareLastUse(a, b *function) int {
	return cmp.Or(cmp.Compare(a.used, b.used), cmp.Compare(a.index, b.index))
}

// Residency returns where the data of a function is: Shared if on a slice, Warm if in host memory, otherwise Cold. A function that waits
// for its first load is Cold.
func (n *Node) Residency(name string) scaling.Residency {
	f := n.functions[name]
	switch {
	case f == nil:
		return scaling.Cold
	case f.on != nil:
		return scaling.Shared
	case n.host.has(f):
		return scaling.Warm
	}
	return scaling.Cold
}

// Waiting returns the number of waiting requests of a function.
func (n *Node) Waiting(name string) int {
	if f := n.functions[name]; f != nil {
		return f.waiting.len()
	}
	return 0
}

// RemovePromoted ends the shared instance of a function that now has an instance with its own slices. A running request still
// finishes. It returns the waiting requests, which the other instance is to serve.
func (n *Node) RemovePromoted(now time.Duration, name string) []Request {
	n.advanceClock(now)
	f := n.functions[name]
	if f == nil || !f.exists {
		return nil
	}
	var left []Request
	for f.waiting.len() > 0 {
		left = append(left, f.waiting.pop().Request)
	}
	if f.terminating = f.running; !f.running {
		n.deleteInstance(f)
	}
	return left
}

// AddDemoted adds the instance of a function that has given up its own slices. It is Warm: its data stays in host memory until its next
// request. It changes nothing if the function already has a shared instance.
func (n *Node) AddDemoted(now time.Duration, name string) {
	n.advanceClock(now)
	if f := n.functions[name]; f != nil && !f.exists {
		f.exists, f.since, f.used = true, n.now, n.now
		n.host.add(f)
	}
}

// maxTime is the longest valid duration in a Function or a Policy.
const maxTime = time.Hour

// Function describes a function whose instance takes turns with other functions on shared slices. Here it always runs as a whole
// on one slice; pipelines have slices of their own.
type Function struct {
	Name     string
	Tenant   string                   // memory is scrubbed between tenants (U22)
	Memory   share.Bytes              // on the slice, and in host memory
	Times    map[string]time.Duration // of one request, by name of each kind on which it can run
	LoadWarm time.Duration            // from host memory onto a slice
	LoadCold time.Duration            // from storage
}

func (f *Function) validate() error {
	switch {
	case f.Name == "":
		return share.Invalid("name", "is empty")
	case f.Memory < 1 || f.Memory > share.MaxMemory:
		return share.Invalid("memory", "%d of %.64q is outside 1 to %d bytes", f.Memory, f.Name, share.MaxMemory)
	case f.LoadWarm < 0 || f.LoadWarm > maxTime:
		return share.Invalid("loadWarm", "%v of %.64q is outside 0 to %v", f.LoadWarm, f.Name, maxTime)
	case f.LoadCold < f.LoadWarm || f.LoadCold > maxTime:
		return share.Invalid("loadCold", "%v of %.64q is outside loadWarm, %v, to %v", f.LoadCold, f.Name, f.LoadWarm, maxTime)
	case len(f.Times) == 0:
		return share.Invalid("times", "%.64q was measured on no kind of slice", f.Name)
	}
	for _, kind := range slices.Sorted(maps.Keys(f.Times)) {
		if t := f.Times[kind]; t <= 0 || t > maxTime {
			return share.Invalid("times", "%v of %.64q on %.64q is not above 0 and at most %v", t, f.Name, kind, maxTime)
		}
	}
	return nil
}
