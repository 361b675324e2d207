// Package ledger holds the placements that this scheduler process has assumed, until the API server shows them.
package ledger

import (
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gshare-dev/gshare/vgpu/kube"
)

// Ledger holds the assumed placement of each pod, like kube-scheduler's cache of assumed pods. All profiles of a scheduler process share
// it, because they place pods on the same GPUs. An entry lives from Reserve until the pod is deleted. Once the pod is bound, its annotation
// holds the same placement, so nothing is lost when the process restarts.
type Ledger struct {
	mu      sync.RWMutex // guards the maps below
	byUID   map[types.UID]entry
	onNodes map[string]map[types.UID]struct{}
}

// Assumed is the placement chosen for a pod whose binding may not have been seen yet, with the pod's namespace (Tenant), name and workload.
type Assumed struct {
	kube.Placement
	Tenant   string
	Name     string
	Workload string
}

type entry struct {
	Assumed
	cycle Cycle
}

// Cycle identifies one scheduling attempt, so that a late Unreserve cannot free what a later attempt has reserved. Attempts are compared by
// pointer, so the type must not be empty.
type Cycle *struct{ _ byte }

// NewCycle returns the identity of a new scheduling attempt.
func NewCycle() Cycle { return Cycle(&struct{ _ byte }{}) }

// New returns an empty ledger.
func New() *Ledger {
	return &Ledger{byUID: map[types.UID]entry{}, onNodes: map[string]map[types.UID]struct{}{}}
}

// Reserve records the pod's placement as assumed by the given scheduling attempt and replaces any earlier one.
func (l *Ledger) Reserve(p Assumed, c Cycle) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.remove(p.UID)
	l.byUID[p.UID] = entry{Assumed: p, cycle: c}
	if l.onNodes[p.Node] == nil {
		l.onNodes[p.Node] = map[types.UID]struct{}{}
	}
	l.onNodes[p.Node][p.UID] = struct{}{}
}

// Unreserve removes the pod's assumed placement if the given scheduling attempt reserved it. It is idempotent.
func (l *Ledger) Unreserve(uid types.UID, c Cycle) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e, ok := l.byUID[uid]; ok && e.cycle == c {
		l.remove(uid)
	}
}

// Forget removes the assumed placement of a pod that was deleted.
func (l *Ledger) Forget(uid types.UID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.remove(uid)
}

// Get returns the pod's assumed placement, and whether there is one.
func (l *Ledger) Get(uid types.UID) (Assumed, bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	e, ok := l.byUID[uid]
	return e.Assumed, ok
}

// OnNode returns the assumed placements on a node, ordered by pod UID.
func (l *Ledger) OnNode(node string) []Assumed {
	l.mu.RLock()
	defer l.mu.RUnlock()
	out := make([]Assumed, 0, len(l.onNodes[node]))
	for _, uid := range slices.Sorted(maps.Keys(l.onNodes[node])) {
		out = append(out, l.byUID[uid].Assumed)
	}
	return out
}

// Len returns the number of assumed placements.
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
