package ondemand

import (
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
	for i, listed := range devices {
		if g := s.named(listed.UUID); g != nil {
			s.note(listed, g.offer(&devices[i]), from)
		}
	}
	return devices, err
}

// note takes in what was found on a GPU that was asked from the given time on. An instance that its manager does not find any more,
// as after a reset of the GPU, is made again when it is asked for; one that only the driver's list lacks stays who has it.
func (s *Source) note(listed gpu.Device, now found, from time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.known {
		s.gpu(listed.UUID).ours = now.ours
	}
	for id, m := range s.made {
		if m.gpu.UUID != listed.UUID || !m.done || m.err != nil || m.since.After(from) {
			continue
		}
		if d, ok := with([]gpu.Device{listed}, m.uuid); ok {
			m.device = d
		}
		if now.known && !now.has(id, m) {
			delete(s.made, id)
		}
	}
}

// named gives what is known now of the GPU of that UUID; nil where its instances are not to be changed.
func (s *Source) named(uuid string) *device {
	s.mu.Lock()
	defer s.mu.Unlock()
	if g := s.gpu(uuid); g != nil {
		now := *g
		now.held = s.holds
		return &now
	}
	return nil
}

// gpu gives the GPU of that UUID. The caller holds the lock.
func (s *Source) gpu(uuid string) *device {
	for _, g := range s.gpus {
		if g.UUID == uuid {
			return g
		}
	}
	return nil
}

// found is what lies on a GPU by the word of its manager: nothing is left out there.
type found struct {
	known        bool
	ours, others []partition.Instance
}

// has says that an instance is in its place.
func (f found) has(id string, m *made) bool {
	return slices.ContainsFunc(slices.Concat(f.ours, f.others), func(i partition.Instance) bool {
		return i.UUID == m.uuid && place(m.gpu.UUID, i.Instance) == id
	})
}

// look asks the manager, and so the driver.
func (g *device) look() (f found, err error) {
	if g.manager == nil {
		return f, g.closed()
	}
	f.ours, f.others, err = g.manager.Instances()
	f.known = err == nil
	return f, err
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
	at := s.placed()
	for i, p := range processes {
		if id, ok := at[p.Slice]; ok {
			processes[i].Slice = id
		}
	}
	return processes, err
}

// placed gives the places of the instances, by UUID: also of idle ones, which somebody may use without a share. The caller holds the lock.
func (s *Source) placed() map[string]string {
	at := map[string]string{}
	for _, g := range s.gpus {
		for _, i := range g.ours {
			at[i.UUID] = place(g.UUID, i.Instance)
		}
	}
	for id, m := range s.made {
		at[m.uuid] = id
	}
	delete(at, "") // those that are not ready
	return at
}
