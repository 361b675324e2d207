package agent

import (
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gshare-dev/gshare/node/grant"
	"github.com/gshare-dev/gshare/node/inventory"
	"github.com/gshare-dev/gshare/node/tokenserver"
	config "github.com/gshare-dev/gshare/vgpu/api/config/node"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/residency"
	"github.com/gshare-dev/gshare/vgpu/share"
	"github.com/gshare-dev/gshare/vgpu/watchdog"
)

// grantStore holds the grants of the node and their token server connections. Its lock is never held during I/O. It has many methods: one for
// each question about the grants and each change of them, under one lock.
type grantStore struct {
	mu       sync.Mutex // guards the following
	book     *grant.Book
	pending  map[string]bool            // grants, by ID, that are being set up for the first time
	services map[string]*service        // by grant ID; containers of class exclusive have none
	enforced map[string]residency.Level // by grant ID: the level that the token server, and the server in the container, were last told; no entry: Unknown
	parked   map[string]parkedState     // by grant ID
	restored map[string]bool            // grants, by ID, of earlier agents, for which it is not known whether all that is recorded has been done
	freed    chan struct{}              // closed and replaced when a grant is released
}

func newGrantStore(c config.Configuration) *grantStore {
	return &grantStore{
		book:    grant.NewBook(c.Kubernetes.NodeName),
		pending: map[string]bool{}, services: map[string]*service{}, enforced: map[string]residency.Level{},
		parked: map[string]parkedState{}, restored: map[string]bool{}, freed: make(chan struct{}),
	}
}

// parkedState is the outcome of parking a container.
type parkedState struct {
	kept   share.Bytes // device memory that it keeps
	host   share.Bytes // memory of the host that it holds in place of device memory
	failed int64       // residency.Wanted.Seq of a request for Warm that could not be enforced
}

// service is the state of a container at the token server and of its limits. Containers that have their slices alone have none.
type service struct {
	container   *tokenserver.Container
	limitNote   string      // how the SM limit was moved; empty if it was not
	memoryLimit driverLimit // set by the driver
	work        *kube.Work  // of the program of a trial, never modified; nil for other programs
}

// all returns the grants that are set up completely, oldest first.
func (s *grantStore) all() (grants []grant.Grant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, granted := range s.book.All() {
		if !s.pending[granted.ID()] {
			grants = append(grants, granted)
		}
	}
	return grants
}

// unserved returns the grants of containers that the token server should serve and does not.
func (s *grantStore) unserved() []grant.Grant {
	return slices.DeleteFunc(s.all(), func(g grant.Grant) bool {
		_, served := s.serviceOf(g.ID())
		return served || g.Class() == share.Exclusive
	})
}

// onSlice returns the grants on a slice, including those that are being set up.
func (s *grantStore) onSlice(slice string) []grant.Grant {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.book.On(slice)
}

// ofPod returns the grants of a pod's containers, except those that share no slice with other containers.
func (s *grantStore) ofPod(uid types.UID) (grants []grant.Grant) {
	for _, granted := range s.all() {
		if granted.UID == uid && granted.Class() != share.Exclusive {
			grants = append(grants, granted)
		}
	}
	return grants
}

// grantedMemory returns the sum of the device memory of all grants on a slice.
func (s *grantStore) grantedMemory(slice string) share.Bytes {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.book.GrantedMemory(slice)
}

// serviceOf returns a copy of the token server state and the limits of a grant's container; false if it is not served.
func (s *grantStore) serviceOf(id string) (service, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if running := s.services[id]; running != nil {
		return *running, true
	}
	return service{}, false
}

// updateSlices replaces the slices on which shares can be granted by the result of change, which is called with the holders of grants. The
// lock is held meanwhile, so that no grant is made between the computation and the replacement.
func (s *grantStore) updateSlices(change func(inventory.Holders) grant.Slices) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var h inventory.Holders
	for _, granted := range s.book.All() {
		h.Bound = true
		if !granted.ByClaim() {
			h.Placed = true
			continue
		}
		for _, v := range granted.VGPUs {
			h.Claims = append(h.Claims, v.Slice)
		}
	}
	s.book.SetSlices(change(h))
}

func (s *grantStore) hasAny() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.book.All()) > 0
}

// hasPlaced reports whether containers have grants that were placed by gshare-scheduler.
func (s *grantStore) hasPlaced() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.book.All(), func(g grant.Grant) bool { return !g.ByClaim() })
}

// ofClaim returns the grant of a resource claim, even while it is being set up; false if there is none.
func (s *grantStore) ofClaim(claim types.UID) (grant.Grant, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, granted := range s.book.All() {
		if granted.ResourceClaim.UID == claim {
			return granted, true
		}
	}
	return grant.Grant{}, false
}

// admit adds a grant for a container unless it has one. held reports that the container had the grant before; changed reports that its
// placement now differs from what was granted. The refusal is not nil if the share cannot be granted.
func (s *grantStore) admit(claim grant.Claim) (granted grant.Grant, held, changed bool, refusal *grant.Refusal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, held = s.book.Get(claim.Owner().ID())
	// The time is written to disk in milliseconds.
	granted, changed, refusal = s.book.Admit(claim, time.Now().UTC().Truncate(time.Millisecond))
	if refusal == nil && !held {
		s.pending[granted.ID()] = true
	}
	return granted, held, changed, refusal
}

