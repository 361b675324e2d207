package nvml

import (
	"fmt"
	"sync"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gshare-dev/gshare/node/gpu"
)

// session keeps NVML initialized and caches the handles of the GPUs, which take seconds to look up on a busy machine. It becomes stale when
// a GPU fails to answer; the next session finds GPUs that are new or have been lost.
type session struct {
	mu      sync.Mutex    // guards the following; held while the driver looks up handles
	handles []nvml.Device // nil: there is no session; a nil element is a lost device
	where   []locality    // of the GPUs with these handles; it does not change while the machine runs
	users   int           // number of callers that use the handles
	stale   bool          // it ends with its last user

	health health // outlives the sessions
}

// acquire returns the GPU handles with their localities, and initializes NVML if no session is open. The caller must call release afterwards.
func (s *session) acquire(library nvml.Interface) ([]nvml.Device, []locality, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.handles == nil {
		if err := s.open(library); err != nil {
			return nil, nil, err
		}
	}
	s.users++
	return s.handles, s.where, nil
}

// open initializes NVML and looks up the GPU handles. The caller holds the lock.
func (s *session) open(library nvml.Interface) error {
	if r := library.Init(); r != nvml.SUCCESS {
		return fmt.Errorf("%w: initialize NVML: %s", gpu.ErrNoGPU, nvml.ErrorString(r))
	}
	count, r := library.DeviceGetCount()
	if r != nvml.SUCCESS {
		library.Shutdown()
		return callError("count devices", r)
	}
	s.handles, s.stale = make([]nvml.Device, count), count == 0
	for i := range s.handles {
		handle, r := library.DeviceGetHandleByIndex(i)
		if r != nvml.SUCCESS {
			s.stale = true
			continue
		}
		s.handles[i] = handle
	}
	s.where = localitiesOf(s.handles)
	s.watchEvents(library)
	return nil
}

// watchEvents starts a goroutine that records the driver's error events until the session is stale. The caller holds the lock.
func (s *session) watchEvents(library nvml.Interface) {
	set, r := library.EventSetCreate()
	if r != nvml.SUCCESS {
		return
	}
	for _, handle := range s.handles {
		if handle != nil {
			handle.RegisterEvents(nvml.EventTypeXidCriticalError, set) // devices without such events count as healthy
		}
	}
	s.users++
	go func() {
		ok := s.health.watch(set, s.isStale)
		set.Free()
		s.release(library, ok)
	}()
}

func (s *session) isStale() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stale
}

// release ends a caller's use of the GPU handles. If ok is false, the session becomes stale. The last user of a stale session shuts NVML
// down, so a caller whose call hangs keeps the session usable for the others.
func (s *session) release(library nvml.Interface, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.users--
	s.stale = s.stale || !ok
	if s.stale && s.users == 0 {
		library.Shutdown()
		s.handles = nil
	}
}
