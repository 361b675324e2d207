package gateway

import (
	"errors"
	"io"
	"net/http"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// firstRoom is how many bytes are reserved for a body of which nothing has come.
const firstRoom = 16 << 10

// arriving is a body that is being read. Its room grows as its bytes arrive, so that clients that announce much and send nothing keep no room from
// others: no more is reserved than firstRoom or twice what has come. If there is no room for more, what has come is given up, and the rest is read
// and forgotten.
type arriving struct {
	all       *bodies
	most      int         // bytes of the body
	mostOfAll share.Bytes // bytes of all bodies
	bytes     []byte
	reserved  share.Bytes // the capacity of bytes
	hasNoRoom bool
}

var refuseFull = newRefusal(http.StatusTooManyRequests, reasonQueueFull, "the bodies of the requests that wait are too large")

// read reads n bytes more. The error is io.ErrUnexpectedEOF if there are fewer.
func (a *arriving) read(from io.Reader, n int) error {
	for n > 0 {
		if !a.grow(n) {
			_, err := io.CopyN(io.Discard, from, int64(n))
			return unexpected(err)
		}
		begin := len(a.bytes)
		a.bytes = a.bytes[:min(begin+n, cap(a.bytes))]
		if _, err := io.ReadFull(from, a.bytes[begin:]); err != nil {
			return unexpected(err)
		}
		n -= len(a.bytes) - begin
	}
	return nil
}

// readAll reads to the end of from, which fails beyond most bytes.
func (a *arriving) readAll(from io.Reader) error {
	var end [1]byte // where a full body has no room for what does not come
	for {
		spare := end[:]
		if len(a.bytes) < a.most {
			if !a.grow(a.most - len(a.bytes)) {
				_, err := io.Copy(io.Discard, from)
				return err
			}
			spare = a.bytes[len(a.bytes):cap(a.bytes)]
		}
		n, err := from.Read(spare)
		a.bytes = a.bytes[:len(a.bytes)+n]
		if errors.Is(err, io.EOF) {
			a.trim()
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// grow makes room for up to n bytes more and at least one, and reports whether there is.
func (a *arriving) grow(n int) bool {
	if a.hasNoRoom || len(a.bytes) < cap(a.bytes) {
		return !a.hasNoRoom
	}
	size := min(len(a.bytes)+n, max(2*len(a.bytes), firstRoom))
	if len(a.bytes) > 0 { // by a part of it at least: many short messages must not be copied each time
		size = max(size, min(len(a.bytes)+len(a.bytes)/4+64, a.most))
	}
	more := share.Bytes(size - cap(a.bytes))
	if !a.all.reserve(more, a.mostOfAll) {
		a.all.release(a.reserved)
		a.bytes, a.reserved, a.hasNoRoom = nil, 0, true
		return false
	}
	a.reserved += more
	a.bytes = append(make([]byte, 0, size), a.bytes...)
	return true
}

// trim gives up room that is not needed, if it is much.
func (a *arriving) trim() {
	if rest := share.Bytes(cap(a.bytes) - len(a.bytes)); rest > a.reserved/4 {
		a.bytes = append(make([]byte, 0, len(a.bytes)), a.bytes...)
		a.all.release(rest)
		a.reserved -= rest
	}
}
