package tokenserver

import (
	"fmt"
	"os"
	"time"

	"github.com/gshare-dev/gshare/vgpu/api/tokenwire"
)

// session is the registration of one process at the server, from its HELLO frame until it disconnects.
type session struct {
	id       uint64
	previous uint64 // ID of its session at an earlier server; 0 if it had none
	pid      int
	vgpus    []*vgpu
	clients  []*clientState // one for each vGPU
}

// openSession opens a session for a HELLO frame and sends WELCOME with the shared pages.
func (k *connection) openSession(hello *tokenwire.Hello) error {
	if k.vgpus[0].Elastic && hello.Capabilities&tokenwire.CapabilityBlocks == 0 {
		return errTimeOnly // the hook falls back on its policy file
	}
	pid := k.peer.PID
	if k.fromLauncher() {
		pid = int(hello.PID)
	}
	s := &session{pid: pid, previous: hello.Session, vgpus: k.vgpus}
	if !k.server.takePages(len(s.vgpus)) {
		return errTooManyPages
	}
	s.id = k.server.newSessionID(s.previous != 0)
	for _, v := range k.vgpus {
		client, err := newClientState(v.VGPU, pid, k.server.Clock.Now())
		if err != nil {
			s.discard()
			return fmt.Errorf("create pages of process %d: %w", pid, err)
		}
		s.clients = append(s.clients, client)
	}
	if err := os.WriteFile(k.sessionFile(s.id), nil, 0o644); err != nil {
		s.discard()
		return err
	}
	s.attachToVGPUs()
	k.session = s
	if hello.Session != 0 && hello.Session < k.server.generation { // this server removes the files of its own sessions when they end
		k.removeSessionFile(hello.Session)
	}
	if err := k.server.send(k.conn, k.server.header(1), s.welcome(), s.descriptors()); err != nil {
		return err
	}
	for _, client := range s.clients {
		client.server.closeFile()
	}
	k.server.Log.Debug("opened a session", "container", k.ID, "pid", pid, "session", s.id, "previous", s.previous, "vgpus", len(s.vgpus))
	return nil
}

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
		for _, f := range []*os.File{s.clients[i].server.file, v.page.file, s.clients[i].client.file} {
			fds = append(fds, int(f.Fd()))
		}
	}
	return fds
}

// attachToVGPUs adds the process to each of its vGPUs.
func (s *session) attachToVGPUs() {
	for i, v := range s.vgpus {
		v.Slice.mu.Lock()
		v.clients = append(v.clients, s.clients[i])
		v.writeGuarantee()
		v.Slice.policy.attach(v, s.clients[i], v.Slice.server.Clock.Now())
		v.Slice.step()
		v.Slice.mu.Unlock()
	}
}

// handleNeed handles a NEED frame: the process waits for a token of the vGPU with the given index.
func (s *session) handleNeed(index uint32) error {
	return s.updateVGPU(index, func(v *vgpu, c *clientState) { c.startWait(v.Slice.server.Clock.Now()) })
}

// handleSnapshot handles a SNAPSHOT frame: the process now uses its new pages, so the lease of its session at an earlier server ends.
func (s *session) handleSnapshot(index uint32) error {
	return s.updateVGPU(index, func(v *vgpu, _ *clientState) { v.leased.end(s.previous) })
}

// updateVGPU calls change for one vGPU of the process, with its slice locked, and then has the slice's token policy decide again.
func (s *session) updateVGPU(index uint32, change func(*vgpu, *clientState)) error {
	if int64(index) >= int64(len(s.vgpus)) {
		return errNoVGPU
	}
	v := s.vgpus[index]
	v.Slice.mu.Lock()
	defer v.Slice.mu.Unlock()
	change(v, s.clients[index])
	v.Slice.step()
	return nil
}

// detachSession ends the turn of the connection's process, if it has a session. Another process that waits for the token runs at once.
func (k *connection) detachSession() {
	s := k.session
	if s == nil {
		return
	}
	for i, v := range s.vgpus {
		v.Slice.mu.Lock()
		v.detachClient(s.clients[i], k.server.Clock.Now())
		v.Slice.step()
		v.Slice.mu.Unlock()
	}
	if !k.server.closed.Load() { // if closed, the file stays, so that the next server waits for the process
		k.removeSessionFile(s.id)
	}
}

// The intervals at which endSession checks whether a page is still in use: the first one, which then doubles, and the longest.
const firstLook, longestLook = time.Millisecond, 100 * time.Millisecond

// endSession waits until no process has the pages of the session mapped, and then removes the session's memory and unfinished work from the
// vGPUs. A process that has exited, executed another program or reconnected has unmapped them. A process that has only closed the
// connection has not. Nor has a process that was forked from it: it keeps the driver's descriptors, so the memory outlives the process that
// allocated it.
func (k *connection) endSession() {
	s := k.session
	if s == nil {
		return
	}
	for i, v := range s.vgpus {
		ended := k.awaitUnused(s.clients[i])
		v.Slice.mu.Lock()
		v.removeClient(s.clients[i], ended)
		v.Slice.step()
		v.Slice.mu.Unlock()
		k.server.returnPages(1)
	}
	k.server.Log.Debug("ended a session", "container", k.ID, "pid", s.pid, "session", s.id)
}

// awaitUnused blocks until no process has the page of the client mapped and returns true, or returns false if the container is closed
// first.
func (k *connection) awaitUnused(client *clientState) bool {
	for wait := firstLook; k.inUse(client); wait = min(2*wait, longestLook) {
		select {
		case <-k.closing:
			return false
		case <-time.After(wait):
		}
	}
	return true
}

// inUse reports whether a process has the page of the client mapped, or whether the container is being closed. Where the page cannot tell, it
// counts as mapped while the process of the session lives. It checks one page of the container at a time, since a check can block a thread
// for long.
func (k *connection) inUse(client *clientState) bool {
	k.looking.Lock()
	defer k.looking.Unlock()
	select {
	case <-k.closing:
		return true
	default:
	}
	mapped, err := client.client.inUse()
	return mapped || err != nil && k.user().Alive()
}

// discard closes the pages of a session that was not attached.
func (s *session) discard() {
	for _, client := range s.clients {
		client.close()
	}
	s.vgpus[0].Slice.server.returnPages(len(s.vgpus))
}
