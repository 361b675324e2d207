package ondemand

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gshare-dev/gshare/vgpu/mig"
	"github.com/gshare-dev/gshare/vgpu/node/gpu"
)

// Ensure returns nil if the instance of a placement exists. Otherwise it starts to create it, and returns ErrClosed, ErrCreating, or the error
// of the last attempt. It returns nil for slices that are not placements of this source.
func (s *Source) Ensure(id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.deviceOf(id)
	if d == nil {
		return nil
	}
	if d.manager == nil {
		return d.closedError()
	}
	at, ok := d.placement(id)
	if !ok || !d.isOffered(at.Profile) && !slices.Contains(s.used, id) {
		return fmt.Errorf("placement %.64q is not offered by the GPU", id)
	}
	i, err := s.instances[id], ErrCreating
	switch {
	case i == nil:
	case !i.done:
		i.lastEnsure = time.Now()
		return ErrCreating
	case i.err == nil && i.device.UUID == "":
		return errUnlisted // until the next list
	case i.err == nil:
		i.lastEnsure = time.Now()
		return nil
	default:
		err = errors.Join(err, i.err)
	}
	s.releaseUnused()
	i = &instance{gpu: d, lastEnsure: time.Now()}
	s.instances[id] = i
	go s.create(i, at) // a call that hangs in the driver cannot be cancelled, so nobody waits for it
	return err
}

// create creates an instance and stores the result.
func (s *Source) create(i *instance, at mig.Instance) {
	uuid, listed, err := s.obtain(i.gpu, at)
	s.mu.Lock()
	defer s.mu.Unlock()
	i.done, i.err, i.doneTime = true, err, time.Now()
	if err == nil {
		i.uuid, i.device = uuid, listed
	}
}

// obtain obtains an instance from the manager, and returns its device as listed with it: containers need the driver's IDs.
func (s *Source) obtain(d *device, at mig.Instance) (uuid string, listed gpu.Device, err error) {
	i, err := d.manager.Obtain(at)
	if err != nil {
		return "", listed, err
	}
	devices, err := s.Source.Devices()
	listed, ok := deviceWith(devices, i.UUID)
	if err == nil && !ok {
		err = errUnlisted
	}
	if err != nil {
		d.manager.Release(i.UUID) // for the next attempt
	}
	return i.UUID, listed, err
}

// deviceWith returns the device that is listed with an instance. A device with a fault may be listed without its instances.
func deviceWith(devices []gpu.Device, uuid string) (listed gpu.Device, ok bool) {
	for _, d := range devices {
		if slices.ContainsFunc(d.Instances, func(i gpu.Instance) bool { return i.UUID == uuid }) {
			return d, true
		}
	}
	return listed, false
}

// SetUsed replaces the set of slices that containers use. The instances of other placements may be reused, or removed to free their slices.
func (s *Source) SetUsed(ids []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used = slices.Clone(ids)
	for _, id := range ids {
		if i := s.instances[id]; i != nil {
			i.lastEnsure = time.Time{}
		}
	}
	s.releaseUnused()
}

// releaseUnused releases the instances that no container uses and that nobody has requested lately. The caller holds the lock.
func (s *Source) releaseUnused() {
	for id, i := range s.instances {
		if i.done && !slices.Contains(s.used, id) && time.Since(i.lastEnsure) > requestTimeout {
			delete(s.instances, id)
			if i.err == nil {
				go i.gpu.manager.Release(i.uuid) // which may wait for the driver
			}
		}
	}
}

// UUID returns the UUID by which programs and the driver know a slice: of a placement, that of its instance, or an empty string if that does
// not exist or is unknown.
func (s *Source) UUID(id string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.deviceOf(id) == nil {
		return id
	}
	if i := s.instances[id]; i != nil {
		return i.uuid
	}
	return ""
}

// DeviceOf returns the device of a placement as it was listed with the placement's instance.
func (s *Source) DeviceOf(id string) (d gpu.Device, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := s.instances[id]; i != nil && i.device.UUID != "" {
		return i.device, true
	}
	return d, false
}
