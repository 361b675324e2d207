package residency

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/gshare-dev/gshare/serving/rules/scaling"
	"github.com/gshare-dev/gshare/serving/rules/scaling/pool"
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

// Source is where a function's data is when its request starts: on the slice, in host memory or in storage.
type Source string

const (
	Resident Source = "resident" // on the slice
	Host     Source = "host"     // in host memory
	Storage  Source = "storage"
)

// Start tells the caller to start a request on a shared slice: evict the listed functions, scrub free memory if Scrub is set, load the
// function, and execute the request. The slice is busy until Finish.
type Start struct {
	Request   Request
	Slice     string
	Source    Source
	Load      time.Duration // expected
	Execution time.Duration // expected
	Evicted   []string      // functions to evict first
	Scrub     bool          // scrub free memory before the load: it may contain another tenant's data (U22)
}

// Decision holds the requests that Dispatch starts and those that it refuses. They are no longer queued.
type Decision struct {
	Starts  []Start
	Refused []Request // cannot meet their deadline: reject them
}

// Dispatch assigns as many waiting requests as possible to idle slices. Call it after Enqueue and after Finish.
//
// The request with the least slack at the present time goes first. If the data of its function is on an idle slice, it runs there.
// Otherwise the function is loaded onto an idle slice, and the functions that were used least recently there are evicted. A running
// request is never interrupted.
func (n *Node) Dispatch(now time.Duration) Decision {
	n.advanceClock(now)
	var d Decision
	if !slices.ContainsFunc(n.slices, func(s *slice) bool { return s.running == nil }) {
		return d
	}
	n.active = slices.DeleteFunc(n.active, func(f *function) bool {
		f.active = f.waiting.len() > 0
		return !f.active
	})
	d.Refused = n.expireRequests()
	for {
		p, ok := n.nextStart()
		if !ok {
			return d
		}
		d.Starts = append(d.Starts, n.startRequest(p))
	}
}

// startRequest starts a function's next request on the candidate's slice: it evicts functions, moves the function's data and marks the
// slice busy.
func (n *Node) startRequest(p candidate) Start {
	f, s := p.function, p.slice
	request := f.waiting.pop()
	start := Start{Request: request.Request, Slice: s.ID, Source: p.source, Load: p.load, Execution: s.executionTime(f)}
	for _, v := range p.victims {
		n.evict(v)
		start.Evicted = append(start.Evicted, v.Name)
	}
	if f.on != s {
		n.unload(f)
		n.host.remove(f)
		start.Scrub = s.add(f)
		f.on = s
	}
	f.running = true
	s.running, s.request, s.started, s.loaded = f, request, n.now, n.now+p.load
	s.until = s.loaded + start.Execution
	return start
}

// Finish records that the request on a slice has ended. Errors are *share.FieldError.
func (n *Node) Finish(now time.Duration, id string) error {
	n.advanceClock(now)
	s := n.findSlice(id)
	if s == nil || s.running == nil {
		return share.Invalid("slice", "nothing runs on %.64q", id)
	}
	f := s.running
	s.meter.Add(s.started, n.now)
	f.meter.Add(s.loaded, n.now)
	n.outcomes.add(n.now, n.policy.Window, s.request.feasible && n.now > s.request.Deadline)
	s.running, s.ended, f.running, f.used = nil, n.now, false, n.now
	if f.terminating {
		n.deleteInstance(f)
	}
	return nil
}

// candidate is an idle slice on which a function's next request could start now, with the cost of doing so: the load time and the
// functions to evict.
type candidate struct {
	function *function
	slice    *slice
	source   Source
	load     time.Duration
	victims  []*function
}

// bestCandidate returns the idle slice on which a function should run next: the slice that holds its data, or the best one to load it to.
// If the slice that holds its data is busy, the function moves only if it can start earlier elsewhere. It returns false if there is none.
func (n *Node) bestCandidate(f *function) (candidate, bool) {
	if f.on != nil && f.on.running == nil {
		return candidate{function: f, slice: f.on, source: Resident}, true
	}
	load, source := n.loadTime(f)
	if f.on != nil && n.now+load >= f.on.until {
		return candidate{}, false
	}
	var best candidate
	for _, s := range n.slices {
		if s.running != nil || s.executionTime(f) == 0 { // U11
			continue
		}
		p := candidate{f, s, source, load, s.victims(f)}
		if best.slice == nil || n.isBetter(&p, &best) {
			best = p
		}
	}
	return best, best.slice != nil
}

