// Package ondemand offers places on GPUs in MIG mode, and makes an instance in one when a container is about to have it. What
// gshare has made there is not offered by itself: a place is the slice, whether its instance exists or not, so what a node
// offers never changes with the instances.
package ondemand

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gshare-dev/gshare/vgpu/mig"
	"github.com/gshare-dev/gshare/vgpu/node/gpu"
	"github.com/gshare-dev/gshare/vgpu/node/partition"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// GPU is one whose instances may be changed.
type GPU struct {
	UUID     string
	Profiles []string // that are offered; empty: all without media engines, of which a GPU has one set
	// Open takes over what an earlier agent left, and gives the driver's own model of the GPU. It may hang as long as a driver does.
	Open func() (*partition.Manager, *mig.Model, error)
}

// What keeps a container from its instance for a while.
var (
	ErrClosed = errors.New("the MIG instances of the GPU are not known yet")
	ErrMaking = errors.New("the MIG instance is being made") // which takes a second or two
)

// asked is how long an instance that nobody holds waits for who asked for it.
const asked = 30 * time.Second

// Source is a source of devices with places on some of them. It serves concurrent callers; those of UUID, Make and Hold never
// wait for the driver.
type Source struct {
	gpu.Source

	mu    sync.Mutex       // guards the following
	gpus  []*device        // which stay the same ones
	made  map[string]*made // by place
	holds []string         // places that containers have
}

// device is a GPU and what is known of it.
type device struct {
	GPU
	manager *partition.Manager // nil: it is not open yet
	model   *mig.Model
	why     error // it is not: what the last try has met
}

// made is an instance that was asked for.
type made struct {
	gpu    *device
	done   bool
	err    error
	uuid   string
	device gpu.Device // as it was listed with the instance; zero: it was not yet
	asked  time.Time  // zero: a container has it
	since  time.Time  // when that was done
}

// New gives a source that changes the instances of the given GPUs when it is asked to, once they are open.
func New(source gpu.Source, gpus []GPU) *Source {
	s := &Source{Source: source, made: map[string]*made{}}
	for _, g := range gpus {
		s.gpus = append(s.gpus, &device{GPU: g})
	}
	return s
}

// place names a place of a GPU for good: compute slices, memory slices, start.
func place(uuid string, at mig.Instance) string {
	return fmt.Sprintf("%sc%dm%d.%d", prefix(uuid), at.Profile.Compute, at.Profile.Memory, at.Start)
}

// prefix begins the names of all places of a GPU.
func prefix(uuid string) string { return strings.TrimPrefix(uuid, "GPU-") + "." }

// places lists those of a GPU that is open, as far as its driver says how many SMs they have, in the order in which package mig
// chooses among equals.
func (g *device) places() (all []mig.Instance) {
	for i := range g.model.Profiles {
		p := &g.model.Profiles[i]
		if p.Media || p.SMs == 0 || len(g.Profiles) > 0 && !slices.Contains(g.Profiles, p.Name) {
			continue
		}
		for _, start := range p.Starts {
			all = append(all, mig.Instance{Profile: p, Start: start})
		}
	}
	return all
}

// find gives the place of that name on a GPU that is open.
func (g *device) find(id string) (at mig.Instance, ok bool) {
	for _, at := range g.places() {
		if place(g.UUID, at) == id {
			return at, true
		}
	}
	return at, false
}

// of gives the GPU that a place is on; nil where a slice is none. The caller holds the lock.
func (s *Source) of(id string) *device {
	for _, g := range s.gpus {
		if strings.HasPrefix(id, prefix(g.UUID)) {
			return g
		}
	}
	return nil
}

// room is the memory slices of a place, bit by bit.
func room(i mig.Instance) uint8 { return uint8(mig.Layout{}.With(i).Used) }

// Devices implements gpu.Source: a GPU has the instances that others made, and places in what these leave.
func (s *Source) Devices() ([]gpu.Device, error) {
	from := time.Now()
	devices, err := s.Source.Devices()
	if err == nil {
		s.note(devices, from)
	}
	for i := range devices {
		if g := s.named(devices[i].UUID); g != nil {
			g.offer(&devices[i])
		}
	}
	return devices, err
}

// named gives what is known now of the GPU of that UUID; nil where its instances are not to be changed.
func (s *Source) named(uuid string) *device {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range s.gpus {
		if g.UUID == uuid {
			now := *g
			return &now
		}
	}
	return nil
}

// offer lists the instances and places of a device. One whose are not known has a fault, and is not offered whole.
func (g *device) offer(d *gpu.Device) {
	divided, listed := d.MIG, d.Instances
	d.MIG, d.Instances = true, nil
	others, err := g.others()
	if err == nil && !divided {
		err = partition.ErrNoMIG
	}
	if err != nil {
		d.Fault = cmp.Or(d.Fault, err.Error())
		return
	}
	var taken uint8
	theirs := map[string]bool{}
	for _, o := range others {
		taken |= room(o.Instance)
		theirs[o.UUID] = true
	}
	d.Instances = slices.DeleteFunc(slices.Clone(listed), func(i gpu.Instance) bool { return !theirs[i.UUID] })
	for _, at := range g.places() {
		if room(at)&taken == 0 {
			d.Instances = append(d.Instances, gpu.Instance{
				UUID: place(g.UUID, at), Profile: at.Profile.Name, SMs: at.Profile.SMs, Memory: memory(at.Profile, d.Memory, g.model), Room: room(at),
			})
		}
	}
}

// others lists the instances that others have made.
func (g *device) others() ([]partition.Instance, error) {
	if g.manager == nil {
		return nil, g.closed()
	}
	return g.manager.Others()
}

// closed says why a GPU is not open.
func (g *device) closed() error {
	if g.why == nil {
		return ErrClosed
	}
	return fmt.Errorf("%w: %w", ErrClosed, g.why)
}

// memory is what programs may use of an instance: what the driver says, or its part of the GPU's.
func memory(p *mig.Profile, all share.Bytes, m *mig.Model) share.Bytes {
	if p.MiB > 0 {
		return share.Bytes(p.MiB) * share.MiB
	}
	return all * share.Bytes(p.Memory) / share.Bytes(m.Memory)
}

// Processes implements gpu.Source: on an instance that was made for a place, they are on the place.
func (s *Source) Processes() ([]gpu.Process, error) {
	processes, err := s.Source.Processes()
	s.mu.Lock()
	defer s.mu.Unlock()
	at := map[string]string{}
	for id, m := range s.made {
		at[m.uuid] = id
	}
	for i, p := range processes {
		if id, ok := at[p.Slice]; ok && p.Slice != "" {
			processes[i].Slice = id
		}
	}
	return processes, err
}
