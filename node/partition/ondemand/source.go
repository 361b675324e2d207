// Package ondemand offers placements for MIG instances on GPUs, and creates an instance when a container is about to use its placement. What
// a node offers does not change as instances come and go: a placement is a slice whether its instance exists or not, and an instance that
// gshare created is not offered in addition to its placement.
package ondemand

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gshare-dev/gshare/node/gpu"
	"github.com/gshare-dev/gshare/node/partition"
	"github.com/gshare-dev/gshare/vgpu/mig"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// GPU describes a GPU whose MIG instances gshare may create and remove.
type GPU struct {
	UUID     string
	Profiles []string // offered profiles; empty: all, except those with media engines, of which a GPU has only one set
	// Open takes over what an earlier agent left, and returns the GPU's model as the driver describes it. It may block for as long as the
	// driver does.
	Open func() (*partition.Manager, *mig.Model, error)
}

// Errors after which a container has to wait for its instance.
var (
	ErrClosed   = errors.New("the MIG instances of the GPU are not known yet")
	ErrCreating = errors.New("the MIG instance is being created") // which takes a second or two

	errUnlisted = errors.New("the driver does not list the MIG instance that was created")
)

// requestTimeout is how long a MIG instance is kept for a container that has requested it through Ensure but does not start to use it.
const requestTimeout = 30 * time.Second

// Source is a gpu.Source that offers MIG placements, each a slice whether its instance exists or not, on some of the devices. It is safe
// for concurrent use. UUID, Ensure and SetUsed never wait for the driver.
type Source struct {
	gpu.Source

	mu        sync.Mutex // guards the following
	devices   []*device  // the set does not change
	instances map[string]*instance
	used      []string // placement IDs that containers use
}

// device is the state of a GPU whose MIG instances are created on demand.
type device struct {
	GPU
	manager *partition.Manager // nil: not open yet
	model   *mig.Model
	openErr error // of the last attempt

	created []partition.Instance // by gshare, as of the last list
	used    []string             // that of the Source; set only in a snapshot
}

// instance is the MIG instance of a placement: requested, created or failed.
type instance struct {
	gpu        *device
	done       bool // creation has ended
	doneTime   time.Time
	err        error
	uuid       string
	device     gpu.Device // as listed with the instance; zero: not listed yet
	lastEnsure time.Time  // zero: a container uses it
}

// New returns a Source that creates MIG instances on the given GPUs once they are open. All other devices are listed as source lists them.
func New(source gpu.Source, gpus []GPU) *Source {
	s := &Source{Source: source, instances: map[string]*instance{}}
	for _, g := range gpus {
		s.devices = append(s.devices, &device{GPU: g})
	}
	return s
}

// Devices returns the node's devices. For the GPUs of this source it lists as instances those that others created, and the placements that
// are free beside them.
func (s *Source) Devices() ([]gpu.Device, error) {
	start := time.Now()
	devices, err := s.Source.Devices()
	for i, listed := range devices {
		if d := s.snapshotOf(listed.UUID); d != nil {
			s.storeInstances(listed, d.offerPlacements(&devices[i]), start)
		}
	}
	return devices, err
}

// Processes returns the processes on all slices. A process on the MIG instance of a placement is listed with the ID of the placement.
func (s *Source) Processes() ([]gpu.Process, error) {
	processes, err := s.Source.Processes()
	s.mu.Lock()
	defer s.mu.Unlock()
	ids := s.placementsByUUID()
	for i, p := range processes {
		if id, ok := ids[p.Slice]; ok {
			processes[i].Slice = id
		}
	}
	return processes, err
}

// storeInstances stores which MIG instances a GPU had when it was listed. An instance that no longer exists, as after a reset, is created
// again by the next Ensure. An instance that is missing only from the driver's list stays with its container.
func (s *Source) storeInstances(listed gpu.Device, c gpuInstances, start time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.known {
		s.deviceByUUID(listed.UUID).created = c.created
	}
	for id, i := range s.instances {
		if i.gpu.UUID != listed.UUID || !i.done || i.err != nil || i.doneTime.After(start) {
			continue
		}
		if d, ok := deviceWithInstance([]gpu.Device{listed}, i.uuid); ok {
			i.device = d
		}
		if c.known && !c.contains(id, i) {
			delete(s.instances, id)
		}
	}
}

