// Package ondemand offers placements for MIG instances on GPUs, and creates an instance when a container is about to use its placement.
// What a node offers never changes with the instances: a placement is a slice whether its instance exists or not, and an instance that
// gshare created is not offered in addition.
package ondemand

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gshare-dev/gshare/vgpu/mig"
	"github.com/gshare-dev/gshare/vgpu/node/gpu"
	"github.com/gshare-dev/gshare/vgpu/node/partition"
)

// GPU describes a GPU whose instances may be changed.
type GPU struct {
	UUID     string
	Profiles []string // offered profiles; empty: all without media engines, of which a GPU has one set
	// Open takes over what an earlier agent left, and returns the GPU's model as the driver describes it. It may block for as long as the
	// driver does.
	Open func() (*partition.Manager, *mig.Model, error)
}

// Errors for which a container has to wait for its instance.
var (
	ErrClosed   = errors.New("the MIG instances of the GPU are not known yet")
	ErrCreating = errors.New("the MIG instance is being created") // which takes a second or two

	errUnlisted = errors.New("the driver does not list the MIG instance that was created")
)

// requestTimeout is how long an instance is kept for a caller of Ensure that does not appear in SetUsed.
const requestTimeout = 30 * time.Second

// Source is a gpu.Source that offers placements on some of the devices. It is safe for concurrent use. UUID, Ensure and SetUsed never wait
// for the driver.
type Source struct {
	gpu.Source

	mu        sync.Mutex // guards the following
	devices   []*device  // the set does not change
	instances map[string]*instance
	used      []string // placement IDs that containers use
}

// device is the state of a GPU.
type device struct {
	GPU
	manager *partition.Manager // nil: not open yet
	model   *mig.Model
	openErr error // of the last attempt

	created []partition.Instance // by gshare, as of the last list
	used    []string             // the source's, in a snapshot only
}

// instance is the requested instance of a placement.
type instance struct {
	gpu        *device
	done       bool // creation has ended
	doneTime   time.Time
	err        error
	uuid       string
	device     gpu.Device // as listed with the instance; zero: not listed yet
	lastEnsure time.Time  // zero: a container uses it
}

// New returns a Source that creates instances on the given GPUs, once they are open.
func New(source gpu.Source, gpus []GPU) *Source {
	s := &Source{Source: source, instances: map[string]*instance{}}
	for _, g := range gpus {
		s.devices = append(s.devices, &device{GPU: g})
	}
	return s
}

// Devices implements gpu.Source. A GPU of this source has the instances that others created, and the placements that these leave free.
func (s *Source) Devices() ([]gpu.Device, error) {
	start := time.Now()
	devices, err := s.Source.Devices()
	for i, listed := range devices {
		if d := s.snapshot(listed.UUID); d != nil {
			s.update(listed, d.setInstances(&devices[i]), start)
		}
	}
	return devices, err
}

// Processes implements gpu.Source. Processes on the instance of a placement are listed with the placement.
func (s *Source) Processes() ([]gpu.Process, error) {
	processes, err := s.Source.Processes()
	s.mu.Lock()
	defer s.mu.Unlock()
	ids := s.placementIDs()
	for i, p := range processes {
		if id, ok := ids[p.Slice]; ok {
			processes[i].Slice = id
		}
	}
	return processes, err
}

// update stores the contents of a GPU whose listing began at start. An instance that its manager does not find any more, as after a reset,
// is created again by the next Ensure. One that is missing from the driver's list only stays with its container.
func (s *Source) update(listed gpu.Device, c contents, start time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.known {
		s.deviceByUUID(listed.UUID).created = c.created
	}
	for id, i := range s.instances {
		if i.gpu.UUID != listed.UUID || !i.done || i.err != nil || i.doneTime.After(start) {
			continue
		}
		if d, ok := deviceWith([]gpu.Device{listed}, i.uuid); ok {
			i.device = d
		}
		if c.known && !c.contains(id, i) {
			delete(s.instances, id)
		}
	}
}

// snapshot returns a copy of the state of a GPU, or nil if the source does not change its instances.
func (s *Source) snapshot(uuid string) *device {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d := s.deviceByUUID(uuid); d != nil {
		snapshot := *d
		snapshot.used = s.used
		return &snapshot
	}
	return nil
}

// deviceByUUID returns a GPU of this source, or nil. The caller holds the lock.
func (s *Source) deviceByUUID(uuid string) *device {
	for _, d := range s.devices {
		if d.UUID == uuid {
			return d
		}
	}
	return nil
}

// deviceOf returns the GPU of a placement, or nil if the slice is not a placement of this source. The caller holds the lock.
func (s *Source) deviceOf(id string) *device {
	for _, d := range s.devices {
		if strings.HasPrefix(id, idPrefix(d.UUID)) {
			return d
		}
	}
	return nil
}

// placementIDs returns the placements of the existing instances by UUID, including idle ones, which somebody may use without a share. The
// caller holds the lock.
func (s *Source) placementIDs() map[string]string {
	ids := map[string]string{}
	for _, d := range s.devices {
		for _, i := range d.created {
			ids[i.UUID] = placementID(d.UUID, i.Instance)
		}
	}
	for id, i := range s.instances {
		ids[i.uuid] = id
	}
	delete(ids, "") // of instances that are not ready
	return ids
}

// contents are the instances on a GPU, as its manager lists them. The list is complete if it is known.
type contents struct {
	known            bool
	created, foreign []partition.Instance // by gshare, by others
}

// contains reports whether an instance exists at its placement.
func (c contents) contains(id string, i *instance) bool {
	return slices.ContainsFunc(slices.Concat(c.created, c.foreign), func(p partition.Instance) bool {
		return p.UUID == i.uuid && placementID(i.gpu.UUID, p.Instance) == id
	})
}

// list returns the contents of the GPU from its manager, which waits for the driver.
func (d *device) list() (c contents, err error) {
	if d.manager == nil {
		return c, d.closedError()
	}
	c.created, c.foreign, err = d.manager.Instances()
	c.known = err == nil
	return c, err
}

// closedError returns ErrClosed with the reason why a GPU is not open.
func (d *device) closedError() error {
	if d.openErr == nil {
		return ErrClosed
	}
	return fmt.Errorf("%w: %w", ErrClosed, d.openErr)
}
