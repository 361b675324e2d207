package standalone

import (
	"slices"
	"time"
)

// watch adds a run and releases it when its process has ended. The caller holds the lock.
func (n *Node) watch(r *run) {
	n.runs = append(n.runs, r)
	n.syncMPS()
	n.limitMemory(r)
	if r.dead {
		return
	}
	n.watches.Go(func() {
		r.process.Wait()
		n.processEnded(r)
	})
}

// processEnded records that the process of a run has ended; its children may still hold the share.
func (n *Node) processEnded(r *run) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return // the handle was closed, not the process
	}
	r.dead = true
	n.release(r)
}

// endIfUnused releases a run whose process has ended and whose last connection was closed.
func (n *Node) endIfUnused(r *run) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.release(r)
}

// release frees the share of a run, unless its process lives or others are connected. The caller holds the lock.
func (n *Node) release(r *run) {
	i := slices.Index(n.runs, r)
	if i < 0 || n.closed || !r.dead || r.container.Connections() > 0 {
		return
	}
	n.runs = slices.Delete(n.runs, i, i+1)
	r.process.Close()
	n.cleanUp(r)
	n.syncMPS()
	n.Log.Info("run ended", "run", r.ID, "name", r.Name)
	n.admitWaiters()
}

// endAfterLease releases a restored run without a process, unless a child of it reconnects within the lease that its tokens have.
func (n *Node) endAfterLease(r *run) {
	time.AfterFunc(n.timing.lease, func() { n.endIfUnused(r) })
}
