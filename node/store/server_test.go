package store

import (
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gshare-dev/gshare/node/process"
	"github.com/gshare-dev/gshare/node/store/client"
	"github.com/gshare-dev/gshare/node/store/cuda"
	"github.com/gshare-dev/gshare/node/unixsocket"
	"github.com/gshare-dev/gshare/vgpu/api/storewire"
	"github.com/gshare-dev/gshare/vgpu/share"
	rules "github.com/gshare-dev/gshare/vgpu/store"
)

// hostMemory is memory of the host in place of a device's.
type hostMemory struct {
	mu    sync.Mutex
	next  cuda.Handle
	files map[cuda.Handle]*os.File
	fails error // of Create and Export
	most  int   // pieces of memory that the device has room for; 0: any number
}

func (m *hostMemory) Create(size share.Bytes) (cuda.Handle, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fails != nil {
		return 0, m.fails
	}
	if m.most > 0 && len(m.files) >= m.most {
		return 0, errors.New("out of memory")
	}
	fd, err := unix.MemfdCreate("weights", unix.MFD_CLOEXEC)
	if err != nil {
		return 0, err
	}
	m.next++
	m.files[m.next] = os.NewFile(uintptr(fd), "weights")
	return m.next, m.files[m.next].Truncate(int64(size))
}

func (m *hostMemory) Export(h cuda.Handle) (*os.File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fails != nil {
		return nil, m.fails
	}
	fd, err := unix.FcntlInt(m.files[h].Fd(), unix.F_DUPFD_CLOEXEC, 0)
	return os.NewFile(uintptr(fd), "weights"), err
}

func (m *hostMemory) Release(h cuda.Handle) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	file := m.files[h]
	delete(m.files, h)
	return file.Close() // fails if it has been released before
}

// setFails sets the error of Create and Export, nil for none.
func (m *hostMemory) setFails(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fails = err
}

// setMost sets the number of pieces of memory that the device has room for.
func (m *hostMemory) setMost(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.most = n
}

func (m *hostMemory) count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.files)
}

func digestOf(_ context.Context, memory *os.File, _, bytes share.Bytes) (rules.Digest, error) {
	hash := sha256.New()
	_, err := io.Copy(hash, io.NewSectionReader(memory, 0, int64(bytes)))
	return rules.Digest(hash.Sum(nil)), err
}

// running is a server on host memory.
type running struct {
	*Server
	memory   *hostMemory
	listener *unixsocket.Listener
	socket   string
	stop     func() // and waits until it has ended
}

// start starts a server of 10 MiB for a namespace in which this process is, unless the options are changed.
func start(t *testing.T, change func(*Options)) running {
	t.Helper()
	dir, err := os.MkdirTemp("", "gs") // short enough for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	memory := &hostMemory{files: map[cuda.Handle]*os.File{}}
	o := Options{
		Namespace: "team", Capacity: 10 * share.MiB, Memory: memory, Digest: digestOf, Log: slog.New(slog.DiscardHandler),
		Identify: func(process.Process) (string, error) { return "team", nil },
	}
	if change != nil {
		change(&o)
	}
	r := running{Server: New(o), memory: memory, socket: filepath.Join(dir, "store.sock")}
	r.listener, err = unixsocket.Listen("unixpacket", r.socket, 0o666, unixsocket.NewLimiter())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Serve(ctx, r.listener) }()
	r.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil && !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
	})
	t.Cleanup(r.stop)
	return r
}

func (r running) dial(t *testing.T) *client.Client {
	t.Helper()
	c, err := client.Dial(t.Context(), r.socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func keyOf(text string) rules.Key { return rules.Key{Digest: sha256.Sum256([]byte(text))} }

// put stores a text.
func put(c *client.Client, k rules.Key, text string) error {
	w, err := c.Put(k, share.Bytes(len(text)))
	if err != nil {
		return err
	}
	defer w.Memory.Close()
	if _, err := w.Memory.WriteAt([]byte(text), 0); err != nil {
		return err
	}
	return c.Commit(k)
}

// await waits until the store has so much memory.
func (r running) await(t *testing.T, memory int) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); r.memory.count() != memory; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d pieces of memory, want %d", r.memory.count(), memory)
		}
	}
}

