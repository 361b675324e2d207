package ondemand

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/gshare-dev/gshare/vgpu/node/gpu"
	"github.com/gshare-dev/gshare/vgpu/node/partition"
)

// Open begins to open the GPUs, when no earlier agent uses them any more and Hold has said what containers have. It does not wait:
// a GPU is open when its driver has answered, and is tried again after a time where that was an error. tell gets both, an error
// once. The channel is closed when all are open.
func (s *Source) Open(ctx context.Context, again time.Duration, tell func(uuid string, err error)) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	var left sync.WaitGroup
	for _, g := range s.gpus {
		left.Go(func() {
			for before := error(nil); ; pause(ctx, again) {
				err := s.open(g)
				if ctx.Err() == nil && (err == nil || before == nil || err.Error() != before.Error()) {
					tell(g.UUID, err)
				}
				if before = err; err == nil || ctx.Err() != nil {
					return
				}
			}
		})
	}
	all := make(chan struct{})
	go func() {
		left.Wait()
		close(all)
	}()
	return all
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// open tries once. The instances that containers have are held before anybody can ask for their room.
func (s *Source) open(g *device) error {
	manager, model, err := g.GPU.Open()
	var held map[string]string
	if err == nil {
		held, err = s.hold(device{GPU: g.GPU, manager: manager, model: model})
	}
	var devices []gpu.Device
	if err == nil {
		devices, err = s.Source.Devices()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if g.why = err; err != nil {
		return err
	}
	g.manager, g.model = manager, model
	for id, uuid := range held {
		m := &made{gpu: g, done: true, uuid: uuid, since: time.Now()}
		m.device, _ = with(devices, uuid) // else a later look finds it
		s.made[id] = m
	}
	s.release() // what containers had that have ended meanwhile
	return nil
}

// hold takes over the instances that containers have had since before this agent, by their places. One that is gone, as after a
// reboot, is made again when it is asked for.
func (s *Source) hold(g device) (uuids map[string]string, err error) {
	s.mu.Lock()
	holds := slices.Clone(s.holds)
	s.mu.Unlock()
	uuids = map[string]string{}
	for _, id := range holds {
		at, ok := g.find(id)
		if !ok {
			continue
		}
		instance, err := g.manager.Hold(at)
		if err != nil && !errors.Is(err, partition.ErrNotFound) {
			return nil, err
		}
		if err == nil {
			uuids[id] = instance.UUID
		}
	}
	return uuids, nil
}
