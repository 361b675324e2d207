package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/gshare-dev/gshare/node/cdi"
	"github.com/gshare-dev/gshare/node/deviceid"
	"github.com/gshare-dev/gshare/node/grant"
	"github.com/gshare-dev/gshare/node/injection"
	"github.com/gshare-dev/gshare/node/mps"
	"github.com/gshare-dev/gshare/node/process"
	"github.com/gshare-dev/gshare/node/tokenserver"
	"github.com/gshare-dev/gshare/vgpu/api/atomicfile"
	"github.com/gshare-dev/gshare/vgpu/residency"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// granter grants shares to containers and releases them. It serializes the operations on each container with a lock per container. An
// operation first changes the grant store, then does its I/O without the store's lock, and then stores the outcome.
type granter struct {
	*Options
	metrics    *metrics
	slices     *sliceRuntime
	grants     *grantStore
	stores     *storeKeeper
	publish    func() // requests publication
	lowered    loweredPods
	files      cdi.Directory
	wake       chan struct{} // requests a sweep
	operations operationLocks
	restoring  sync.Mutex // serializes serveRestored, which holds the locks of several containers; guards notServed
	notServed  notServed
	retaining  sync.Mutex // serializes retainSlices, so that the last call has the newest grants
}

func newGranter(o *Options, m *metrics, r *sliceRuntime, publish func()) *granter {
	grants := newGrantStore(o.Config)
	return &granter{
		Options: o, metrics: m, slices: r, grants: grants, stores: &storeKeeper{o, r, grants}, publish: publish, files: cdi.Directory(o.Config.Kubernetes.CDI),
		wake: make(chan struct{}, 1), notServed: notServed{},
	}
}

// admit grants a container the share of its placement, unless it is granted already, and sets up its MPS daemon, token server socket and
// CDI file. It returns a *grant.Refusal if the share cannot be granted.
func (g *granter) admit(claim grant.Claim) error {
	if refusal := injection.Check(claim.Pod, claim.Container, g.Config.Directory); refusal != nil {
		return refusal
	}
	defer g.operations.lock(claim.Owner().ID())()
	granted, held, changed, refusal := g.grants.admit(claim)
	if refusal != nil {
		return refusal
	}
	if refusal := g.slices.checkUsers(claim.Pod, &granted); refusal != nil {
		g.withdraw(&granted, held)
		return refusal
	}
	endpoint, refusal := g.slices.provision(&granted)
	if refusal != nil {
		g.withdraw(&granted, held)
		return refusal
	}
	if changed {
		g.Cluster.Warn(claim.Pod, string(grant.Changed), "the placement has been changed after the share was granted; what was granted goes on")
	}
	kept := held || exists(g.containerDir(granted.ID())) // an earlier agent has left it, and a running container may have it mounted
	err := g.setUp(&granted, endpoint)
	if err != nil {
		g.Log.Error("failed to set up a share", "container", granted.String(), "error", err)
	}
	if err != nil && !kept {
		g.rollBack(&granted)
		return grant.NotSetUp(err)
	}
	g.grants.markSetUp(granted.ID())
	g.retainSlices()
	if err != nil {
		g.publish() // that it is not served, which the sweeper tries again
		return grant.NotSetUp(err)
	}
	if claim.ResourceClaim.UID == "" && !g.Records.StillHeld(claim) {
		_ = g.files.Remove(deviceid.Key(granted.DeviceIDs)) // just given to another container: like Allocate, leaves no file of the earlier one
		return grant.Ambiguous("the kubelet has given device IDs %v away", granted.DeviceIDs)
	}
	g.Log.Info("granted a share", "container", granted.String(), "deviceIDs", granted.DeviceIDs)
	g.publish()
	if granted.Residency != (residency.Reached{}) {
		signal(g.wake) // so that the level is reported
	}
	return nil
}

// withdraw removes a grant whose setup has not begun. It does nothing if the grant was held before, since its container may be running. A
// directory is left from an earlier agent, if there is one: a running container that is about to be adopted has it mounted.
func (g *granter) withdraw(granted *grant.Grant, held bool) {
	if !held {
		g.grants.remove(granted.ID())
	}
}

// rollBack removes a new grant whose setup has failed, with its files.
func (g *granter) rollBack(granted *grant.Grant) {
	id := granted.ID()
	g.stopService(id)
	_ = os.RemoveAll(g.containerDir(id)) // what cannot be removed is removed after the next start
	g.grants.remove(id)
}

// setUp writes the record of a grant, opens the container's socket and writes its CDI file. endpoint is that of the container's MPS daemon.
// The record is written first, so that the share stays taken after a crash. Every step may be repeated.
func (g *granter) setUp(granted *grant.Grant, endpoint mps.Endpoint) error {
	if err := g.writeRecord(granted); err != nil {
		return err
	}
	killPoint("recorded")
	if err := g.stores.open(context.Background(), granted); err != nil {
		return err
	}
	if err := g.startService(granted); err != nil {
		return err
	}
	killPoint("served")
	edits, err := g.slices.host.Edits(granted, g.containerDir(granted.ID()), endpoint)
	if err != nil {
		return err
	}
	if err := g.files.Write(deviceid.Key(granted.DeviceIDs), granted.ID(), edits); err != nil {
		return err
	}
	killPoint("granted")
	return nil
}