func TestPutAndGet(t *testing.T) {
	r := start(t, nil)
	writer, reader := r.dial(t), r.dial(t)
	k := keyOf("weights")
	if _, err := reader.Get(k); !errors.Is(err, rules.ErrAbsent) {
		t.Fatal(err)
	}
	if err := put(writer, k, "weights"); err != nil {
		t.Fatal(err)
	}
	w, err := reader.Get(k)
	if err != nil || w.Bytes != 7 || w.Size != 2*share.MiB {
		t.Fatalf("%+v, %v", w, err)
	}
	defer w.Memory.Close()
	text := make([]byte, 7)
	if _, err := w.Memory.ReadAt(text, 0); err != nil || string(text) != "weights" {
		t.Errorf("%q, %v", text, err)
	}
	if dropped := r.Evict(share.MiB); dropped != nil {
		t.Errorf("dropped in use: %v", dropped)
	}
	writer.Close()
	reader.Close()
	for r.Entries()[0].Users > 0 { // the server sees the ends of connections one after the other
		time.Sleep(time.Millisecond)
	}
	if r.memory.count() != 1 {
		t.Error("weights without users are gone")
	}
	if dropped := r.Evict(share.MiB); len(dropped) != 1 || r.memory.count() != 0 {
		t.Errorf("dropped %v, %d are left", dropped, r.memory.count())
	}
}

// TestWrongDigest checks that weights that are not what their key says never reach a reader.
func TestWrongDigest(t *testing.T) {
	r := start(t, nil)
	c := r.dial(t)
	k := keyOf("weights")
	if err := put(c, k, "malware"); !errors.Is(err, rules.ErrDigest) {
		t.Errorf("stored: %v", err)
	}
	if _, err := c.Get(k); !errors.Is(err, rules.ErrAbsent) {
		t.Errorf("read: %v", err)
	}
	r.await(t, 0)
	if err := put(c, k, "weights"); err != nil {
		t.Error(err)
	}
}

// TestFailures checks that the store goes on, without memory for what failed, when driver or digest fail. A digest of zeros is the one that a
// failed computation returns.
func TestFailures(t *testing.T) {
	failing := errors.New("device lost")
	zeros := rules.Key{}
	type digestFunc = func(ctx context.Context, memory *os.File, size, bytes share.Bytes) (rules.Digest, error)
	var digest atomic.Value // a digestFunc
	digest.Store(digestFunc(digestOf))
	r := start(t, func(o *Options) {
		o.DigestLimit = time.Millisecond
		o.Digest = func(ctx context.Context, memory *os.File, size, bytes share.Bytes) (rules.Digest, error) {
			return digest.Load().(digestFunc)(ctx, memory, size, bytes)
		}
	})
	c := r.dial(t)
	r.memory.setFails(failing)
	if _, err := c.Put(zeros, 1); err == nil || r.memory.count() != 0 {
		t.Errorf("no memory: %v, %d", err, r.memory.count())
	}
	r.memory.setFails(nil)
	digest.Store(digestFunc(func(context.Context, *os.File, share.Bytes, share.Bytes) (rules.Digest, error) {
		return rules.Digest{}, failing
	}))
	if err := put(c, zeros, "x"); err == nil || r.memory.count() != 0 {
		t.Errorf("no digest: %v, %d", err, r.memory.count())
	}
	digest.Store(digestFunc(func(ctx context.Context, _ *os.File, _, _ share.Bytes) (rules.Digest, error) {
		<-ctx.Done() // as a helper that hangs, and is killed
		if !errors.Is(context.Cause(ctx), errDigestLimit) {
			t.Errorf("a digest without end has ended: %v", context.Cause(ctx))
		}
		return rules.Digest{}, ctx.Err()
	}))
	if err := put(c, zeros, "x"); err == nil || r.memory.count() != 0 {
		t.Errorf("no end of the digest: %v, %d", err, r.memory.count())
	}
	if _, err := c.Get(zeros); !errors.Is(err, rules.ErrAbsent) {
		t.Errorf("unverified weights are there: %v", err)
	}
	digest.Store(digestFunc(digestOf))
	if err := put(c, keyOf("x"), "x"); err != nil {
		t.Error(err)
	}
}

