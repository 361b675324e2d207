package tokenserver

import (
	"errors"
	"slices"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// Errors of Park.
var (
	// ErrUseUnknown is returned while it is not known how much memory the processes hold: one does not reach the server, or has not come
	// back since it started.
	ErrUseUnknown = errors.New("not all processes say how much device memory they hold")
	// ErrNothingFree is returned if the processes hold all of their memory.
	ErrNothingFree = errors.New("the processes have given no device memory back")
)

// Park takes back the device memory that a container's processes do not hold, so that it can be another's: from now on they can allocate
// up to what they hold now, in whole MiB, which it returns for the vGPU that keeps most. It is the same for a process that begins later, and
// while no server runs. A container that is parked keeps what it has. Park returns an error, and changes nothing, if that is not possible.
func (c *Container) Park() (kept share.Bytes, err error) {
	if c.hasUnserved() {
		return 0, ErrUseUnknown
	}
	for _, v := range c.vgpus {
		if err = v.park(); err != nil {
			break
		}
		kept = max(kept, v.Memory-v.withheldBytes())
	}
	if err == nil {
		err = c.writePolicy(c.isIdleOnly(), c.limited())
	}
	if err == nil && c.hasUnserved() { // it may have allocated beside what the page says
		err = ErrUseUnknown
	}
	if err != nil {
		return 0, errors.Join(err, c.Unpark())
	}
	return kept, nil
}

// Unpark gives the memory back that Park has taken.
func (c *Container) Unpark() error {
	for _, v := range c.vgpus {
		v.unpark()
	}
	return c.writePolicy(c.isIdleOnly(), c.limited())
}

// limited returns the vGPUs of the container with the memory that its processes may hold, and the part of the window that they have now.
func (c *Container) limited() []VGPU {
	all := slices.Clone(c.VGPUs)
	for i := range all {
		switch {
		case i < len(c.vgpus):
			all[i].Memory -= c.vgpus[i].withheldBytes()
			all[i].QuotaRequest = c.vgpus[i].quotaNow()
		case c.Parked: // it has not joined its slices yet
			all[i].Memory = min(c.Kept, all[i].Memory)
		}
	}
	return all
}

func (c *Container) isIdleOnly() bool {
	v := c.vgpus[0]
	v.Slice.mu.Lock()
	defer v.Slice.mu.Unlock()
	return v.idle
}

func (v *vgpu) withheldBytes() share.Bytes {
	v.Slice.mu.Lock()
	defer v.Slice.mu.Unlock()
	return v.withheld
}

// park takes back what of the memory is not in use. It adds that to the sum on the page, in one step with the comparison: a process that
// allocates at the same time finds it taken, or is counted.
func (v *vgpu) park() error {
	v.Slice.mu.Lock()
	defer v.Slice.mu.Unlock()
	switch {
	case v.parked:
		return nil
	case v.leased.any():
		return ErrUseUnknown
	}
	for {
		sum := v.page.at.Memory.Load()
		kept := (max(0, share.Bytes(sum)) + share.MiB - 1) / share.MiB * share.MiB
		if kept >= v.Memory {
			return ErrNothingFree
		}
		if v.page.at.Memory.CompareAndSwap(sum, sum+uint64(v.Memory-kept)) {
			v.parked, v.withheld = true, v.Memory-kept
			return nil
		}
	}
}

// hold parks a vGPU that has no processes yet.
func (v *vgpu) hold(kept share.Bytes) {
	v.parked, v.withheld = true, v.Memory-min(kept, v.Memory)
	v.page.at.Memory.Store(uint64(v.withheld))
}

func (v *vgpu) unpark() {
	v.Slice.mu.Lock()
	defer v.Slice.mu.Unlock()
	subtractBounded(&v.page.at.Memory, uint64(v.withheld), 0)
	v.parked, v.withheld = false, 0
}

// used returns the memory that the processes hold. The slice is locked.
func (v *vgpu) used() share.Bytes { return max(0, loadBytes(&v.page.at.Memory)-v.withheld) }

// observePeak keeps the most memory that the processes hold. It is called whenever they report device time, so what a kernel needs is seen, if not what is
// allocated and freed without one. Processes write the sum, and may claim more than they can have.
func (v *vgpu) observePeak() { v.peak = max(v.peak, min(v.used(), v.Memory)) }
