package tokenserver

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
	"github.com/gshare-dev/gshare/vgpu/token"
)

// heartbeatInterval is the time between two heartbeats, which show clients that the server is alive.
const heartbeatInterval = 50 * time.Millisecond

// tokenPolicy issues the tokens of a slice: timePolicy by the rules of package token, blockPolicy by those of package rckm. The slice's
// lock is held during each call.
type tokenPolicy interface {
	// join adds a vGPU, or returns an error if its share does not fit.
	join(v *vgpu, now time.Duration) error
	// leave removes a vGPU that joined.
	leave(v *vgpu, now time.Duration)
	// resize changes the SM limit of a vGPU, or returns ErrFixed.
	resize(v *vgpu, limit share.PerMille, now time.Duration) error
	// reshape makes the policy treat a vGPU as one that gets only the time that others leave, or as one with its own share, or returns an
	// error if that does not fit.
	reshape(v *vgpu, idleOnly bool, now time.Duration) error
	// attach prepares the pages of a process that was added to a vGPU.
	attach(v *vgpu, c *clientState, now time.Duration)
	// step reads the clients' pages, advances package token or rckm and writes the decisions. It returns when it must be called again, or
	// token.Never if only a frame can change anything.
	step(s *Slice, now time.Duration) time.Duration
}

// Slice is a GPU or MIG instance for whose shares the server issues tokens. Times are those of the server's clock.
type Slice struct {
	server *Server
	timer  Timer
	time   timePolicy
	blocks blockPolicy

	mu            sync.Mutex  // guards the following and all state of the vGPUs
	policy        tokenPolicy // of the slice's class
	vgpus         []*vgpu     // all of one class, in the order of joining
	lastID        token.ID
	lastHeartbeat time.Duration
	lastStep      time.Duration
}

// step makes the token policy read the clients' pages and write new decisions, and sets the timer for the next call.
func (s *Slice) step() {
	if s.server.closed.Load() {
		return // clients keep their state until the lease ends, so their SMs must not be granted again
	}
	if next := s.policy.step(s, s.server.Clock.Now()); next != token.Never {
		s.timer.Set(next)
	}
}

// join adds a vGPU. The class of the first vGPU on an empty slice selects the token policy.
func (s *Slice) join(v *vgpu) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case len(s.vgpus) > 0 && s.vgpus[0].Elastic != v.Elastic:
		return errors.New("the class of a slice can change only while the slice is empty")
	case v.Elastic:
		s.policy = &s.blocks
	default:
		s.policy = &s.time
	}
	s.lastID++
	v.id = s.lastID
	if err := s.policy.join(v, s.server.Clock.Now()); err != nil {
		return err
	}
	s.vgpus = append(s.vgpus, v)
	s.step()
	return nil
}

// resize changes the SM limit of an elastic vGPU from its next token on.
func (s *Slice) resize(v *vgpu, limit share.PerMille) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.policy.resize(v, limit, s.server.Clock.Now()); err != nil {
		return err
	}
	s.step()
	return nil
}

// reshape changes whether a vGPU gets only the time that others leave.
func (s *Slice) reshape(v *vgpu, idleOnly bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if v.idle == idleOnly {
		return nil
	}
	if err := s.policy.reshape(v, idleOnly, s.server.Clock.Now()); err != nil {
		return err
	}
	v.idle = idleOnly
	v.writeGuarantee()
	s.step()
	return nil
}

// leave removes a vGPU that has no processes.
func (s *Slice) leave(v *vgpu) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.vgpus = slices.DeleteFunc(s.vgpus, func(other *vgpu) bool { return other == v })
	s.policy.leave(v, s.server.Clock.Now())
	v.page.close()
	s.step()
}

func (s *Slice) find(id token.ID) *vgpu {
	if i := slices.IndexFunc(s.vgpus, func(v *vgpu) bool { return v.id == id }); i >= 0 {
		return s.vgpus[i]
	}
	return nil
}

// sendHeartbeats writes a heartbeat to all pages of the slice if heartbeatInterval has passed since the last one.
func (s *Slice) sendHeartbeats(now time.Duration) {
	if now-s.lastHeartbeat < heartbeatInterval {
		return
	}
	s.lastHeartbeat = now
	for _, v := range s.vgpus {
		for _, c := range v.clients {
			if !c.detached {
				c.server.at.SetHeartbeat(now)
			}
		}
	}
}

// narrow sets a vGPU's request and limit for its part of the window.
func (s *Slice) narrow(v *vgpu, request, limit share.PerMille) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	oldRequest, oldLimit := v.QuotaRequest, v.QuotaLimit
	if oldRequest == request && oldLimit == limit {
		return nil
	}
	v.QuotaRequest, v.QuotaLimit = request, limit // only these two: the other fields of the share are read without the lock
	if err := s.policy.reshape(v, v.idle, s.server.Clock.Now()); err != nil {
		v.QuotaRequest, v.QuotaLimit = oldRequest, oldLimit
		return err
	}
	v.writeGuarantee()
	s.step()
	return nil
}