// snapshotOf returns a copy of the state of a GPU, or nil if the source does not change its instances.
func (s *Source) snapshotOf(uuid string) *device {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d := s.deviceByUUID(uuid); d != nil {
		snapshot := *d
		snapshot.used = s.used
		return &snapshot
	}
	return nil
}

// deviceByUUID returns the GPU with a UUID, or nil if its MIG instances are not managed by this Source. The caller holds the lock.
func (s *Source) deviceByUUID(uuid string) *device {
	for _, d := range s.devices {
		if d.UUID == uuid {
			return d
		}
	}
	return nil
}

// gpuOfPlacement returns the GPU of the MIG placement with an ID, or nil if the ID is that of another slice. The caller holds the lock.
func (s *Source) gpuOfPlacement(id string) *device {
	for _, d := range s.devices {
		if strings.HasPrefix(id, placementIDPrefix(d.UUID)) {
			return d
		}
	}
	return nil
}

// placementsByUUID maps the UUIDs of existing MIG instances to their placement IDs. It includes idle instances, which a process without a
// share may use. The caller holds the lock.
func (s *Source) placementsByUUID() map[string]string {
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

// gpuInstances are the MIG instances that exist on a GPU. The lists are valid only if known is true.
type gpuInstances struct {
	known            bool
	created, foreign []partition.Instance // by gshare, by others
}

// contains reports whether an instance exists at the placement with the given ID.
func (c gpuInstances) contains(id string, i *instance) bool {
	return slices.ContainsFunc(slices.Concat(c.created, c.foreign), func(p partition.Instance) bool {
		return p.UUID == i.uuid && placementID(i.gpu.UUID, p.Instance) == id
	})
}

// listInstances returns the MIG instances of the GPU from its manager. It waits for the driver.
func (d *device) listInstances() (c gpuInstances, err error) {
	if d.manager == nil {
		return c, d.closedError()
	}
	c.created, c.foreign, err = d.manager.Instances()
	c.known = err == nil
	return c, err
}

// closedError returns ErrClosed with the reason why the MIG instances of a GPU are not known yet.
func (d *device) closedError() error {
	if d.openErr == nil {
		return ErrClosed
	}
	return fmt.Errorf("%w: %w", ErrClosed, d.openErr)
}

// offerPlacements replaces the MIG instances of a listed GPU by the instances that others created and the placements that are free, and
// returns the existing instances. If they cannot be listed, the GPU gets a fault.
func (d *device) offerPlacements(listed *gpu.Device) gpuInstances {
	original := *listed
	listed.MIG, listed.Instances = true, nil
	c, err := d.listInstances()
	if err == nil && !original.MIG {
		err = partition.ErrNoMIG
	}
	if err != nil {
		listed.Fault = cmp.Or(listed.Fault, err.Error())
		return gpuInstances{}
	}
	listed.Instances = append(c.foreignAmong(original.Instances), d.freePlacements(c, listed.Memory, c.faults(original))...)
	return c
}

// freePlacements returns the placements that do not overlap with instances of others and that are offered, or used by a container. A
// placement has the fault of its instance, even if the instance is idle.
func (d *device) freePlacements(c gpuInstances, total share.Bytes, faults map[string]string) (free []gpu.Instance) {
	uuids := map[mig.Instance]string{}
	for _, i := range c.created {
		uuids[i.Instance] = i.UUID
	}
	for _, at := range d.placements() {
		id := placementID(d.UUID, at)
		if (d.isOffered(at.Profile) || slices.Contains(d.used, id)) && memorySlices(at)&c.foreignMemorySlices() == 0 {
			free = append(free, gpu.Instance{
				UUID: id, Profile: at.Profile.Name, SMs: at.Profile.SMs, Memory: instanceMemory(at.Profile, total, d.model),
				MemorySlices: memorySlices(at), Fault: faults[uuids[at]],
			})
		}
	}
	return free
}

// faults returns the faults of a GPU's MIG instances by UUID. An instance that gshare created and that is not listed has the error for
// which the list is incomplete.
func (c gpuInstances) faults(listed gpu.Device) map[string]string {
	faults := map[string]string{}
	for _, i := range c.created {
		faults[i.UUID] = listed.Incomplete
	}
	for _, i := range listed.Instances {
		faults[i.UUID] = i.Fault
	}
	delete(faults, "") // of placements without an instance
	return faults
}

// foreignMemorySlices returns the memory slices that instances created by others occupy, as a bit set.
func (c gpuInstances) foreignMemorySlices() (all uint8) {
	for _, i := range c.foreign {
		all |= memorySlices(i.Instance)
	}
	return all
}

// foreignAmong returns the listed instances that others created.
func (c gpuInstances) foreignAmong(listed []gpu.Instance) []gpu.Instance {
	return slices.DeleteFunc(slices.Clone(listed), func(i gpu.Instance) bool {
		return !slices.ContainsFunc(c.foreign, func(f partition.Instance) bool { return f.UUID == i.UUID })
	})
}

// placementID returns the ID of a placement, which never changes: the GPU, then compute slices, memory slices and the first memory slice.
func placementID(uuid string, at mig.Instance) string {
	return fmt.Sprintf("%sc%dm%d.%d", placementIDPrefix(uuid), at.Profile.Compute, at.Profile.Memory, at.Start)
}

// placementIDPrefix returns the common prefix of the IDs of a GPU's MIG placements.
func placementIDPrefix(uuid string) string { return strings.TrimPrefix(uuid, "GPU-") + "." }

// placements returns all placements on an open GPU in the order in which package mig chooses between equal ones. It omits profiles with
// media engines, and those whose number of SMs the driver does not report.
func (d *device) placements() (all []mig.Instance) {
	for i := range d.model.Profiles {
		p := &d.model.Profiles[i]
		if p.Media || p.SMs == 0 {
			continue
		}
		for _, start := range p.Starts {
			all = append(all, mig.Instance{Profile: p, Start: start})
		}
	}
	return all
}

// placementByID returns the MIG placement with an ID on an open GPU, even if it is not offered: a container may still use a placement that
// was offered earlier.
func (d *device) placementByID(id string) (at mig.Instance, ok bool) {
	for _, at := range d.placements() {
		if placementID(d.UUID, at) == id {
			return at, true
		}
	}
	return at, false
}

// isOffered reports whether containers may use placements of a profile, according to the configuration.
func (d *device) isOffered(p *mig.Profile) bool {
	return len(d.Profiles) == 0 || slices.Contains(d.Profiles, p.Name)
}

// MissingProfiles returns the configured profiles for which an open GPU has no placement, not counting placements with media engines.
func (s *Source) MissingProfiles(uuid string) (profiles []string) {
	d := s.snapshotOf(uuid)
	if d == nil || d.model == nil {
		return nil
	}
	all := d.placements()
	return slices.DeleteFunc(slices.Clone(d.Profiles), func(name string) bool {
		return slices.ContainsFunc(all, func(at mig.Instance) bool { return at.Profile.Name == name })
	})
}

// WithdrawnPlacements returns the placements that containers still use but that are no longer offered to new ones.
func (s *Source) WithdrawnPlacements() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.used), func(id string) bool {
		d := s.gpuOfPlacement(id)
		if d == nil || d.model == nil {
			return true
		}
		at, ok := d.placementByID(id)
		return !ok || d.isOffered(at.Profile)
	})
}

// memorySlices returns the memory slices that an instance occupies, as a bit set.
func memorySlices(i mig.Instance) uint8 { return uint8(mig.Layout{}.With(i).Used) }

// instanceMemory returns the memory of an instance: what the driver reports for its profile, or else its fraction of the GPU's memory.
func instanceMemory(p *mig.Profile, total share.Bytes, m *mig.Model) share.Bytes {
	if p.MiB > 0 {
		return share.Bytes(p.MiB) * share.MiB
	}
	return total * share.Bytes(p.Memory) / share.Bytes(m.Memory)
}
