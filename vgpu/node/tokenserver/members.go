package tokenserver

import (
	"cmp"
	"errors"
	"slices"

	"github.com/gshare-dev/gshare/vgpu/share"
	"github.com/gshare-dev/gshare/vgpu/token"
	"github.com/gshare-dev/gshare/vgpu/token/rckm"
)

// join adds a vGPU and lets the rules check that it fits.
func (s *Slice) join(v *vgpu) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.vgpus) > 0 && s.elastic() != v.Elastic {
		return errors.New("the class of a slice changes only while it is empty")
	}
	s.lastID++
	v.id = s.lastID
	if err := s.joinRules(v); err != nil {
		return err
	}
	s.vgpus = append(s.vgpus, v)
	s.step()
	return nil
}

func (s *Slice) joinRules(v *vgpu) error {
	now := s.server.Clock.Now()
	if v.Elastic {
		v.limit, v.looked = v.SMLimit, now
		priority := cmp.Or(v.Priority, share.BestEffort)
		return s.blocks.Join(now, rckm.Member{ID: v.id, Priority: priority, Request: v.SMRequest, Limit: v.SMLimit})
	}
	return s.tokens.Join(now, token.Member{ID: v.id, SM: v.SMRequest, QuotaRequest: v.QuotaRequest, QuotaLimit: v.QuotaLimit})
}

// resize moves the limit of an elastic vGPU, for its next token.
func (s *Slice) resize(v *vgpu, limit share.PerMille) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !v.Elastic {
		return ErrFixed
	}
	if err := s.blocks.Resize(s.server.Clock.Now(), v.id, limit); err != nil {
		return err
	}
	v.limit = limit
	s.step()
	return nil
}

// leave removes a vGPU that has no process any more.
func (s *Slice) leave(v *vgpu) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.vgpus = slices.DeleteFunc(s.vgpus, func(other *vgpu) bool { return other == v })
	if now := s.server.Clock.Now(); v.Elastic {
		_ = s.blocks.Leave(now, v.id) // it has joined
	} else {
		_ = s.tokens.Leave(now, v.id)
	}
	v.page.close()
	s.step()
}
