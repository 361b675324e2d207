package store

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gshare-dev/gshare/node/process"
	"github.com/gshare-dev/gshare/node/store/cuda"
	"github.com/gshare-dev/gshare/vgpu/api/storewire"
	"github.com/gshare-dev/gshare/vgpu/share"
	rules "github.com/gshare-dev/gshare/vgpu/store"
)

// answer is a response, with the descriptor of memory that is sent with it, or nil. The receiver of the answer closes the descriptor.
type answer struct {
	storewire.Response
	memory *os.File
}

// refusal returns the answer for an error.
func refusal(status storewire.Status) answer {
	return answer{Response: storewire.Response{Version: storewire.Version, Status: status}}
}

// granted returns the answer for an entry.
func granted(e rules.Entry, memory *os.File) answer {
	return answer{storewire.Response{Version: storewire.Version, Bytes: e.Bytes, Size: e.Size}, memory}
}

// serve answers the requests of a connection until the connection ends, and with it its leases.
func (s *Server) serve(ctx context.Context, conn *net.UnixConn) {
	c, err := s.open(conn)
	if err != nil {
		s.log(slog.LevelWarn, "refused a connection", "error", err)
		s.refuse(conn)
		return
	}
	defer s.close(c)
	writing := false
	for {
		frame, file, err := receive(conn)
		if err != nil || len(frame) == 0 {
			return
		}
		if s.requests.Wait(ctx) != nil {
			if file != nil {
				file.Close()
			}
			return
		}
		a := s.answer(ctx, c, frame, file)
		if file != nil {
			file.Close()
		}
		if err := send(conn, a); err != nil || a.Status == storewire.Malformed || a.Status == storewire.UnknownVersion {
			return
		}
		if now := s.writes(c); now != writing {
			writing = now
			s.limitWriting(conn, writing)
		}
	}
}

// limitWriting sets the time at which a connection whose client is writing is closed, or removes that limit.
func (s *Server) limitWriting(conn *net.UnixConn, writing bool) {
	var until time.Time
	if writing && s.WriteLimit > 0 {
		until = time.Now().Add(s.WriteLimit)
	}
	_ = conn.SetReadDeadline(until)
}

func (s *Server) writes(c rules.Client) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.store.Writes(c)
}

// refuse answers the first request of a connection that is not admitted, so that the program learns why. If many such connections have not
// sent a request yet, it does not wait for one: clients that never ask would take the places of others.
func (s *Server) refuse(conn *net.UnixConn) {
	select {
	case s.refused <- struct{}{}:
		defer func() { <-s.refused }()
	default:
		return
	}
	_ = conn.SetReadDeadline(time.Now().Add(patience))
	if _, err := conn.Read(make([]byte, storewire.RequestSize)); err == nil {
		_ = send(conn, refusal(storewire.Namespace))
	}
}

// open admits the process that has connected.
func (s *Server) open(conn *net.UnixConn) (rules.Client, error) {
	p, err := process.Peer(conn)
	if err != nil {
		return 0, err
	}
	defer p.Close()
	namespace, err := s.Identify(p)
	if err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next++
	s.pids[s.next] = p.PID
	return s.next, s.store.Open(s.next, namespace)
}

func (s *Server) close(c rules.Client) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.release(s.store.Close(c))
	delete(s.pids, c)
}

// maxDescriptors is how many descriptors of a packet are received; the kernel closes the others.
const maxDescriptors = 4

// receive returns the next frame, and the descriptor that comes with it, if any, which the caller closes. The frame is longer than any
// request if the packet is, and empty if the connection has ended.
func receive(conn *net.UnixConn) (frame []byte, file *os.File, _ error) {
	frame, rights := make([]byte, storewire.RequestSize+1), make([]byte, unix.CmsgSpace(4*maxDescriptors))
	n, with, _, _, err := conn.ReadMsgUnix(frame, rights)
	if err != nil {
		return nil, nil, err
	}
	messages, err := unix.ParseSocketControlMessage(rights[:with])
	if err != nil {
		return nil, nil, err
	}
	for _, m := range messages {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			continue // a control message of another kind
		}
		for _, fd := range fds {
			if file != nil {
				file.Close()
			}
			file = os.NewFile(uintptr(fd), "of a client")
		}
	}
	return frame[:n], file, nil
}

