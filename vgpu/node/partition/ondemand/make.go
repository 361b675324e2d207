package ondemand

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gshare-dev/gshare/vgpu/mig"
	"github.com/gshare-dev/gshare/vgpu/node/gpu"
)

// Make wants the instance of a place to be there, and says why it is not yet: ErrClosed, ErrMaking, or what the last try has met.
// A slice that is no place of these GPUs needs nothing.
func (s *Source) Make(id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.of(id)
	if g == nil {
		return nil
	}
	if g.manager == nil {
		return g.closed()
	}
	at, ok := g.find(id)
	if !ok || !g.offers(at.Profile) && !slices.Contains(s.holds, id) {
		return fmt.Errorf("the GPU does not offer the place %.64q", id)
	}
	m, err := s.made[id], ErrMaking
	switch {
	case m == nil:
	case !m.done:
		m.asked = time.Now()
		return ErrMaking
	case m.err == nil && m.device.UUID == "":
		return errUnlisted // the next look finds it
	case m.err == nil:
		m.asked = time.Now()
		return nil
	default:
		err = errors.Join(err, m.err)
	}
	s.release()
	m = &made{gpu: g, asked: time.Now()}
	s.made[id] = m
	go s.do(m, at) // nobody waits: a call that hangs cannot be ended
	return err
}

// do makes an instance. The next one to ask tries again after an error.
func (s *Source) do(m *made, at mig.Instance) {
	uuid, listed, err := s.obtain(m.gpu, at)
	s.mu.Lock()
	defer s.mu.Unlock()
	m.done, m.err, m.since = true, err, time.Now()
	if err == nil {
		m.uuid, m.device = uuid, listed
	}
}

// obtain gives an instance, and the device as it is listed with it: nobody can use one without the driver's numbers.
func (s *Source) obtain(g *device, at mig.Instance) (uuid string, listed gpu.Device, err error) {
	instance, err := g.manager.Obtain(at)
	if err != nil {
		return "", listed, err
	}
	devices, err := s.Source.Devices()
	listed, ok := with(devices, instance.UUID)
	if err == nil && !ok {
		err = errUnlisted
	}
	if err != nil {
		g.manager.Release(instance.UUID) // for the next try
	}
	return instance.UUID, listed, err
}

// with gives the device that is listed with an instance. One that has a fault lists its instances too, or none.
func with(devices []gpu.Device, uuid string) (listed gpu.Device, ok bool) {
	for _, d := range devices {
		if slices.ContainsFunc(d.Instances, func(i gpu.Instance) bool { return i.UUID == uuid }) {
			return d, true
		}
	}
	return listed, false
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

// UUID is what programs and the driver call a slice: of a place, its instance; empty where that is not there, or not known.
func (s *Source) UUID(id string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of(id) == nil {
		return id
	}
	if m := s.made[id]; m != nil {
		return m.uuid
	}
	return ""
}

// Listed is the device of a place as it was listed with the instance.
func (s *Source) Listed(id string) (d gpu.Device, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := s.made[id]; m != nil && m.device.UUID != "" {
		return m.device, true
	}
	return d, false
}
