package client

import (
	"errors"
	"os"

	"github.com/gshare-dev/gshare/node/store/cuda"
	"github.com/gshare-dev/gshare/vgpu/share"
	"github.com/gshare-dev/gshare/vgpu/store"
)

// Report is the result of Verify.
type Report struct {
	Bytes    share.Bytes  // of the weights
	Found    store.Digest // same as the key's, unless the weights have been changed
	Writable bool         // whether this program could have changed them
}

// Verify computes the digest of weights, and checks whether this program could change them although the store has committed them: it tries
// to map them for writing and to write a byte with its present value, which does no harm.
func (c *Client) Verify(d cuda.Device, k store.Key) (r Report, _ error) {
	w, err := c.Get(k)
	if err != nil {
		return r, err
	}
	defer w.Memory.Close()
	r.Bytes = w.Bytes
	m, err := d.Map(w.Memory, w.Size, false)
	if err != nil {
		return r, err
	}
	r.Found, err = d.Digest(m, w.Bytes)
	if err := errors.Join(err, d.Unmap(m)); err != nil {
		return r, err
	}
	r.Writable, err = writable(d, w.Memory, w.Size)
	return r, err
}

// writable reports whether memory can be mapped for writing, and written. If either is refused, the result is false and not an error.
func writable(d cuda.Device, memory *os.File, size share.Bytes) (bool, error) {
	m, err := d.Map(memory, size, true)
	if err != nil {
		return false, nil
	}
	first := make([]byte, 1)
	err = d.Read(first, m, 0)
	written := err == nil && d.Write(m, 0, first) == nil
	return written, errors.Join(err, d.Unmap(m))
}
