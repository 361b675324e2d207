// Package ondemand offers places on GPUs in MIG mode, and makes an instance in one when a container is about to have it. What
// gshare has made there is not offered by itself: a place is the slice, whether its instance exists or not, so what a node
// offers never changes with the instances.
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
	"github.com/gshare-dev/gshare/vgpu/share"
)

// GPU is one whose instances may be changed.
type GPU struct {
	UUID     string
	Model    *mig.Model                         // that of the manager's device
	Profiles []string                           // that are offered; empty: all without media engines, of which a GPU has one set
	Open     func() (*partition.Manager, error) // takes over what an earlier agent left

	manager *partition.Manager
}

// ErrMaking says that an instance is being made. Creation takes a second or two.
var ErrMaking = errors.New("the MIG instance is being made")

// asked is how long an instance that nobody holds waits for who asked for it.
const asked = 30 * time.Second

// Source is a source of devices with places on some of them. It serves concurrent callers; those of UUID, Make and Hold never
// wait for the driver.
type Source struct {
	gpu.Source
	gpus []GPU

	mu    sync.Mutex       // guards the following
	made  map[string]*made // by place
	holds []string         // places that containers have
}

// made is an instance that was asked for.
type made struct {
	gpu    GPU
	done   bool
	err    error
	uuid   string
	device gpu.Device // as it was listed with the instance; zero: it was not yet
	asked  time.Time  // zero: a container has it
	since  time.Time  // when that was done
}

// New gives a source that changes the instances of the given GPUs when it is asked to.
func New(source gpu.Source, gpus []GPU) *Source {
	return &Source{Source: source, gpus: gpus, made: map[string]*made{}}
}

// Open opens the managers, when no earlier agent uses them any more. Nothing else may be called before.
func (s *Source) Open() (err error) {
	for i := range s.gpus {
		if s.gpus[i].manager, err = s.gpus[i].Open(); err != nil {
			return err
		}
	}
	return nil
}

// place names a place of a GPU for good: compute slices, memory slices, start.
func place(uuid string, at mig.Instance) string {
	return fmt.Sprintf("%s.c%dm%d.%d", strings.TrimPrefix(uuid, "GPU-"), at.Profile.Compute, at.Profile.Memory, at.Start)
}

// places lists those of a GPU whose driver says how many SMs they have, in the order in which package mig chooses among equals.
func (g GPU) places() (all []mig.Instance) {
	for i := range g.Model.Profiles {
		p := &g.Model.Profiles[i]
		if p.Media || p.SMs == 0 || len(g.Profiles) > 0 && !slices.Contains(g.Profiles, p.Name) {
			continue
		}
		for _, start := range p.Starts {
			all = append(all, mig.Instance{Profile: p, Start: start})
		}
	}
	return all
}

// room is the memory slices of a place, bit by bit.
func room(i mig.Instance) uint8 { return uint8(mig.Layout{}.With(i).Used) }

// find gives the place of that name.
func (s *Source) find(id string) (g GPU, at mig.Instance, ok bool) {
	for _, g := range s.gpus {
		for _, at := range g.places() {
			if place(g.UUID, at) == id {
				return g, at, true
			}
		}
	}
	return g, at, false
}

// Devices implements gpu.Source: a GPU has the instances that others made, and places in what these leave.
func (s *Source) Devices() ([]gpu.Device, error) {
	from := time.Now()
	devices, err := s.Source.Devices()
	if err == nil {
		s.note(devices, from)
	}
	for i := range devices {
		for _, g := range s.gpus {
			if g.UUID == devices[i].UUID && devices[i].MIG {
				if failed := g.offer(&devices[i]); failed != nil {
					devices[i].Fault = failed.Error()
				}
			}
		}
	}
	return devices, err
}

func (g GPU) offer(d *gpu.Device) error {
	others, err := g.manager.Others()
	if err != nil {
		return err
	}
	var taken uint8
	theirs := map[string]bool{}
	for _, o := range others {
		taken |= room(o.Instance)
		theirs[o.UUID] = true
	}
	d.Instances = slices.DeleteFunc(slices.Clone(d.Instances), func(i gpu.Instance) bool { return !theirs[i.UUID] })
	for _, at := range g.places() {
		if room(at)&taken == 0 {
			d.Instances = append(d.Instances, gpu.Instance{
				UUID: place(g.UUID, at), Profile: at.Profile.Name, SMs: at.Profile.SMs, Memory: memory(at.Profile, d.Memory, g.Model), Room: room(at),
			})
		}
	}
	return nil
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
