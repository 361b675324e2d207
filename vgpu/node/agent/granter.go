package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/gshare-dev/gshare/vgpu/node/atomicfile"
	"github.com/gshare-dev/gshare/vgpu/node/cdi"
	"github.com/gshare-dev/gshare/vgpu/node/grant"
	"github.com/gshare-dev/gshare/vgpu/node/injection"
	"github.com/gshare-dev/gshare/vgpu/node/process"
	"github.com/gshare-dev/gshare/vgpu/node/ticket"
	"github.com/gshare-dev/gshare/vgpu/node/tokenserver"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// granter grants shares to containers and releases them. An operation on one container holds its operation lock: it enters its intent
// into the store, does its I/O without the store's lock, and stores the outcome.
type granter struct {
	*Options
	metrics    *metrics
	slices     *sliceRuntime
	grants     *grantStore
	publish    func() // requests publication
	files      cdi.Directory
	wake       chan struct{} // requests a sweep
	operations operationLocks
	restoring  sync.Mutex // operation lock of serveRestored, which takes those of several containers
	holding    sync.Mutex // operation lock of holdSlices: what is held last is the newest
}

func newGranter(o *Options, m *metrics, r *sliceRuntime, publish func()) *granter {
	return &granter{
		Options: o, metrics: m, slices: r, grants: newGrantStore(o.Config), publish: publish, files: cdi.Directory(o.Config.Kubernetes.CDI),
		wake: make(chan struct{}, 1),
	}
}

// admit grants the share of a claim, unless it is granted already, and sets up all that the container needs.
func (g *granter) admit(claim grant.Claim) error {
	if refusal := injection.Check(claim.Pod, claim.Container, g.Config.Directory); refusal != nil {
		return refusal
	}
	defer g.operations.lock(claim.Owner().ID())()
	granted, held, changed, refusal := g.grants.enter(claim)
	if refusal != nil {
		return refusal
	}
	pipe, refusal := g.slices.connect(&granted)
	if refusal != nil {
		g.cancel(&granted, held)
		return refusal
	}
	if changed {
		g.Cluster.Warn(claim.Pod, string(grant.Changed), "the placement has been changed after the share was granted; what was granted goes on")
	}
	if err := g.setUp(&granted, pipe); err != nil {
		g.Log.Error("failed to set up a share", "container", granted.String(), "error", err)
		g.cancel(&granted, held)
		return grant.NotSetUp(err)
	}
	g.grants.commit(granted.ID())
	g.holdSlices()
	if !g.Records.StillHeld(claim) {
		_ = g.files.Remove(ticket.Key(granted.Tickets)) // the kubelet has just allocated them to another container, and Allocate removed it too
		return grant.Ambiguous("the kubelet has given tickets %v away", granted.Tickets)
	}
	g.publish()
	return nil
}

// cancel removes a grant that could not be set up, unless it was held before: then its container may be running.
func (g *granter) cancel(granted *grant.Grant, held bool) {
	if held {
		return
	}
	id := granted.ID()
	g.stopService(id)
	_ = os.RemoveAll(g.dir(id)) // what stays is removed at the next start
	g.grants.remove(id)
}

// setUp does the steps from a grant to a container that can be created; each may be repeated. The first one writes the grant to disk:
// from then on the share stays taken across crashes.
func (g *granter) setUp(granted *grant.Grant, pipe string) error {
	if err := g.writeRecord(granted); err != nil {
		return err
	}
	killPoint("recorded")
	if err := g.serve(granted); err != nil {
		return err
	}
	killPoint("served")
	edits, err := g.slices.host.Edits(granted, g.dir(granted.ID()), pipe)
	if err != nil {
		return err
	}
	if err := g.files.Write(ticket.Key(granted.Tickets), granted.ID(), edits); err != nil {
		return err
	}
	killPoint("granted")
	return nil
}