// send sends an answer and closes its descriptor.
func send(conn *net.UnixConn, a answer) error {
	var rights []byte
	if a.memory != nil {
		defer a.memory.Close()
		rights = unix.UnixRights(int(a.memory.Fd()))
	}
	if err := conn.SetWriteDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	_, _, err := conn.WriteMsgUnix(a.Encode(), rights, nil)
	return err
}

func (s *Server) answer(ctx context.Context, c rules.Client, frame []byte, file *os.File) answer {
	r, err := storewire.DecodeRequest(frame)
	if _, other := errors.AsType[*storewire.VersionError](err); other {
		return refusal(storewire.UnknownVersion)
	}
	if err != nil {
		return refusal(storewire.Malformed)
	}
	switch r.Operation {
	case storewire.Get:
		return s.get(c, r.Key)
	case storewire.Put:
		return s.put(ctx, c, r.Key, r.Bytes)
	case storewire.Own:
		return s.own(c, file)
	default:
		return s.commit(ctx, c, r.Key)
	}
}

// own answers whether a descriptor is one that the store has passed on; the kernel can tell such a descriptor from others of the same file.
// Weights that are not committed belong only to the process that writes them.
func (s *Server) own(c rules.Client, file *os.File) answer {
	if file == nil {
		return refusal(storewire.Malformed)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.store.Entries() {
		if !isSame(file, s.files[e.ID]) {
			continue
		}
		switch {
		case e.State == rules.Committed:
			return granted(e, nil)
		case e.State == rules.Writing && s.pids[e.Writer] == s.pids[c]:
			e.Bytes = 0
			return granted(e, nil)
		}
		return refusal(storewire.Busy)
	}
	return refusal(storewire.Absent)
}

// kcmpFile is KCMP_FILE, which asks whether two descriptors refer to the same open file.
const kcmpFile = 0

// isSame reports whether two descriptors of this process are duplicates. It returns false if the kernel does not tell.
func isSame(a, b *os.File) bool {
	if a == nil || b == nil {
		return false
	}
	pid := uintptr(os.Getpid())
	differ, _, failed := unix.Syscall6(unix.SYS_KCMP, pid, pid, kcmpFile, a.Fd(), b.Fd(), 0)
	return failed == 0 && differ == 0
}

func (s *Server) get(c rules.Client, k rules.Key) answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, err := s.store.Get(c, k)
	if err != nil {
		return refusal(storewire.StatusOf(err))
	}
	return s.export(e)
}

// export returns the answer with the memory of an entry. The caller holds s.mu.
func (s *Server) export(e rules.Entry) answer {
	memory, err := s.descriptorOf(e.ID)
	if err != nil {
		s.log(slog.LevelError, "failed to export memory", "weights", e.Key.String(), "error", err)
		return refusal(storewire.Failed)
	}
	return granted(e, memory)
}

// descriptorOf returns a duplicate of the descriptor of an entry's memory. The caller holds s.mu.
func (s *Server) descriptorOf(id rules.ID) (*os.File, error) {
	if s.files[id] == nil {
		file, err := s.Memory.Export(s.memory[id])
		if err != nil {
			return nil, err
		}
		s.files[id] = file
	}
	fd, err := unix.FcntlInt(s.files[id].Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "device memory"), nil
}

