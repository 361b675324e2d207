package client

import (
	"errors"
	"os"

	"github.com/gshare-dev/gshare/vgpu/node/store/cuda"
	"github.com/gshare-dev/gshare/vgpu/share"
	"github.com/gshare-dev/gshare/vgpu/store"
)

// Report says what Verify found.
type Report struct {
	Bytes    share.Bytes  // of the weights
	Found    store.Digest // which is that of the key, unless the weights have been changed
	Writable bool         // whether this program could have changed them
}

// Verify computes the digest of weights, and tries whether it can write them although the store has committed them: it maps them for writing and
// writes a byte that is there already, which harms nobody.
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

// writable reports whether memory can be mapped for writing, and written. A refusal of either is none of its errors.
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
