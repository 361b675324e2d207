package gateway

import (
	"errors"
	"io"
	"sync"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// maxKept bounds what is kept of a body to send it again, and maxAllKept that of all bodies of a gateway.
const (
	maxKept    = 1 * share.MiB
	maxAllKept = 256 * share.MiB
)

// repeatable is the body of a request that is passed on as it comes and may have to be sent again: what has come of it is kept, within bounds.
// Its readers, of which the last one gets what is new, may be used concurrently.
type repeatable struct {
	reading sync.Mutex // held while the client is waited for
	from    io.Reader
	all     *bodies
	whole   func() // called when the body has come whole, unless it is closed

	mu     sync.Mutex // guards what follows
	kept   []byte
	room   share.Bytes // reserved for kept
	lost   bool        // not all is kept
	err    error       // after what has come; io.EOF at the end
	ended  time.Time   // when it had come whole; zero: it has not
	closed bool
}

// newRepeatable returns a body of which the first part has been read.
func newRepeatable(first []byte, from io.Reader, all *bodies, whole func()) *repeatable {
	return &repeatable{kept: first, from: from, all: all, whole: whole}
}

// isWhole reports whether a reader could read it from the beginning.
func (b *repeatable) isWhole() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.lost
}

// sinceEnd returns for how long it has been there whole; 0 if it is not.
func (b *repeatable) sinceEnd() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended.IsZero() {
		return 0
	}
	return time.Since(b.ended)
}

// failure returns the error of the client's side, or nil.
func (b *repeatable) failure() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if errors.Is(b.err, io.EOF) {
		return nil
	}
	return b.err
}

// close gives up the body.
func (b *repeatable) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	b.giveUp()
}

func (b *repeatable) giveUp() {
	b.all.release(b.room)
	b.kept, b.room, b.lost = nil, 0, true
}

// reader returns a reader of the body from its beginning. Those that were returned before must not be needed any more.
func (b *repeatable) reader() *bodyReader { return &bodyReader{body: b} }

// bodyReader reads a repeatable body.
type bodyReader struct {
	body *repeatable

	mu     sync.Mutex // guards what follows
	at     int
	closed bool
}

// Read returns what has come already, or else waits for the client.
func (r *bodyReader) Read(p []byte) (int, error) {
	if n, err := r.next(p); n > 0 || err != nil || len(p) == 0 {
		return n, err
	}
	b := r.body
	b.reading.Lock()
	defer b.reading.Unlock()
	if n, err := r.next(p); n > 0 || err != nil { // read by an earlier reader meanwhile
		return n, err
	}
	n, err := b.from.Read(p)
	b.came(p[:n], err)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.at += n
	if r.closed { // the next reader finds it among what is kept
		return 0, errBodyClosed
	}
	return n, err
}

// Close ends the use of the reader, not that of the body.
func (r *bodyReader) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	return nil
}

var errBodyClosed = errors.New("the body is not read any more")

// next returns what has come and was not read yet: nothing if the client has to be waited for.
func (r *bodyReader) next(p []byte) (int, error) {
	b := r.body
	r.mu.Lock()
	defer r.mu.Unlock()
	b.mu.Lock()
	defer b.mu.Unlock()
	if r.closed || b.closed {
		return 0, errBodyClosed
	}
	if r.at < len(b.kept) {
		n := copy(p, b.kept[r.at:])
		r.at += n
		return n, nil
	}
	return 0, b.err
}

// came notes what has come.
func (b *repeatable) came(p []byte, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.err = err
	if errors.Is(err, io.EOF) && !b.closed {
		if b.ended.IsZero() {
			b.ended = time.Now()
		}
		b.whole()
	}
	n := share.Bytes(len(p))
	if b.lost || n == 0 {
		return
	}
	if share.Bytes(len(b.kept))+n > maxKept || !b.all.reserve(n, maxAllKept) {
		b.giveUp()
		return
	}
	b.room += n
	b.kept = append(b.kept, p...)
}
