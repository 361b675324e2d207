package ondemand

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gshare-dev/gshare/node/gpu"
	"github.com/gshare-dev/gshare/vgpu/mig"
)

// Ensure returns nil if the MIG instance of a placement exists. Otherwise it starts to create it in the background, and returns ErrClosed,
// ErrCreating, or the error of the last attempt. It returns nil for slices that are not placements of this source.
func (s *Source) Ensure(id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.gpuOfPlacement(id)
	if d == nil {
		return nil
	}
	if d.manager == nil {
		return d.closedError()
	}
	at, ok := d.placementByID(id)
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
		return errUnlisted // wait for the next list
	case i.err == nil:
		i.lastEnsure = time.Now()
		return nil
	default:
		err = errors.Join(err, i.err)
	}
	s.releaseUnused()
	i = &instance{gpu: d, lastEnsure: time.Now()}
	s.instances[id] = i
	go s.createInstance(i, at) // in the background: a call that hangs in the driver cannot be cancelled
	return err
}

// createInstance creates a MIG instance and stores the result.
func (s *Source) createInstance(i *instance, at mig.Instance) {
	uuid, listed, err := s.obtainInstance(i.gpu, at)
	s.mu.Lock()
	defer s.mu.Unlock()
	i.done, i.err, i.doneTime = true, err, time.Now()
	if err == nil {
		i.uuid, i.device = uuid, listed
	}
}

// obtainInstance obtains a MIG instance from the GPU's manager, and lists its device again: containers need the IDs that the driver gave
// the instance.
func (s *Source) obtainInstance(d *device, at mig.Instance) (uuid string, listed gpu.Device, err error) {
	i, err := d.manager.Obtain(at)
	if err != nil {
		return "", listed, err
	}
	devices, err := s.Source.Devices()
	listed, ok := deviceWithInstance(devices, i.UUID)
	if err == nil && !ok {
		err = errUnlisted
	}
	if err != nil {
		d.manager.Release(i.UUID) // so that the next attempt can obtain it again
	}
	return i.UUID, listed, err
}

// deviceWithInstance returns the listed device that contains a MIG instance. A device with a fault may be listed without its instances.
func deviceWithInstance(devices []gpu.Device, uuid string) (listed gpu.Device, ok bool) {
	for _, d := range devices {
		if slices.ContainsFunc(d.Instances, func(i gpu.Instance) bool { return i.UUID == uuid }) {
			return d, true
		}
	}
	return listed, false
}

// SetUsed sets which slices containers use. The MIG instances of other placements may be reused, or removed to make room for new ones.
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

// releaseUnused releases the instances that no container uses and for which Ensure has not been called recently. The caller holds the lock.
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

// UUID returns the UUID by which programs and the driver know a slice. For a placement it is the UUID of its MIG instance, or an empty
// string if that does not exist or is unknown.
func (s *Source) UUID(id string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gpuOfPlacement(id) == nil {
		return id
	}
	if i := s.instances[id]; i != nil {
		return i.uuid
	}
	return ""
}

// DeviceOf returns the GPU of a placement as the driver listed it together with the placement's MIG instance, or false if there is none.
func (s *Source) DeviceOf(id string) (d gpu.Device, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := s.instances[id]; i != nil && i.device.UUID != "" {
		return i.device, true
	}
	return d, false
}