// markSetUp records that a new grant has been set up completely. From then on the method all lists it.
func (s *grantStore) markSetUp(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.pending, id)
}

// has reports whether a container has a grant, even while it is being set up.
func (s *grantStore) has(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.book.Get(id)
	return ok
}

// contains reports whether exactly this grant is still stored, and not a later one of the same container.
func (s *grantStore) contains(granted *grant.Grant) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, ok := s.book.Get(granted.ID())
	return ok && now.Since.Equal(granted.Since)
}

// watchdogGrants returns the grants in the form of the watchdog, including those that are still being set up.
func (s *grantStore) watchdogGrants() (grants []watchdog.Grant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, granted := range s.book.All() {
		w := watchdog.Grant{
			Pod: string(granted.UID), Container: granted.Container, Hooked: s.services[granted.ID()] != nil, BestEffort: granted.BestEffort,
		}
		for _, v := range granted.VGPUs {
			w.Slices = append(w.Slices, v.Slice)
		}
		grants = append(grants, w)
	}
	return grants
}

// setMemoryLimit stores the memory limit that the driver has confirmed for a grant's container. It returns false if the container is no
// longer connected to the token server.
func (s *grantStore) setMemoryLimit(id string, limit driverLimit) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	running := s.services[id]
	if running != nil {
		running.memoryLimit = limit
	}
	return running != nil
}

// updateService calls change for the token server state of a grant's container, if it is still served. The lock is held while change runs.
func (s *grantStore) updateService(id string, change func(*service)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if running := s.services[id]; running != nil {
		change(running)
	}
}

// freedChannel returns a channel that is closed when the next grant is released.
func (s *grantStore) freedChannel() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.freed
}

// restore adds a grant that an earlier agent made.
func (s *grantStore) restore(granted grant.Grant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.book.Restore(granted)
	s.restored[granted.ID()] = granted.Residency != residency.Reached{}
}

func (s *grantStore) remove(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.book.Release(id)
	delete(s.pending, id)
	delete(s.enforced, id)
	delete(s.parked, id)
	delete(s.restored, id)
}

// notifyFreed wakes the container starts that wait until another container's grant is released.
func (s *grantStore) notifyFreed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	broadcast(&s.freed)
}

// addService stores the token server's container of a grant and the level at which it is served.
func (s *grantStore) addService(id string, c *tokenserver.Container, level residency.Level) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.services[id], s.enforced[id] = &service{container: c}, level
}

// setEnforced stores the level at which a container is served and the outcome of parking it. The level is Unknown if it could not be parked.
func (s *grantStore) setEnforced(id string, level residency.Level, parked parkedState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.enforced[id], s.parked[id] = level, parked
	delete(s.restored, id)
}

// parkingOf returns the outcome of parking a container, and whether its server may be parked now: because it was parked, or because the last
// step is not known.
func (s *grantStore) parkingOf(id string) (state parkedState, maybe bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	enforced, known := s.enforced[id]
	return s.parked[id], !known || s.restored[id] || enforced <= residency.Warm
}

// nextStep returns the next step that package residency wants for a container, together with the container's present grant. It returns false
// if the container has no grant that is set up. A raise is already in the book when nextStep returns, so that no other container can be
// granted the same SM-time. waiting holds the grants of containers that are bound to the node; those that have started are skipped.
func (s *grantStore) nextStep(id string, w residency.Wanted, r residency.Reached, waiting []grant.Grant) (grant.Grant, residency.Step, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	granted, ok := s.book.Get(id)
	if !ok || s.pending[id] {
		return granted, residency.Step{}, false
	}
	if r == granted.Residency { // a report comes last
		delete(s.restored, id)
	}
	enforced, known := s.enforced[id]
	if !known || s.restored[id] {
		enforced = residency.Unknown
	}
	parked := s.parked[id]
	step := residency.Next(residency.Instance{
		Wanted: w, Reached: r, Record: granted.Record(), Enforced: enforced, Kept: parked.kept, Host: parked.host, CannotPark: parked.failed > 0 && parked.failed == w.Seq,
	},
		func(l residency.Level) bool { return s.book.FitsAt(id, l, waiting) })
	if step.Effect == residency.Save && step.Record.Level > granted.Level() {
		s.book.SetResidency(id, step.Record)
	}
	return granted, step, true
}

func (s *grantStore) setResidency(id string, r residency.Reached) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.book.SetResidency(id, r)
}

// removeService removes and returns the token server's container of a grant; nil if there is none.
func (s *grantStore) removeService(id string) *tokenserver.Container {
	s.mu.Lock()
	defer s.mu.Unlock()
	running := s.services[id]
	if running == nil {
		return nil
	}
	delete(s.services, id)
	delete(s.enforced, id)
	return running.container
}
