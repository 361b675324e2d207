package gateway

import (
	"errors"
	"io"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// firstRoom is how many bytes are reserved for a body before any of it has arrived.
const firstRoom = 16 << 10

// arriving is a body that is being read. Memory is reserved for it as its bytes arrive, at most firstRoom or twice what has arrived, so that clients
// which announce large bodies and send nothing take no memory from others. If no more can be reserved, what has arrived is dropped, and the rest is
// read and discarded.
type arriving struct {
	all       *bodies
	most      int         // bytes that the body may have
	mostOfAll share.Bytes // bytes that all bodies together may have
	bytes     []byte
	reserved  share.Bytes // the capacity of bytes
	hasNoRoom bool
}

var refuseFull = newRefusal(causeQueueFull, "the bodies of the requests that wait are too large")

// read reads n more bytes. The error is io.ErrUnexpectedEOF if there are fewer.
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

// readAll reads until from ends. The reader from has to fail by itself if the body has more than most bytes.
func (a *arriving) readAll(from io.Reader) error {
	var end [1]byte // reads the end of from when the body is full
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

// grow makes room for at least one more byte and at most n, and reports whether it could.
func (a *arriving) grow(n int) bool {
	if a.hasNoRoom || len(a.bytes) < cap(a.bytes) {
		return !a.hasNoRoom
	}
	size := min(len(a.bytes)+n, max(2*len(a.bytes), firstRoom))
	if len(a.bytes) > 0 { // grow by at least a quarter, or many short messages would be copied each time
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

// trim releases the unused end of bytes if that is more than a quarter of it.
func (a *arriving) trim() {
	if rest := share.Bytes(cap(a.bytes) - len(a.bytes)); rest > a.reserved/4 {
		a.bytes = append(make([]byte, 0, len(a.bytes)), a.bytes...)
		a.all.release(rest)
		a.reserved -= rest
	}
}