// recordName is the name of the file that records a grant, in the directory of its container.
const recordName = "grant.json"

func (g *granter) grantsDir() string { return filepath.Join(g.Config.Directory, "grants") }

// containerDir returns the directory of the container whose grant has this ID. It holds the record of the grant and the container's socket.
func (g *granter) containerDir(id string) string { return filepath.Join(g.grantsDir(), id) }

func (g *granter) writeRecord(granted *grant.Grant) error {
	text, err := grant.Encode(*granted, g.Config.Kubernetes.NodeName)
	if err != nil {
		return err
	}
	dir := g.containerDir(granted.ID())
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return atomicfile.WriteFile(filepath.Join(dir, recordName), text, 0o644)
}

// exists reports whether there is a file of this name, or that cannot be known.
func exists(name string) bool {
	_, err := os.Stat(name)
	return !errors.Is(err, fs.ErrNotExist)
}

// startService prepares and opens the token server's socket of a container that shares a slice. It does nothing if the socket is open, or
// if the container has its slice alone.
func (g *granter) startService(granted *grant.Grant) error {
	if _, served := g.grants.serviceOf(granted.ID()); served || granted.Class() == share.Exclusive {
		return nil
	}
	c, err := g.prepareService(granted)
	if err != nil {
		return err
	}
	return g.listen(c)
}

// listen opens the socket of a prepared container. After an error the container is not served, but its directory stays, since the container
// may be running and have it mounted.
func (g *granter) listen(c *tokenserver.Container) error {
	err := c.Listen()
	if err != nil {
		g.grants.removeService(c.ID)
		c.Suspend()
	}
	return err
}

// prepareService reserves the shares of a container at the token server. Its processes can connect only after Listen on the returned
// container.
func (g *granter) prepareService(granted *grant.Grant) (*tokenserver.Container, error) {
	c, err := g.slices.Reserve(holderOf(granted), tokenserver.Spec{
		Dir: g.containerDir(granted.ID()), Admit: g.processCheck(granted.Owner), Empty: func() { signal(g.wake) },
		IdleOnly: granted.Level() < residency.Hot, Parked: granted.Level() == residency.Warm, Kept: granted.Residency.Memory,
	})
	if err != nil {
		return nil, err
	}
	g.grants.addService(granted.ID(), c, granted.Level())
	return c, nil
}

// processCheck returns the function by which the token server accepts only processes of the owner's pod. Containers of one pod need not be
// told apart: each has only its own socket mounted.
func (o *Options) processCheck(owner grant.Owner) func(process.Process) error {
	return func(p process.Process) error {
		c, err := o.ContainerOf(p.PID)
		if err != nil {
			return err
		}
		if c.PodUID != string(owner.UID) {
			return fmt.Errorf("the process is of pod %.36s, the share of pod %s", c.PodUID, owner.UID)
		}
		return nil
	}
}

// stopService closes the token server's socket of a container, if it is open, and removes its directory.
func (g *granter) stopService(id string) {
	c := g.grants.removeService(id)
	if c == nil {
		return
	}
	if err := c.Close(); err != nil {
		g.Log.Error("failed to end the service of a container", "grant", id, "error", err)
	}
}

// retainSlices keeps the MIG instances and MPS daemons that the present grants use, and lets all others be removed.
func (g *granter) retainSlices() {
	g.retaining.Lock()
	defer g.retaining.Unlock()
	g.stores.retain() // before the MIG instances that they use
	g.slices.retain(g.grants.all())
}

// release removes a grant, its files and its socket, and frees its share. The CDI file of its device IDs stays if the kubelet has since given
// the device IDs to another container.
func (g *granter) release(granted grant.Grant) {
	id := granted.ID()
	defer g.operations.lock(id)()
	if !g.grants.contains(&granted) {
		return
	}
	if err := g.removeFiles(&granted); err != nil {
		g.Log.Error("failed to release a grant", "container", granted.String(), "error", err)
		return // the next sweep tries again
	}
	g.grants.remove(id)
	g.Records.Forget(granted.UID)
	g.retainSlices()
	g.Log.Info("released a grant", "container", granted.String(), "deviceIDs", granted.DeviceIDs)
	g.grants.notifyFreed()
	g.publish()
}

// removeFiles closes a container's token server socket and removes the files of its grant. The record of the grant is removed last: while
// it exists, a new agent restores the grant.
func (g *granter) removeFiles(granted *grant.Grant) error {
	key := deviceid.Key(granted.DeviceIDs)
	if owner, err := g.files.OwnerOf(key); err != nil || owner == granted.ID() {
		if err := g.files.Remove(key); err != nil {
			return err
		}
	}
	killPoint("ungranted")
	g.stopService(granted.ID())
	killPoint("unserved")
	return os.RemoveAll(g.containerDir(granted.ID()))
}
