package ondemand

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/gshare-dev/gshare/vgpu/node/gpu"
	"github.com/gshare-dev/gshare/vgpu/node/partition"
)

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

// note takes in what the driver listed from the given time on. An instance that is gone, as after a reset of the GPU, is made again
// when it is asked for.
func (s *Source) note(devices []gpu.Device, from time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, m := range s.made {
		if !m.done || m.err != nil || m.since.After(from) {
			continue
		}
		if listed, found := m.find(devices); listed && !found {
			delete(s.made, id)
		}
	}
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
