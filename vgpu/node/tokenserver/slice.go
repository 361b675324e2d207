package tokenserver

import (
	"slices"
	"sync"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
	"github.com/gshare-dev/gshare/vgpu/token"
	"github.com/gshare-dev/gshare/vgpu/token/rckm"
)

// Cadence of a slice.
const (
	heartbeat = 50 * time.Millisecond
	lookEvery = 2 * time.Millisecond // at pages, while somebody waits for what may be idle
	idleAfter = 3 * time.Millisecond // without a sign of work
)

// Slice is one isolation domain in service. Its time is the clock's.
type Slice struct {
	server *Server
	timer  Timer

	mu     sync.Mutex   // guards the following and everything of the vGPUs
	tokens *token.Slice // the rules while its class is not elastic
	blocks *rckm.Slice  // the rules while it is
	vgpus  []*vgpu      // all of one class, in the order in which they joined
	lastID token.ID
	beat   time.Duration // the last heartbeat
}

// NewSlice puts a slice into service. The tokens belong to it from then on.
func (s *Server) NewSlice(tokens *token.Slice) *Slice {
	blocks, err := rckm.New(rckm.Config{})
	if err != nil {
		panic(err) // the defaults are right
	}
	slice := &Slice{server: s, tokens: tokens, blocks: blocks}
	slice.timer = s.Clock.NewTimer(slice.tick)
	return slice
}

func (s *Slice) tick() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.step()
}

// step brings the slice up to now.
func (s *Slice) step() {
	if s.server.closed.Load() {
		return // processes go on as they are, on their lease; nobody may join them
	}
	if now := s.server.Clock.Now(); s.elastic() {
		s.stepBlocks(now)
	} else {
		s.stepTime(now)
	}
}

// elastic is the class of the slice, which is that of the vGPUs on it.
func (s *Slice) elastic() bool { return len(s.vgpus) > 0 && s.vgpus[0].Elastic }

// stepTime brings a slice of time tokens up to now: what processes did goes to the rules, and what these decide to the pages.
func (s *Slice) stepTime(now time.Duration) {
	for _, v := range s.vgpus {
		v.report(now)
	}
	changes, next := s.tokens.Advance(now)
	for _, c := range changes {
		if v := s.find(c.ID); v != nil {
			v.change(c)
		}
	}
	contended := s.contended()
	for _, v := range s.vgpus {
		if v.ends(contended) {
			v.close(now)
		}
	}
	s.flip(now)
	if look := s.nextLook(now); look != token.Never {
		s.timer.Set(min(next, look))
	}
}

// contended says that somebody waits for a token, so that what one uses another lacks.
func (s *Slice) contended() bool {
	return slices.ContainsFunc(s.vgpus, func(v *vgpu) bool { return v.granted == nil && v.waits() })
}

func (s *Slice) find(id token.ID) *vgpu {
	if i := slices.IndexFunc(s.vgpus, func(v *vgpu) bool { return v.id == id }); i >= 0 {
		return s.vgpus[i]
	}
	return nil
}

// flip writes the decisions to the pages. All that pause come before those that run, so that the SMs are never promised
// twice; what a lost process may still be using counts too.
func (s *Slice) flip(now time.Duration) {
	var used share.PerMille
	for _, v := range s.vgpus {
		v.choose(now)
		if v.next != v.running {
			v.pause(now)
		}
		if v.running != nil || v.ghosts.any() {
			used += v.SMRequest
		}
	}
	for _, v := range s.vgpus {
		if v.next != v.running && used+v.SMRequest <= share.Whole {
			used += v.SMRequest
			v.run(now)
		}
	}
	s.beatAll(now)
}

// beatAll gives a sign of life when it is time for one.
func (s *Slice) beatAll(now time.Duration) {
	if now-s.beat < heartbeat {
		return
	}
	s.beat = now
	for _, v := range s.vgpus {
		v.heartbeat(now)
	}
}

// nextLook is when the slice wants a step whatever the rules say: soon while a process waits, never without processes.
func (s *Slice) nextLook(now time.Duration) time.Duration {
	look := token.Never
	contended := s.contended()
	for _, v := range s.vgpus {
		switch {
		case v.waits():
			look = min(look, now+lookEvery)
		case len(v.seats) > 0 || v.ghosts.any():
			look = min(look, now+heartbeat)
		}
		if v.ends(contended) {
			look = min(look, v.nextClose(now))
		}
	}
	return look
}
