// Package core is what a node does for shares, whoever asks for them: the kubelet (package agent) or gshare run (package standalone).
package core

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/gshare-dev/gshare/node/mps"
	"github.com/gshare-dev/gshare/node/tokenserver"
	config "github.com/gshare-dev/gshare/vgpu/api/config/node"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Holder is a container or a run that holds a share of each of its slices.
type Holder struct {
	ID      string // unique on the node
	VGPUs   []kube.PlacedVGPU
	Imports share.Bytes // see tokenserver.VGPU
}

// ErrMissing is returned for slices that the node does not have, or not yet.
var ErrMissing = errors.New("the device or MIG instance is not known")

// Slices runs what holders need on the node's slices: MPS daemons, and a token server with a loop for each slice.
type Slices struct {
	Tokens  *tokenserver.Server
	Daemons *mps.Manager
	config  config.Configuration
	log     *slog.Logger
	uuid    func(slice string) string

	mu    sync.Mutex                    // guards the following
	loops map[string]*tokenserver.Slice // by slice ID; they are never removed
}

// NewSlices returns the slices of a node. uuid returns the UUID of a slice, by which CUDA and the driver know it; empty if the node does not
// have it now. changed is called when MPS daemons become ready or fail.
func NewSlices(c config.Configuration, daemons mps.Daemons, log *slog.Logger, uuid func(slice string) string, changed func()) *Slices {
	return &Slices{
		Tokens:  tokenserver.New(tokenserver.Config{Log: log, Turn: c.Turn.Duration, RunAhead: c.RunAhead.Duration, Window: c.Window.Duration}),
		Daemons: mps.New(mps.Config{Daemons: daemons, Log: log, OnChange: changed}),
		config:  c, log: log, uuid: uuid, loops: map[string]*tokenserver.Slice{},
	}
}

// Close stops the token server and the supervision of MPS daemons. The daemons themselves and the holders' processes keep running.
func (s *Slices) Close() {
	s.Daemons.Close()
	s.Tokens.Close()
}

// member describes a holder to the MPS daemon of its slice.
func (s *Slices) member(h *Holder) mps.Member {
	v := h.VGPUs[0]
	return mps.NewMember(s.uuid(v.Slice), h.ID, v.Share, mps.HasLowPriority(v.Class, v.Priority))
}

// HasNamespace reports whether a holder has an MPS namespace, whose limits its processes cannot loosen.
func (s *Slices) HasNamespace(h *Holder) bool {
	return s.Daemons.HasNamespace(s.uuid(h.VGPUs[0].Slice), h.ID)
}

// OpenMPS returns where a holder's processes find the MPS daemon, or an error while it does not accept them: a CUDA program that finds no
// daemon silently runs without MPS. Holders that are alone on their slices use none.
func (s *Slices) OpenMPS(h *Holder) (mps.Endpoint, error) {
	if h.VGPUs[0].Class == share.Exclusive {
		return mps.Endpoint{}, nil
	}
	m := s.member(h)
	if m.Slice == "" {
		return mps.Endpoint{}, ErrMissing
	}
	return s.Daemons.Open(m)
}

// RetainMPS keeps the MPS daemons that these holders use. All others are stopped, so that the next holders start with fresh daemons.
func (s *Slices) RetainMPS(holders []Holder) {
	var members []mps.Member
	for _, h := range holders {
		if m := s.member(&h); m.Slice != "" && h.VGPUs[0].Class != share.Exclusive {
			members = append(members, m)
		}
	}
	s.Daemons.SetMembers(members)
}

// Reserve reserves the shares of a holder at the token server, which accepts its processes only after Listen. Slices that are missing are
// left out; the error is ErrMissing if all are.
func (s *Slices) Reserve(h *Holder, spec tokenserver.Spec) (*tokenserver.Container, error) {
	spec.ID = h.ID
	var missing []string
	for i, v := range h.VGPUs {
		uuid := s.uuid(v.Slice)
		if uuid == "" {
			missing = append(missing, v.Slice)
			continue
		}
		loop, err := s.loop(v.Slice)
		if err != nil {
			return nil, err
		}
		spec.VGPUs = append(spec.VGPUs, tokenserver.VGPU{
			Share: v.Share, Slice: loop, UUID: uuid, Index: i, Elastic: v.Class == share.Elastic, Priority: v.Priority, Imports: h.Imports,
		})
	}
	if len(spec.VGPUs) == 0 {
		return nil, fmt.Errorf("%s: %w", h.VGPUs[0].Slice, ErrMissing)
	}
	if len(missing) > 0 {
		s.log.Warn("devices of a share are missing", "share", h.ID, "missing", missing)
	}
	return s.Tokens.Prepare(spec)
}

// loop returns the token server's loop for a slice, and starts it at the first call.
func (s *Slices) loop(slice string) (*tokenserver.Slice, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.loops[slice]; l != nil {
		return l, nil
	}
	tokens, err := s.config.NewTokens()
	if err != nil {
		return nil, err
	}
	s.loops[slice] = s.Tokens.NewSlice(tokens)
	return s.loops[slice], nil
}
