package sharing

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/gshare-dev/gshare/plugins/ledger"
	"github.com/gshare-dev/gshare/vgpu/packing"
)

// cycle is the state of one scheduling attempt, which PreFilter writes for the later extension points. It is immutable, so that parallel
// dry runs may share it.
type cycle struct {
	pod        *packing.Pod
	key        string // cache key of the ranks of nodes for the pod
	hasShare   bool   // whether the pod requests gshare resources
	isGroup    bool   // simulation for a pod group, which must not use the fleet
	narrowed   bool   // whether nodes were left out
	ranksNodes bool   // whether the packing order decides between nodes
	attempt    ledger.Cycle
}

// Clone implements fwk.StateData. It returns the state itself, which is immutable.
func (c *cycle) Clone() fwk.StateData { return c }

func (p *Plugin) stateKey() fwk.StateKey { return fwk.StateKey(p.name) }

// cycleOf returns the state of the scheduling attempt, or an error status if PreFilter did not run.
func (p *Plugin) cycleOf(state fwk.CycleState) (*cycle, *fwk.Status) {
	data, err := state.Read(p.stateKey())
	if err != nil {
		return nil, fwk.AsStatus(err)
	}
	return data.(*cycle), nil
}

// uidSet is a concurrent set of pod UIDs. The zero value is empty.
type uidSet struct{ m sync.Map }

func (s *uidSet) add(key types.UID) (added bool) {
	_, loaded := s.m.LoadOrStore(key, struct{}{})
	return !loaded
}

func (s *uidSet) has(key types.UID) bool {
	_, ok := s.m.Load(key)
	return ok
}

func (s *uidSet) remove(key types.UID) { s.m.Delete(key) }
