// Package ledger remembers which placements this scheduler process has promised until the API server shows them.
package ledger

import (
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gshare-dev/gshare/vgpu/kube"
)

// Ledger is shared by all profiles of a process, since they book the same GPUs. An entry lives from Reserve until the pod is
// gone; a pod's annotation says the same once it is bound, so a restart loses nothing.
type Ledger struct {
	mu      sync.RWMutex // guards the maps below
	byUID   map[types.UID]entry
	onNodes map[string]map[types.UID]struct{}
}

// Promise is a placement, and namespace, name and workload of its pod.
type Promise struct {
	kube.Placement
	Tenant   string
	Name     string
	Workload string
}

type entry struct {
	Promise
	cycle Cycle
}

// Cycle names one scheduling attempt, so that a late Unreserve cannot free what a later attempt has reserved. Attempts are
// told apart by the pointer, which is why the type is not empty.
type Cycle *struct{ _ byte }

// NewCycle names a new attempt.
func NewCycle() Cycle { return Cycle(&struct{ _ byte }{}) }

// New gives an empty ledger.
func New() *Ledger {
	return &Ledger{byUID: map[types.UID]entry{}, onNodes: map[string]map[types.UID]struct{}{}}
}

// Reserve records the placement for this attempt; it replaces whatever the pod had.
func (l *Ledger) Reserve(p Promise, c Cycle) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.remove(p.UID)
	l.byUID[p.UID] = entry{Promise: p, cycle: c}
	if l.onNodes[p.Node] == nil {
		l.onNodes[p.Node] = map[types.UID]struct{}{}
	}
	l.onNodes[p.Node][p.UID] = struct{}{}
}

// Unreserve takes back what this attempt reserved, and nothing else. It may be called any number of times.
func (l *Ledger) Unreserve(uid types.UID, c Cycle) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e, ok := l.byUID[uid]; ok && e.cycle == c {
		l.remove(uid)
	}
}

// Forget drops the pod: it is gone.
func (l *Ledger) Forget(uid types.UID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.remove(uid)
}

// Get is the placement of the pod, if this process made one.
func (l *Ledger) Get(uid types.UID) (Promise, bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	e, ok := l.byUID[uid]
	return e.Promise, ok
}

// OnNode lists the placements on a node, by UID.
func (l *Ledger) OnNode(node string) []Promise {
	l.mu.RLock()
	defer l.mu.RUnlock()
	out := make([]Promise, 0, len(l.onNodes[node]))
	for _, uid := range slices.Sorted(maps.Keys(l.onNodes[node])) {
		out = append(out, l.byUID[uid].Promise)
	}
	return out
}

// Len is the number of placements; tests use it to see that nothing stays behind.
func (l *Ledger) Len() int {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return len(l.byUID)
}

func (l *Ledger) remove(uid types.UID) {
	e, ok := l.byUID[uid]
	if !ok {
		return
	}
	delete(l.byUID, uid)
	delete(l.onNodes[e.Node], uid)
	if len(l.onNodes[e.Node]) == 0 {
		delete(l.onNodes, e.Node)
	}
}
