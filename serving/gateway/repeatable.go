package gateway

import (
	"errors"
	"io"
	"sync"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// maxKept bounds how much of a body is kept so that it can be sent again, and maxAllKept how much of all bodies of a gateway.
const (
	maxKept    = 1 * share.MiB
	maxAllKept = 256 * share.MiB
)

// repeatable is the body of a request that is passed on while it arrives and may have to be sent again: what has arrived is kept, within bounds.
// Several readers may use it concurrently; the latest one gets what is new.
type repeatable struct {
	reading sync.Mutex // held while waiting for the client
	from    io.Reader
	all     *bodies
	whole   func() // called when the body has arrived completely, unless it has been closed

	mu     sync.Mutex // guards what follows
	kept   []byte
	room   share.Bytes // reserved for kept
	lost   bool        // no longer kept completely
	err    error       // the error after what has arrived; io.EOF at the end
	ended  time.Time   // when it had arrived completely; zero if it has not
	closed bool
}

// newRepeatable returns a body whose first part has already been read.
func newRepeatable(first []byte, from io.Reader, all *bodies, whole func()) *repeatable {
	return &repeatable{kept: first, from: from, all: all, whole: whole}
}

// isWhole reports whether a new reader could read the body from its beginning.
func (b *repeatable) isWhole() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.lost
}

// sinceEnd returns how long ago the body had arrived completely, or 0 if it has not.
func (b *repeatable) sinceEnd() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended.IsZero() {
		return 0
	}
	return time.Since(b.ended)
}

// failure returns the error in reading from the client, or nil.
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

// reader returns a reader of the body from its beginning. The readers returned before must no longer be needed.
func (b *repeatable) reader() *bodyReader { return &bodyReader{body: b} }

// bodyReader reads a repeatable body.
type bodyReader struct {
	body *repeatable

	mu     sync.Mutex // guards what follows
	at     int
	closed bool
}

// Read returns what has already arrived, or else waits for the client.
func (r *bodyReader) Read(p []byte) (int, error) {
	if n, err := r.next(p); n > 0 || err != nil || len(p) == 0 {
		return n, err
	}
	b := r.body
	b.reading.Lock()
	defer b.reading.Unlock()
	if n, err := r.next(p); n > 0 || err != nil { // an earlier reader has read it in the meantime
		return n, err
	}
	n, err := b.from.Read(p)
	b.came(p[:n], err)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.at += n
	if r.closed { // the next reader finds it in kept
		return 0, errBodyClosed
	}
	return n, err
}

// Close closes the reader, not the body.
func (r *bodyReader) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	return nil
}

var errBodyClosed = errors.New("the body is not read any more")

// next returns what has arrived and has not been read yet, or nothing if the client has to be waited for.
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

// came notes what has arrived.
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