// recordName is the file of a grant, in the directory of its container.
const recordName = "grant.json"

// grantsDir returns the directory that holds one directory for each container with a grant.
func (g *granter) grantsDir() string { return filepath.Join(g.Config.Directory, "grants") }

// dir returns the directory of a container, by the ID of its grant.
func (g *granter) dir(id string) string { return filepath.Join(g.grantsDir(), id) }

func (g *granter) writeRecord(granted *grant.Grant) error {
	text, err := grant.Encode(*granted, g.Config.Kubernetes.NodeName)
	if err != nil {
		return err
	}
	dir := g.dir(granted.ID())
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return atomicfile.WriteFile(filepath.Join(dir, recordName), text, 0o644)
}

// serve starts the service of a container that shares a slice.
func (g *granter) serve(granted *grant.Grant) error {
	if _, served := g.grants.serviceOf(granted.ID()); served || granted.Class() == share.Exclusive {
		return nil
	}
	c, err := g.prepare(granted)
	if err != nil {
		return err
	}
	if err := c.Listen(); err != nil {
		g.stopService(granted.ID())
		return err
	}
	return nil
}

// prepare reserves the shares of a container at the token server; its processes can connect once it listens.
func (g *granter) prepare(granted *grant.Grant) (*tokenserver.Container, error) {
	c, err := g.slices.prepare(granted, tokenserver.Spec{
		ID: granted.ID(), Dir: g.dir(granted.ID()), Admit: g.admitProcess(granted.Owner), Empty: func() { signal(g.wake) },
	})
	if err != nil {
		return nil, err
	}
	g.grants.addService(granted.ID(), c)
	return c, nil
}

// admitProcess returns the check that a process belongs to the pod of an owner. The socket tells the pod's containers apart: each has
// only its own.
func (g *granter) admitProcess(owner grant.Owner) func(process.Process) error {
	return func(p process.Process) error {
		c, err := g.ContainerOf(p.PID)
		if err != nil {
			return err
		}
		if c.PodUID != string(owner.UID) {
			return fmt.Errorf("the process is of pod %.36s, the share of pod %s", c.PodUID, owner.UID)
		}
		return nil
	}
}

// stopService ends the service of a container, if it has one, and removes its directory.
func (g *granter) stopService(id string) {
	c := g.grants.removeService(id)
	if c == nil {
		return
	}
	if err := c.Close(); err != nil {
		g.Log.Error("failed to end the service of a container", "grant", id, "error", err)
	}
}

// holdSlices keeps the MIG instances and MPS daemons that the grants need.
func (g *granter) holdSlices() {
	g.holding.Lock()
	defer g.holding.Unlock()
	g.slices.hold(g.grants.all())
}

// release releases a grant. By now the file of its tickets may be another container's, which then keeps it.
func (g *granter) release(granted grant.Grant) {
	id := granted.ID()
	defer g.operations.lock(id)()
	if !g.grants.holds(&granted) {
		return
	}
	if err := g.removeFiles(&granted); err != nil {
		g.Log.Error("failed to release a grant", "container", granted.String(), "error", err)
		return // the next sweep tries again
	}
	g.grants.remove(id)
	g.Records.Forget(granted.UID)
	g.holdSlices()
	g.Log.Info("released a grant", "container", granted.String(), "tickets", granted.Tickets)
	g.grants.notifyFreed()
	g.publish()
}

// removeFiles takes a container out of service and removes its files. The record goes last: until then a new agent restores the grant.
func (g *granter) removeFiles(granted *grant.Grant) error {
	key := ticket.Key(granted.Tickets)
	if owner, err := g.files.OwnerOf(key); err != nil || owner == granted.ID() {
		if err := g.files.Remove(key); err != nil {
			return err
		}
	}
	killPoint("ungranted")
	g.stopService(granted.ID())
	killPoint("unserved")
	return os.RemoveAll(g.dir(granted.ID()))
}
