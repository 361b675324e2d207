package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gshare-dev/gshare/vgpu/node/atomicfile"
	"github.com/gshare-dev/gshare/vgpu/node/cdi"
	"github.com/gshare-dev/gshare/vgpu/node/grant"
	"github.com/gshare-dev/gshare/vgpu/node/injection"
	"github.com/gshare-dev/gshare/vgpu/node/process"
	"github.com/gshare-dev/gshare/vgpu/node/ticket"
	"github.com/gshare-dev/gshare/vgpu/node/tokenserver"
	"github.com/gshare-dev/gshare/vgpu/packing"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// granter grants shares to containers and releases them. An operation on one container holds its operation lock: it changes the
// book under mu, does its I/O without, and puts the outcome into the book under mu again.
type granter struct {
	*Options
	metrics    *metrics
	slices     *sliceRuntime
	publish    func() // requests publication
	files      cdi.Directory
	wake       chan struct{} // requests a sweep
	operations operationLocks
	restoring  sync.Mutex // operation lock of serveRestored, which takes those of several containers
	holding    sync.Mutex // operation lock of holdSlices: what is held last is the newest

	mu       sync.Mutex // guards the following
	book     *grant.Book
	pending  map[string]bool     // grants, by ID, that are being set up for the first time
	services map[string]*service // by grant ID; containers of class exclusive have none
	freed    chan struct{}       // closed and replaced when a grant is released
}

// service is what the agent runs for a container that shares a slice.
type service struct {
	container   *tokenserver.Container
	limitNote   string      // how the SM limit was moved; empty where it was not
	memoryLimit driverLimit // set by the driver
}

func newGranter(o *Options, m *metrics, r *sliceRuntime, publish func()) *granter {
	c := o.Config
	return &granter{
		Options: o, metrics: m, slices: r, publish: publish, files: cdi.Directory(c.Kubernetes.CDI), wake: make(chan struct{}, 1),
		book: grant.NewBook(grant.Config{
			Node: c.Kubernetes.NodeName, Gamma: *c.GammaPercent * 10, MixTenants: c.Tenancy == "mixed",
		}),
		pending: map[string]bool{}, services: map[string]*service{}, freed: make(chan struct{}),
	}
}

// all returns the grants that are set up, the oldest first.
func (g *granter) all() (grants []grant.Grant) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, granted := range g.book.All() {
		if !g.pending[granted.ID()] {
			grants = append(grants, granted)
		}
	}
	return grants
}

// on returns the grants on a slice.
func (g *granter) on(slice string) []grant.Grant {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.book.On(slice)
}

// ofPod returns the grants of a pod that share a slice.
func (g *granter) ofPod(uid types.UID) (grants []grant.Grant) {
	for _, granted := range g.all() {
		if granted.UID == uid && granted.Class() != share.Exclusive {
			grants = append(grants, granted)
		}
	}
	return grants
}

// promised returns the device memory that is granted of a slice.
func (g *granter) promised(slice string) share.Bytes {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.book.Promised(slice)
}

// serviceOf returns a copy of the service of a grant; false if it has none.
func (g *granter) serviceOf(id string) (service, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if s := g.services[id]; s != nil {
		return *s, true
	}
	return service{}, false
}

// updateSlices replaces the slices that containers are admitted to. change computes them and who uses them without a share; it is
// called with the lock held, so that no grant is made between the two.
func (g *granter) updateSlices(change func(granted bool) (slices []packing.Slice, used map[string]string)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.book.SetSlices(change(g.anyLocked()))
}

// any reports whether a share is granted.
func (g *granter) any() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.anyLocked()
}

func (g *granter) anyLocked() bool { return len(g.book.All()) > 0 }

// admit grants the share of a claim, unless it is granted already, and sets up all that the container needs.
func (g *granter) admit(claim grant.Claim) error {
	if refusal := injection.Check(claim.Pod, claim.Container, g.Config.Directory); refusal != nil {
		return refusal
	}
	defer g.operations.lock(claim.Owner().ID())()
	granted, held, changed, refusal := g.enter(claim)
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
		return grant.Unserved(err)
	}
	g.commit(granted.ID())
	g.holdSlices()
	if !g.Records.Still(claim) {
		_ = g.files.Remove(ticket.Key(granted.Tickets)) // the kubelet has just allocated them to another container, and Allocate removed it too
		return grant.Doubt("the kubelet has given tickets %v away", granted.Tickets)
	}
	g.publish()
	return nil
}

// enter enters the grant of a claim into the book. held reports that it was there before, changed that its placement has been
// changed since.
func (g *granter) enter(claim grant.Claim) (granted grant.Grant, held, changed bool, refusal *grant.Refusal) {
	g.mu.Lock()
	defer g.mu.Unlock()
	_, held = g.book.Get(claim.Owner().ID())
	// The time is written to disk in milliseconds.
	granted, changed, refusal = g.book.Admit(claim, time.Now().UTC().Truncate(time.Millisecond))
	if refusal == nil && !held {
		g.pending[granted.ID()] = true
	}
	return granted, held, changed, refusal
}

// commit marks a grant as set up.
func (g *granter) commit(id string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.pending, id)
}

// cancel removes a grant that could not be set up, unless it was held before: then its container may be running.
func (g *granter) cancel(granted *grant.Grant, held bool) {
	if held {
		return
	}
	id := granted.ID()
	g.stopService(id)
	_ = os.RemoveAll(g.dir(id)) // what stays is removed at the next start
	g.mu.Lock()
	defer g.mu.Unlock()
	g.book.Release(id)
	delete(g.pending, id)
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
	if _, served := g.serviceOf(granted.ID()); served || granted.Class() == share.Exclusive {
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
	g.mu.Lock()
	defer g.mu.Unlock()
	g.services[granted.ID()] = &service{container: c}
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
	g.mu.Lock()
	s := g.services[id]
	delete(g.services, id)
	g.mu.Unlock()
	if s == nil {
		return
	}
	if err := s.container.Close(); err != nil {
		g.Log.Error("failed to end the service of a container", "grant", id, "error", err)
	}
}

// holdSlices keeps the MIG instances and MPS daemons that the grants need.
func (g *granter) holdSlices() {
	g.holding.Lock()
	defer g.holding.Unlock()
	g.slices.hold(g.all())
}

// release releases a grant. By now the file of its tickets may be another container's, which then keeps it.
func (g *granter) release(granted grant.Grant) {
	id := granted.ID()
	defer g.operations.lock(id)()
	if !g.holds(&granted) {
		return
	}
	if err := g.removeFiles(&granted); err != nil {
		g.Log.Error("failed to release a grant", "container", granted.String(), "error", err)
		return // the next sweep tries again
	}
	g.mu.Lock()
	g.book.Release(id)
	g.mu.Unlock()
	g.Records.Forget(granted.UID)
	g.holdSlices()
	g.Log.Info("released a grant", "container", granted.String(), "tickets", granted.Tickets)
	g.mu.Lock()
	broadcast(&g.freed)
	g.mu.Unlock()
	g.publish()
}

// holds reports whether a grant is still in the book.
func (g *granter) holds(granted *grant.Grant) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	now, ok := g.book.Get(granted.ID())
	return ok && now.Since.Equal(granted.Since)
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

// stuck returns an error if an operation on a container takes longer than the limit.
func (g *granter) stuck(limit time.Duration) error {
	if id := g.operations.stuck(limit); id != "" {
		return fmt.Errorf("the operation on container %s is stuck", id)
	}
	return nil
}
