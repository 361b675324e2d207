package agent

import (
	"os"

	"github.com/gshare-dev/gshare/vgpu/node/grant"
	"github.com/gshare-dev/gshare/vgpu/node/ticket"
)

// release gives a grant back. The file behind its tickets may be the next owner's by now.
func (a *Agent) release(g grant.Grant) {
	a.mu.Lock()
	defer a.mu.Unlock()
	key := ticket.Key(g.Tickets)
	if owner, err := a.files.OwnerOf(key); err != nil || owner == g.ID() {
		if err := a.files.Remove(key); err != nil {
			a.Log.Error("remove a grant", "container", g.String(), "err", err)
			return // tried again at the next sweep
		}
	}
	a.Fault("ungranted")
	a.unserve(g.ID())
	a.Fault("unserved")
	if err := os.RemoveAll(a.dir(g.ID())); err != nil {
		a.Log.Error("remove a grant", "container", g.String(), "err", err)
		return
	}
	a.book.Release(g.ID())
	a.Records.Forget(g.UID)
	a.hold()
	a.Log.Info("released", "container", g.String(), "tickets", g.Tickets)
	broadcast(&a.freed)
	signal(a.report)
}
