package tokenserver

import (
	"errors"
	"slices"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// Errors of Park.
var (
	// ErrUseUnknown is returned while it is not known how much memory the processes hold, because one of them does not reach the server or
	// has not reconnected since the server started.
	ErrUseUnknown = errors.New("not all processes say how much device memory they hold")
	// ErrNothingFree is returned if the processes hold all of their memory.
	ErrNothingFree = errors.New("the processes have given no device memory back")
)

// Park takes back the device memory that a container's processes do not hold, so that other containers can have it. From now on the processes
// can allocate only up to what they hold now, rounded up to MiB. So can processes that start later, and all of them while no server runs.
// Park returns that amount for the vGPU that keeps the most. A container that is already parked keeps what it has. If parking is not
// possible, Park changes nothing and returns an error.
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
	if err == nil && c.hasUnserved() { // it may have allocated memory that the page does not show
		err = ErrUseUnknown
	}
	if err != nil {
		return 0, errors.Join(err, c.Unpark())
	}
	return kept, nil
}

// Unpark gives back the memory that Park has taken.
func (c *Container) Unpark() error {
	for _, v := range c.vgpus {
		v.unpark()
	}
	return c.writePolicy(c.isIdleOnly(), c.limited())
}

// limited returns the container's vGPUs with the memory that its processes may hold now, and the part of the window that they are guaranteed
// now.
func (c *Container) limited() []VGPU {
	all := slices.Clone(c.VGPUs)
	for i := range all {
		switch {
		case i < len(c.vgpus):
			all[i].Memory -= c.vgpus[i].withheldBytes()
			all[i].QuotaRequest = c.vgpus[i].quotaNow()
		case c.Parked: // the vGPU has not joined its slice yet
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

// park takes back the memory that is not in use by adding it to the sum on the container's page. Comparing and adding are one atomic step: a
// process that allocates at the same time either finds the memory taken or is counted.
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
		kept := (min(max(0, share.Bytes(sum)), v.Memory) + share.MiB - 1) / share.MiB * share.MiB // processes write any sum
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

// used returns the memory that the processes hold. The caller holds the slice's lock.
func (v *vgpu) used() share.Bytes { return max(0, loadBytes(&v.page.at.Memory)-v.withheld) }

// observePeak records the most memory that the processes have held. It is called whenever they report device time, so it sees what a kernel
// needs, but not memory that is allocated and freed without running one. Processes write the sum, and may claim more than they can have.
func (v *vgpu) observePeak() { v.peak = max(v.peak, min(v.used(), v.Memory)) }
