package agent

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	config "github.com/gshare-dev/gshare/vgpu/api/config/node"
	"github.com/gshare-dev/gshare/vgpu/node/grant"
	"github.com/gshare-dev/gshare/vgpu/node/tokenserver"
	"github.com/gshare-dev/gshare/vgpu/packing"
	"github.com/gshare-dev/gshare/vgpu/share"
	"github.com/gshare-dev/gshare/vgpu/watchdog"
)

// grantStore holds the grants of the node and the services of their containers. Its lock is never held over I/O.
type grantStore struct {
	mu       sync.Mutex // guards the following
	book     *grant.Book
	pending  map[string]bool     // grants, by ID, that are being set up for the first time
	services map[string]*service // by grant ID; containers of class exclusive have none
	freed    chan struct{}       // closed and replaced when a grant is released
}

func newGrantStore(c config.Configuration) *grantStore {
	return &grantStore{
		book: grant.NewBook(grant.Config{
			Node: c.Kubernetes.NodeName, Gamma: *c.GammaPercent * 10, MixTenants: c.Tenancy == "mixed",
		}),
		pending: map[string]bool{}, services: map[string]*service{}, freed: make(chan struct{}),
	}
}

// service is what the agent runs for a container that shares a slice.
type service struct {
	container   *tokenserver.Container
	limitNote   string      // how the SM limit was moved; empty where it was not
	memoryLimit driverLimit // set by the driver
}

// all returns the grants that are set up, the oldest first.
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

// on returns the grants on a slice.
func (s *grantStore) on(slice string) []grant.Grant {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.book.On(slice)
}

// ofPod returns the grants of a pod that share a slice.
func (s *grantStore) ofPod(uid types.UID) (grants []grant.Grant) {
	for _, granted := range s.all() {
		if granted.UID == uid && granted.Class() != share.Exclusive {
			grants = append(grants, granted)
		}
	}
	return grants
}

// promised returns the device memory that is granted of a slice.
func (s *grantStore) promised(slice string) share.Bytes {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.book.GrantedMemory(slice)
}

// serviceOf returns a copy of the service of a grant; false if it has none.
func (s *grantStore) serviceOf(id string) (service, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if running := s.services[id]; running != nil {
		return *running, true
	}
	return service{}, false
}

// updateSlices replaces the slices that containers are admitted to. change computes them and who uses them without a share; it is
// called with the lock held, so that no grant is made between the two.
func (s *grantStore) updateSlices(change func(granted bool) (slices []packing.Slice, used map[string]string)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.book.SetSlices(change(s.anyLocked()))
}

// any reports whether a share is granted.
func (s *grantStore) any() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.anyLocked()
}

// anyLocked reports whether a share is granted. The caller holds the lock.
func (s *grantStore) anyLocked() bool { return len(s.book.All()) > 0 }

// enter enters the grant of a claim into the book. held reports that it was there before, changed that its placement has been
// changed since.
func (s *grantStore) enter(claim grant.Claim) (granted grant.Grant, held, changed bool, refusal *grant.Refusal) {
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

// commit marks a grant as set up.
func (s *grantStore) commit(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.pending, id)
}

// holds reports whether a grant is still in the book.
func (s *grantStore) holds(granted *grant.Grant) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, ok := s.book.Get(granted.ID())
	return ok && now.Since.Equal(granted.Since)
}

// watched returns the grants as the watchdog needs them, also those that are being set up.
func (s *grantStore) watched() (grants []watchdog.Grant) {
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

// setMemoryLimit stores a limit that the driver has confirmed; false if the container is not served any more.
func (s *grantStore) setMemoryLimit(id string, limit driverLimit) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	running := s.services[id]
	if running != nil {
		running.memoryLimit = limit
	}
	return running != nil
}

// setLimitNote stores how the SM limit of a container was moved, for its enforcement status.
func (s *grantStore) setLimitNote(id, note string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if running := s.services[id]; running != nil {
		running.limitNote = note
	}
}

// freedChannel returns the channel that is closed when the next grant is released.
func (s *grantStore) freedChannel() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.freed
}

// restore enters a grant of an earlier agent.
func (s *grantStore) restore(granted grant.Grant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.book.Restore(granted)
}

// remove removes a grant.
func (s *grantStore) remove(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.book.Release(id)
	delete(s.pending, id)
}

// notifyFreed wakes the containers that wait for the end of another one.
func (s *grantStore) notifyFreed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	broadcast(&s.freed)
}

// addService stores the service of a grant.
func (s *grantStore) addService(id string, c *tokenserver.Container) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.services[id] = &service{container: c}
}

// removeService removes the service of a grant and returns its container; nil if it has none.
func (s *grantStore) removeService(id string) *tokenserver.Container {
	s.mu.Lock()
	defer s.mu.Unlock()
	running := s.services[id]
	if running == nil {
		return nil
	}
	delete(s.services, id)
	return running.container
}
