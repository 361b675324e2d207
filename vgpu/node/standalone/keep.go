package standalone

import (
	"slices"
	"time"

	"github.com/gshare-dev/gshare/vgpu/node/tokenserver"
)

// keep adds a run and watches its process. The caller holds the lock.
func (n *Node) keep(r *run) {
	n.runs = append(n.runs, r)
	n.holdMPS()
	n.limitMemory(r)
	if r.dead {
		return
	}
	n.watches.Go(func() {
		r.process.Wait()
		n.ended(r)
	})
}

// ended notes that the process of a run is gone; others may still hold the share.
func (n *Node) ended(r *run) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return // the handle was closed, not the process
	}
	r.dead = true
	n.end(r)
}

// settle ends a run if nothing holds it any more.
func (n *Node) settle(r *run) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.end(r)
}

// end gives the share of a run back unless its process lives or others are connected. The caller holds the lock.
func (n *Node) end(r *run) {
	i := slices.Index(n.runs, r)
	if i < 0 || n.closed || !r.dead || r.container.Connections() > 0 {
		return
	}
	n.runs = slices.Delete(n.runs, i, i+1)
	r.process.Close()
	n.discard(r)
	n.holdMPS()
	n.Log.Info("a run has ended", "run", r.ID, "name", r.Name)
	n.admitWaiters()
}

// settleLater ends a run that an earlier agent left without a process, if none of its children has come back when the
// lease of the earlier token server is over.
func (n *Node) settleLater(r *run) {
	time.AfterFunc(tokenserver.Lease, func() { n.settle(r) })
}
