package ondemand

import (
	"errors"
	"slices"
	"time"

	"github.com/gshare-dev/gshare/vgpu/node/gpu"
	"github.com/gshare-dev/gshare/vgpu/node/partition"
)

// Make wants the instance of a place to be there, and says why it is not yet: ErrMaking, or what the last try has met. A slice
// that is no place of these GPUs needs nothing.
func (s *Source) Make(id string) error {
	g, at, ok := s.find(id)
	if !ok {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.made[id]
	if m != nil && (m.done && m.err == nil || !m.done) {
		m.asked = time.Now()
		if !m.done {
			return ErrMaking
		}
		return nil
	}
	err := ErrMaking
	if m != nil {
		err = errors.Join(err, m.err)
	}
	s.release()
	m = &made{gpu: g, asked: time.Now()}
	s.made[id] = m
	go s.do(m, func() (partition.Instance, error) { return g.manager.ObtainAt(at) }) // nobody waits: a call that hangs cannot be ended
	return err
}

// do fills in an instance by what an act on the driver gives. The next one to ask tries again after an error.
func (s *Source) do(m *made, act func() (partition.Instance, error)) {
	instance, err := act()
	var devices []gpu.Device
	if err == nil {
		devices, err = s.Source.Devices()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	m.done, m.err, m.uuid = true, err, instance.UUID
	if i := slices.IndexFunc(devices, func(d gpu.Device) bool { return d.UUID == m.gpu.UUID }); i >= 0 {
		m.device = devices[i]
	}
}

// Adopt takes over the instance of a place that a container has had since before this agent. One that is gone, as after a reboot,
// is made again when it is asked for. It waits for the driver.
func (s *Source) Adopt(id string) {
	g, at, ok := s.find(id)
	if !ok {
		return
	}
	m := &made{gpu: g, asked: time.Now()}
	s.do(m, func() (partition.Instance, error) { return g.manager.Hold(at) })
	s.mu.Lock()
	defer s.mu.Unlock()
	if m.err == nil {
		s.made[id] = m
	}
}

// Hold says which slices containers have. What nobody has may be given to others, or removed where its room is wanted.
func (s *Source) Hold(ids []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.holds = slices.Clone(ids)
	for _, id := range ids {
		if m := s.made[id]; m != nil {
			m.asked = time.Time{}
		}
	}
	s.release()
}

// release forgets the instances that nobody has or has asked for lately. The caller holds the lock.
func (s *Source) release() {
	for id, m := range s.made {
		if m.done && !slices.Contains(s.holds, id) && time.Since(m.asked) > asked {
			delete(s.made, id)
			if m.err == nil {
				go m.gpu.manager.Release(m.uuid) // which waits for the driver's last call
			}
		}
	}
}

// UUID is what programs and the driver call a slice: of a place, its instance, where it is there.
func (s *Source) UUID(id string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := s.made[id]; m != nil && m.uuid != "" {
		return m.uuid
	}
	return id
}

// Listed is the device of a place as it was listed with the instance.
func (s *Source) Listed(id string) (d gpu.Device, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := s.made[id]; m != nil && m.done {
		return m.device, true
	}
	return d, false
}
