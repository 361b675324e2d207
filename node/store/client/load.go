package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gshare-dev/gshare/node/store/cuda"
	"github.com/gshare-dev/gshare/vgpu/share"
	"github.com/gshare-dev/gshare/vgpu/store"
)

// pause is how long Load waits before it asks again, while another client stores the same weights.
const pause = 10 * time.Millisecond

// Write copies a part of the weights to the device.
type Write func(offset share.Bytes, from []byte) error

// Load maps weights read-only. If the store does not have them, Load stores them first: it calls fill, which writes all of them. While
// another client stores the same weights, Load waits, and takes over if that client ends without committing them. stored reports whether the
// mapped weights were written by fill. Load does not read the weights: the store has verified their digest, and a size other than bytes is
// an error. The lease lasts until the client is closed. Close it after the mapping is removed, and after an error.
func (c *Client) Load(ctx context.Context, d cuda.Device, k store.Key, bytes share.Bytes, fill func(Write) error) (m cuda.Mapping, stored bool, _ error) {
	for {
		w, err := c.Get(k)
		if err == nil {
			if w.Bytes != bytes { // a reader would go beyond their end
				return m, false, errors.Join(fmt.Errorf("the store has %d bytes of %s, not %d: they are other weights", w.Bytes, k.Digest, bytes), w.Memory.Close())
			}
			m, err = d.Map(w.Memory, w.Size, false)
			return m, stored, errors.Join(err, w.Memory.Close())
		}
		if errors.Is(err, store.ErrAbsent) {
			if err = c.store(d, k, bytes, fill); err == nil {
				stored = true
				continue
			}
		}
		if !errors.Is(err, store.ErrBusy) && !errors.Is(err, store.ErrPresent) {
			return m, false, err
		}
		select {
		case <-ctx.Done():
			return m, false, ctx.Err()
		case <-time.After(pause):
		}
	}
}

// store stores weights.
func (c *Client) store(d cuda.Device, k store.Key, bytes share.Bytes, fill func(Write) error) error {
	w, err := c.Put(k, bytes)
	if err != nil {
		return err
	}
	m, err := d.Map(w.Memory, w.Size, true)
	if err := errors.Join(err, w.Memory.Close()); err != nil {
		return err
	}
	err = fill(func(offset share.Bytes, from []byte) error { return d.Write(m, offset, from) })
	if err := errors.Join(err, d.Unmap(m)); err != nil {
		return err
	}
	return c.Commit(k)
}