// isBetter reports whether candidate a is preferred to b. The criteria, in this order: it meets the deadline; it evicts no function,
// or functions used less recently; its slice is smaller. The paper ignores the deadline here (docs/adr/0018).
func (n *Node) isBetter(a, b *candidate) bool {
	return cmp.Or(
		compareBools(n.isLate(a), n.isLate(b)),
		cmp.Compare(lastUsed(a.victims), lastUsed(b.victims)),
		a.slice.Kind.Compare(b.slice.Kind), // U9
	) < 0
}

// compareBools compares two booleans for sorting; false is less than true.
func compareBools(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// isLate reports whether the function's next request would miss its deadline on the candidate's slice.
func (n *Node) isLate(p *candidate) bool {
	return n.now+p.load+p.slice.executionTime(p.function) > (*p.function.waiting.nextHeap())[0].Deadline
}

// lastUsed returns the time of the last use of the most recently used function to evict, or a negative time if there is none.
func lastUsed(victims []*function) time.Duration {
	if len(victims) == 0 {
		return -1
	}
	return victims[len(victims)-1].used
}

// Action is a kind of change to instances or slices that Node.Review advises.
type Action string

const (
	Promote Action = "promote" // create a hot instance of the function, then call RemovePromoted
	End     Action = "end"     // the instance was idle for ColdAfter and has been deleted
	Grow    Action = "grow"    // add a slice; one that can run the function, if Function is set
	Shrink  Action = "shrink"  // remove the slice
)

// Advice is one change that Node.Review advises, with the function or the slice concerned.
type Advice struct {
	Action   Action
	Function string
	Slice    string
}

// Review checks utilisation, idleness and overload, and returns what the caller should do about them. Call it about once a second; it
// also drops measurements older than the window. Advice is repeated until its reason is gone. The caller carries it out, except for
// End, which reports an instance that Review has already deleted.
func (n *Node) Review(now time.Duration) []Advice {
	n.advanceClock(now)
	var advice []Advice
	for _, f := range n.order {
		if !f.exists {
			continue
		}
		switch n.policy.Next(n.now, n.instance(f)) {
		case scaling.Hot:
			advice = append(advice, Advice{Action: Promote, Function: f.Name})
		case scaling.Cold:
			n.deleteInstance(f)
			advice = append(advice, Advice{Action: End, Function: f.Name})
		}
	}
	return append(advice, n.adviseSliceCount()...)
}

func (n *Node) instance(f *function) *pool.Instance {
	running := n.now
	if f.running {
		running = f.on.loaded
	}
	i := &pool.Instance{
		Residency: scaling.Shared, Since: f.since, LastUsed: f.used,
		Utilisation: n.utilisationWith(&f.meter, running),
		Busy:        f.running || f.waiting.len() > 0,
	}
	if f.terminating || f.on == nil {
		i.Residency = scaling.Warm
	}
	return i
}

// utilisationWith returns the measured utilisation of a slice or a function, including a request that has been running since the given
// time.
func (n *Node) utilisationWith(m *Meter, since time.Duration) share.PerMille {
	running := min(max(0, n.now-since), n.policy.Window)
	return m.Utilisation(n.now, n.policy.Window) + ratio(running, n.policy.Window)
}

// adviseSliceCount advises adding a slice if no slice can run a function that has requests, or if too many requests missed a
// feasible deadline. It advises removing one if utilisation is low and the remaining slices can run every function.
func (n *Node) adviseSliceCount() []Advice {
	for _, f := range n.order {
		if f.exists && !f.runs && n.now-f.used < n.policy.Window {
			return []Advice{{Action: Grow, Function: f.Name}}
		}
	}
	late := n.outcomes.lateRatio(n.now, n.policy.Window)
	if late > n.policy.Misses {
		return []Advice{{Action: Grow}}
	}
	if late > 0 || n.now-n.resized < n.policy.Window || n.meanUtilisation() >= n.policy.Down {
		return nil
	}
	for _, s := range slices.SortedStableFunc(slices.Values(n.slices), func(a, b *slice) int { return cmp.Compare(a.ended, b.ended) }) {
		if s.running == nil && n.isRemovable(s) {
			return []Advice{{Action: Shrink, Slice: s.ID}}
		}
	}
	return nil
}

// meanUtilisation returns the mean utilisation of the shared slices. Load times count as use.
func (n *Node) meanUtilisation() share.PerMille {
	sum := 0
	for _, s := range n.slices {
		running := n.now
		if s.running != nil {
			running = s.started
		}
		sum += int(n.utilisationWith(&s.meter, running))
	}
	return share.PerMille(sum / max(len(n.slices), 1))
}

// isRemovable reports whether every function with an instance can run on some slice other than the given one.
func (n *Node) isRemovable(s *slice) bool {
	for _, f := range n.order {
		runs := func(other *slice) bool { return other != s && other.executionTime(f) > 0 }
		if f.exists && !slices.ContainsFunc(n.slices, runs) {
			return false
		}
	}
	return true
}
