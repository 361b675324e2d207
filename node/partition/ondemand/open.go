package ondemand

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/gshare-dev/gshare/node/gpu"
	"github.com/gshare-dev/gshare/node/partition"
)

// Open starts to open all GPUs in the background. It must be called after SetUsed, and after any earlier agent has ended. A GPU that cannot
// be opened is retried after an interval. report is called with a nil error when a GPU has been opened, and with each new error. The
// returned channel is closed when all GPUs are open.
func (s *Source) Open(ctx context.Context, retry time.Duration, report func(uuid string, err error)) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	var opening sync.WaitGroup
	for _, d := range s.devices {
		opening.Go(func() {
			for last := error(nil); ; sleep(ctx, retry) {
				err := s.openGPU(d)
				if ctx.Err() == nil && (err == nil || last == nil || err.Error() != last.Error()) {
					report(d.UUID, err)
				}
				if last = err; err == nil || ctx.Err() != nil {
					return
				}
			}
		})
	}
	all := make(chan struct{})
	go func() {
		opening.Wait()
		close(all)
	}()
	return all
}

// sleep blocks for a duration, or until ctx is done.
func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// openGPU tries to open a GPU once. It first holds the MIG instances that containers use, so that no other instance can take their place.
func (s *Source) openGPU(d *device) error {
	manager, model, err := d.GPU.Open()
	var held map[string]string
	if err == nil {
		held, err = s.holdUsedInstances(device{GPU: d.GPU, manager: manager, model: model})
	}
	var devices []gpu.Device
	if err == nil {
		devices, err = s.Source.Devices()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if d.openErr = err; err != nil {
		return err
	}
	d.manager, d.model = manager, model
	for id, uuid := range held {
		i := &instance{gpu: d, done: true, uuid: uuid, doneTime: time.Now()}
		i.device, _ = deviceWithInstance(devices, uuid) // if it is not listed now, a later list will contain it
		s.instances[id] = i
	}
	s.releaseUnused() // containers may have ended meanwhile
	return nil
}

// holdUsedInstances holds the MIG instances that containers used before this agent started, and returns their UUIDs by placement. An
// instance that no longer exists, as after a reboot, is created again by the next Ensure.
func (s *Source) holdUsedInstances(d device) (uuids map[string]string, err error) {
	s.mu.Lock()
	used := slices.Clone(s.used)
	s.mu.Unlock()
	uuids = map[string]string{}
	for _, id := range used {
		at, ok := d.placementByID(id)
		if !ok {
			continue
		}
		i, err := d.manager.Hold(at)
		if err != nil && !errors.Is(err, partition.ErrNotFound) {
			return nil, err
		}
		if err == nil {
			uuids[id] = i.UUID
		}
	}
	return uuids, nil
}
