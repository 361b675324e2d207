package agent

import (
	"os"
	"path/filepath"

	"github.com/gshare-dev/gshare/vgpu/node/atomicfile"
	"github.com/gshare-dev/gshare/vgpu/node/grant"
	"github.com/gshare-dev/gshare/vgpu/node/injection"
	"github.com/gshare-dev/gshare/vgpu/node/ticket"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// admit grants a claim, or finds that it has been granted, and does all that the container needs.
func (a *Agent) admit(claim grant.Claim) error {
	if refusal := injection.Check(claim.Pod, claim.Container, a.Config.Directory); refusal != nil {
		return refusal
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	_, held := a.book.Get(claim.Owner().ID())
	g, changed, refusal := a.book.Admit(claim, now())
	if refusal != nil {
		return refusal
	}
	pipe, refusal := a.open(&g)
	if refusal != nil {
		if !held {
			a.book.Release(g.ID())
		}
		return refusal
	}
	if changed {
		a.Cluster.Warn(claim.Pod, string(grant.Changed), "the placement has been changed after the share was granted; what was granted goes on")
	}
	a.bound = true
	if err := a.setUp(&g, pipe); err != nil {
		a.Log.Error("set up a share", "container", g.String(), "err", err)
		if !held { // else the container may be running
			a.undo(&g)
		}
		return grant.Unserved(err)
	}
	a.hold()
	if !a.Records.Still(claim) {
		_ = a.files.Remove(ticket.Key(g.Tickets)) // the kubelet was faster in giving them away, and removed it too
		return grant.Doubt("the kubelet has given tickets %v away", g.Tickets)
	}
	signal(a.report)
	return nil
}

// setUp does the steps from a grant to a container that can be created. Each may be done again. The first makes it last: from
// then on the share is taken, whoever dies.
func (a *Agent) setUp(g *grant.Grant, pipe string) error {
	if err := a.write(g); err != nil {
		return err
	}
	a.Fault("recorded")
	if err := a.serve(g); err != nil {
		return err
	}
	a.Fault("served")
	edits, err := a.host.Edits(g, a.dir(g.ID()), pipe)
	if err != nil {
		return err
	}
	if err := a.files.Write(ticket.Key(g.Tickets), g.ID(), edits); err != nil {
		return err
	}
	a.Fault("granted")
	return nil
}

// undo takes back a grant that could not be set up.
func (a *Agent) undo(g *grant.Grant) {
	a.unserve(g.ID())
	a.book.Release(g.ID())
	_ = os.RemoveAll(a.dir(g.ID())) // what stays is removed at the next start
}

const recordName = "grant.json"

func (a *Agent) write(g *grant.Grant) error {
	text, err := grant.Encode(*g, a.Config.Kubernetes.NodeName)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(a.dir(g.ID()), 0o755); err != nil {
		return err
	}
	return atomicfile.WriteFile(filepath.Join(a.dir(g.ID()), recordName), text, 0o644)
}

// serve takes the container into service at the token server, and starts what its class needs.
func (a *Agent) serve(g *grant.Grant) error {
	if g.Class() == share.Exclusive || a.containers[g.ID()] != nil {
		return nil
	}
	if err := a.prepare(g); err != nil {
		return err
	}
	if err := a.containers[g.ID()].Listen(); err != nil {
		a.unserve(g.ID())
		return err
	}
	return nil
}