func (s *Server) put(ctx context.Context, c rules.Client, k rules.Key, bytes share.Bytes) answer {
	if s.puts.Wait(ctx) != nil {
		return refusal(storewire.Failed)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.readLimits(); err != nil {
		s.Log.Error("failed to read which weights are declared", "error", err)
		return refusal(storewire.Failed)
	}
	e, dropped, err := s.store.Put(c, k, bytes)
	if err != nil {
		return refusal(storewire.StatusOf(err))
	}
	s.release(dropped)
	h, err := s.create(e.Size)
	if err != nil {
		s.log(slog.LevelError, "failed to create memory", "weights", k.String(), "bytes", e.Size, "error", err)
		_, _ = s.store.Discard(e.ID) // cannot fail: the lock has been held since Put
		return refusal(storewire.Failed)
	}
	s.memory[e.ID] = h
	a := s.export(e)
	if a.Status != storewire.OK {
		s.discard(e.ID)
	}
	return a
}

// create allocates device memory. The device may have less left than the store's capacity, as others use it too; then weights without users
// are dropped until there is room. The caller holds s.mu.
func (s *Server) create(size share.Bytes) (cuda.Handle, error) {
	h, err := s.Memory.Create(size)
	for err != nil {
		dropped := s.store.Evict(1)
		if dropped == nil {
			break
		}
		s.release(dropped)
		h, err = s.Memory.Create(size)
	}
	return h, err
}

// discard drops an entry that is not committed, with its memory. The caller holds s.mu.
func (s *Server) discard(id rules.ID) {
	if e, err := s.store.Discard(id); err == nil {
		s.release([]rules.Entry{e})
	}
}

func (s *Server) commit(ctx context.Context, c rules.Client, k rules.Key) answer {
	e, memory, err := s.beginCommit(c, k)
	if err != nil {
		return refusal(storewire.StatusOf(err))
	}
	found, failed := s.digest(ctx, memory, e)
	memory.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	if failed != nil {
		s.log(slog.LevelError, "failed to compute a digest", "weights", k.String(), "error", failed)
		s.discard(e.ID)
		return refusal(storewire.Failed)
	}
	e, err = s.store.Verified(e.ID, found)
	if err != nil {
		s.log(slog.LevelWarn, "refused weights", "weights", k.String(), "error", err)
		s.release([]rules.Entry{e})
		return refusal(storewire.StatusOf(err))
	}
	s.log(slog.LevelInfo, "stored weights", "weights", k.String(), "bytes", e.Size)
	return granted(e, nil)
}

// digest computes the digest of an entry's memory, one after another, within the limit, and after a pause if the last one was wrong.
func (s *Server) digest(ctx context.Context, memory *os.File, e rules.Entry) (rules.Digest, error) {
	s.verifying.Lock()
	defer s.verifying.Unlock()
	if err := s.rest(ctx); err != nil {
		return rules.Digest{}, err
	}
	began := time.Now()
	if s.DigestLimit > 0 {
		const gib = 1024 * share.MiB
		limit, cancel := context.WithTimeoutCause(ctx, s.DigestLimit*time.Duration((e.Bytes+gib-1)/gib), errDigestLimit)
		defer cancel()
		ctx = limit
	}
	found, err := s.Digest(ctx, memory, e.Size, e.Bytes)
	if err != nil && ctx.Err() != nil {
		err = errors.Join(context.Cause(ctx), err)
	}
	if err == nil && found != e.Key.Digest {
		s.resting = time.Now().Add(min(wrongPause*time.Since(began), longestPause))
	}
	return found, err
}

// rest waits for the end of the pause after a digest that was wrong. s.verifying is locked.
func (s *Server) rest(ctx context.Context) error {
	select {
	case <-time.After(time.Until(s.resting)):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// errDigestLimit is why a digest is given up.
var errDigestLimit = errors.New("the digest takes too long")

// beginCommit ends the writing of an entry, and returns a descriptor of its memory.
func (s *Server) beginCommit(c rules.Client, k rules.Key) (rules.Entry, *os.File, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, err := s.store.Commit(c, k)
	if err != nil {
		return e, nil, err
	}
	memory, err := s.descriptorOf(e.ID)
	if err != nil {
		s.log(slog.LevelError, "failed to export memory", "weights", k.String(), "error", err)
		s.discard(e.ID)
	}
	return e, memory, err
}
