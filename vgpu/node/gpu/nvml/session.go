package nvml

import (
	"fmt"
	"sync"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gshare-dev/gshare/vgpu/node/gpu"
)

// session keeps the library initialised, and the handles of the devices: on a busy machine it takes the driver seconds to find
// them. It lasts as long as all devices answer. What was lost, or has come, shows in the next one.
type session struct {
	mu      sync.Mutex    // guards the following; held while the driver finds the handles
	handles []nvml.Device // nil: there is no session; one that is nil is lost
	inside  int           // who uses the handles
	ends    bool          // when the last of them has left

	health health // outlives the sessions
}

// enter gives the handles, until the caller leaves.
func (s *session) enter(library nvml.Interface) ([]nvml.Device, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.handles == nil {
		if err := s.begin(library); err != nil {
			return nil, err
		}
	}
	s.inside++
	return s.handles, nil
}

func (s *session) begin(library nvml.Interface) error {
	if r := library.Init(); r != nvml.SUCCESS {
		return fmt.Errorf("%w: NVML says %s", gpu.ErrNone, nvml.ErrorString(r))
	}
	count, r := library.DeviceGetCount()
	if r != nvml.SUCCESS {
		library.Shutdown()
		return failed("count devices", r)
	}
	s.handles, s.ends = make([]nvml.Device, count), count == 0
	for i := range s.handles {
		handle, r := library.DeviceGetHandleByIndex(i)
		if r != nvml.SUCCESS {
			s.ends = true
			continue
		}
		s.handles[i] = handle
	}
	s.follow(library)
	return nil
}

// follow lets the driver tell of errors as long as the session lasts. The caller holds the lock.
func (s *session) follow(library nvml.Interface) {
	set, r := library.EventSetCreate()
	if r != nvml.SUCCESS {
		return
	}
	for _, handle := range s.handles {
		if handle != nil {
			handle.RegisterEvents(nvml.EventTypeXidCriticalError, set) // one that has no such events is well without
		}
	}
	s.inside++
	go func() {
		well := s.health.watch(set, s.over)
		set.Free()
		s.leave(library, well)
	}()
}

func (s *session) over() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ends
}

// leave ends the session behind the last one, if anything went wrong: one who hangs keeps it for the others.
func (s *session) leave(library nvml.Interface, well bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inside--
	s.ends = s.ends || !well
	if s.ends && s.inside == 0 {
		library.Shutdown()
		s.handles = nil
	}
}
