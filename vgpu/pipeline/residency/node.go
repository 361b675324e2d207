package residency

import (
	"cmp"
	"time"

	"github.com/gshare-dev/gshare/vgpu/scaling"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Node is the slices of one node that functions share in turn, the data in host memory, and the requests that wait. Time
// counts from any fixed point and never falls: an earlier time is taken as the last one. It is not safe for concurrent use.
//
// Each function has at most one instance here (FF-45), at most one function runs on a slice at any moment (FF-46), and the
// data of those that lie on a slice never exceed its memory.
type Node struct {
	policy    Policy
	now       time.Duration
	functions map[string]*function
	order     []*function // as registered
	active    []*function // those with requests that wait, or that had some at the last Dispatch
	slices    []*slice    // as added
	host      host
	resized   time.Duration // when the number of slices was changed last
	outcomes  outcomes      // since then
}

// function is a function and its instance here, if it has one.
type function struct {
	Function
	index   int
	runs    bool          // on one of the shared slices
	fastest time.Duration // of one request on those; where none runs it, on any kind
	exists  bool          // there is an instance
	on      *slice
	running bool
	leaving bool // the instance is hot elsewhere, and ends here when it has finished
	waiting queue
	active  bool          // on the list of the node
	since   time.Duration // that the instance exists
	used    time.Duration // when it was given a request, or ran, last
	meter   Meter
}

// New makes a node without slices. Errors are *share.FieldError.
func New(p Policy) (*Node, error) {
	p = p.withDefaults()
	if err := p.validate(); err != nil {
		return nil, err
	}
	return &Node{policy: p, functions: map[string]*function{}, host: host{limit: p.Host}}, nil
}

// Register makes a function known. It has no instance until its first request.
func (n *Node) Register(f Function) error {
	if err := f.validate(); err != nil {
		return err
	}
	if n.functions[f.Name] != nil {
		return share.Invalid("name", "%.64q is registered already", f.Name)
	}
	known := &function{Function: f, index: len(n.order)}
	n.functions[f.Name], n.order = known, append(n.order, known)
	n.measure(known)
	return nil
}

func (n *Node) advance(now time.Duration) { n.now = max(n.now, min(now, maxInstant)) }

// end deletes the instance of a function: its data are nowhere on the node (FF-43).
func (n *Node) end(f *function) {
	n.drop(f)
	n.host.take(f)
	f.exists, f.leaving, f.meter = false, false, Meter{}
}

// byUse orders functions from the least recently used.
func byUse(a, b *function) int {
	return cmp.Or(cmp.Compare(a.used, b.used), cmp.Compare(a.index, b.index))
}

// Residency says where the data of a function are: on a slice, in host memory, or not on the node. A function that waits
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

// Waiting is how many requests of a function wait.
func (n *Node) Waiting(name string) int {
	if f := n.functions[name]; f != nil {
		return f.waiting.len()
	}
	return 0
}
