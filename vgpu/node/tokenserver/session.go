package tokenserver

import (
	"fmt"
	"os"

	"github.com/gshare-dev/gshare/vgpu/api/tokenwire"
)

// session is one process with its seat on each vGPU of the container.
type session struct {
	id     uint64
	before uint64 // its number under an earlier server, or 0
	pid    int
	vgpus  []*vgpu
	seats  []*seat // one for each vGPU
}

// welcome opens the session and hands out its pages.
func (k *connection) welcome(hello *tokenwire.Hello) error {
	if k.vgpus[0].Elastic && hello.Capabilities&tokenwire.KnowsBlocks == 0 {
		return errTimeOnly // it goes by its policy file
	}
	pid := k.peer.PID
	if k.inherited() {
		pid = int(hello.PID)
	}
	s := &session{pid: pid, before: hello.Session, vgpus: k.vgpus}
	s.id = k.server.newSession(s.before != 0)
	for _, v := range k.vgpus {
		seat, err := newSeat(v.VGPU, pid, k.server.Clock.Now())
		if err != nil {
			s.discard()
			return fmt.Errorf("pages of process %d: %w", pid, err)
		}
		s.seats = append(s.seats, seat)
	}
	if err := os.WriteFile(k.sessionFile(s.id), nil, 0o644); err != nil {
		s.discard()
		return err
	}
	s.join()
	k.session = s
	if hello.Session != 0 {
		k.forget(hello.Session)
	}
	if err := k.server.send(k.conn, k.server.header(1), s.welcome(), s.descriptors()); err != nil {
		return err
	}
	for _, seat := range s.seats {
		seat.server.closeFile()
		seat.client.closeFile()
	}
	return nil
}

// forget removes the file of a session that has come back under another number.
func (c *Container) forget(session uint64) { _ = os.Remove(c.sessionFile(session)) }

func (s *session) welcome() *tokenwire.Welcome {
	m := &tokenwire.Welcome{Session: s.id, Mode: tokenwire.ModeTime}
	if s.vgpus[0].Elastic {
		m.Mode = tokenwire.ModeBlocks
	}
	for _, v := range s.vgpus {
		m.VGPUs = append(m.VGPUs, tokenwire.VGPU{UUID: v.UUID, Index: uint32(v.Index), MemoryLimit: uint64(v.Memory)})
	}
	return m
}

func (s *session) descriptors() (fds []int) {
	for i, v := range s.vgpus {
		for _, f := range []*os.File{s.seats[i].server.file, v.page.file, s.seats[i].client.file} {
			fds = append(fds, int(f.Fd()))
		}
	}
	return fds
}

// join sits the process down at its vGPUs.
func (s *session) join() {
	for i, v := range s.vgpus {
		v.Slice.mu.Lock()
		v.seats = append(v.seats, s.seats[i])
		if v.Elastic {
			v.sit(s.seats[i], v.Slice.server.Clock.Now())
		}
		v.Slice.step()
		v.Slice.mu.Unlock()
	}
}

// need notes that the process waits.
func (s *session) need(index uint32) error {
	return s.with(index, func(v *vgpu, seat *seat) { seat.wait(v.Slice.server.Clock.Now()) })
}

// snapshot says that the process goes by its new pages: if the server waited for it, it is a ghost no more.
func (s *session) snapshot(index uint32) error {
	return s.with(index, func(v *vgpu, _ *seat) { v.ghosts.end(s.before) })
}

// with changes one vGPU of the process and looks what follows.
func (s *session) with(index uint32, change func(*vgpu, *seat)) error {
	if int64(index) >= int64(len(s.vgpus)) {
		return errNoVGPU
	}
	v := s.vgpus[index]
	v.Slice.mu.Lock()
	defer v.Slice.mu.Unlock()
	change(v, s.seats[index])
	v.Slice.step()
	return nil
}

// end closes the session, if there is one; who waited for its process runs at once.
func (k *connection) end() {
	s := k.session
	if s == nil {
		return
	}
	for i, v := range s.vgpus {
		v.Slice.mu.Lock()
		v.remove(s.seats[i], k.server.Clock.Now())
		v.Slice.step()
		v.Slice.mu.Unlock()
	}
	if !k.server.closed.Load() {
		k.forget(s.id) // else the next server waits for it
	}
}

func (s *session) discard() {
	for _, seat := range s.seats {
		seat.close()
	}
}