// TestStrangers checks that a process of another namespace, or of none, gets nothing.
func TestStrangers(t *testing.T) {
	type owner struct {
		namespace string
		err       error
	}
	var peer atomic.Pointer[owner]
	r := start(t, func(o *Options) {
		o.Identify = func(p process.Process) (string, error) {
			if p.PID != os.Getpid() || p.UID != uint32(os.Geteuid()) {
				t.Errorf("the peer is %d of user %d", p.PID, p.UID)
			}
			found := peer.Load()
			return found.namespace, found.err
		}
	})
	peer.Store(&owner{namespace: "team"})
	if err := put(r.dial(t), keyOf("weights"), "weights"); err != nil {
		t.Fatal(err)
	}
	peer.Store(&owner{namespace: "others"})
	if _, err := r.dial(t).Get(keyOf("weights")); !errors.Is(err, rules.ErrNamespace) {
		t.Errorf("another namespace: %v", err)
	}
	peer.Store(&owner{"team", errors.New("no container")})
	if _, err := r.dial(t).Put(keyOf("other"), 1); !errors.Is(err, rules.ErrNamespace) {
		t.Errorf("in no container: %v", err)
	}
}

// TestWriterEnds checks that the weights of a writer that ends before its commit are gone, and can be stored by the next one.
func TestWriterEnds(t *testing.T) {
	r := start(t, nil)
	first, second := r.dial(t), r.dial(t)
	k := keyOf("weights")
	w, err := first.Put(k, 7)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := second.Put(k, 7); !errors.Is(err, rules.ErrBusy) {
		t.Errorf("two writers: %v", err)
	}
	if err := second.Commit(k); !errors.Is(err, rules.ErrWriter) {
		t.Errorf("commit of another's: %v", err)
	}
	w.Memory.Close()
	first.Close()
	r.await(t, 0)
	if err := put(second, k, "weights"); err != nil {
		t.Error(err)
	}
}

// TestStop checks that a store that ends releases all memory, also what is in use.
func TestStop(t *testing.T) {
	r := start(t, nil)
	c := r.dial(t)
	if err := put(c, keyOf("weights"), "weights"); err != nil {
		t.Fatal(err)
	}
	r.stop()
	if r.memory.count() != 0 {
		t.Errorf("%d pieces of memory are left", r.memory.count())
	}
	if _, err := c.Get(keyOf("weights")); err == nil {
		t.Error("the connection goes on")
	}
}

// TestBadFrames checks that a client that does not speak the protocol is told so, and harms nobody.
func TestBadFrames(t *testing.T) {
	r := start(t, nil)
	good := r.dial(t)
	frame, err := storewire.Request{Version: storewire.Version, Operation: storewire.Get}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		frame []byte
		want  storewire.Status
	}{
		"short":   {frame[:20], storewire.Malformed},
		"long":    {append(frame[:len(frame):len(frame)], make([]byte, 4000)...), storewire.Malformed},
		"version": {[]byte{9, 0, 1, 2, 3}, storewire.UnknownVersion},
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := net.Dial("unixpacket", r.socket)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if _, err := conn.Write(test.frame); err != nil {
				t.Fatal(err)
			}
			answer := make([]byte, 100)
			n, err := conn.Read(answer)
			if err != nil {
				t.Fatal(err)
			}
			if a, err := storewire.DecodeResponse(answer[:n]); err != nil || a.Status != test.want {
				t.Errorf("%+v, %v", a, err)
			}
			if n, _ := conn.Read(answer); n != 0 {
				t.Error("the connection goes on")
			}
		})
	}
	if err := put(good, keyOf("weights"), "weights"); err != nil {
		t.Error(err)
	}
}

// TestManyAtOnce lets programs that start together load the same weights: one of them stores them, and all others read them.
func TestManyAtOnce(t *testing.T) {
	r := start(t, nil)
	var stored sync.Map
	var all sync.WaitGroup
	for i := range 20 {
		c := r.dial(t)
		all.Go(func() {
			k := keyOf("weights")
			for {
				w, err := c.Get(k)
				if err == nil {
					w.Memory.Close()
					return
				}
				if errors.Is(err, rules.ErrAbsent) {
					if err = put(c, k, "weights"); err == nil {
						stored.Store(i, true)
						return
					}
				}
				if !errors.Is(err, rules.ErrBusy) && !errors.Is(err, rules.ErrPresent) {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	n := 0
	stored.Range(func(any, any) bool { n++; return true })
	if e := r.Entries(); n != 1 || len(e) != 1 || e[0].Users != 20 || r.memory.count() != 1 {
		t.Errorf("%d stored them: %+v, %d pieces of memory", n, e, r.memory.count())
	}
}

// Entries returns the weights that the store has.
func (s *Server) Entries() []rules.Entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.store.Entries()
}

// Evict drops weights without users until the given amount of memory is free or no such weights are left. It returns what it has dropped.
func (s *Server) Evict(bytes share.Bytes) []rules.Entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	dropped := s.store.Evict(bytes)
	s.release(dropped)
	return dropped
}
