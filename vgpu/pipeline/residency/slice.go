package residency

import (
	"slices"
	"time"

	"github.com/gshare-dev/gshare/vgpu/pipeline"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// slice is one shared slice.
type slice struct {
	pipeline.Slice
	free      share.Bytes
	residents []*function // in no order
	stale     []string    // tenants whose data may still be in free memory

	running *function
	request queued
	started time.Duration // when the running request took the slice, for its load if it has one
	loaded  time.Duration // when its load is expected to end
	until   time.Duration // when it is expected to end
	ended   time.Duration // when the last request ended
	meter   Meter
}

// time is how long one request of a function takes here; 0 if it cannot run here.
func (s *slice) time(f *function) time.Duration {
	if f.Memory > s.Kind.Memory {
		return 0
	}
	return f.Times[s.Kind.Name]
}

// victims are the residents to evict before a function fits, the least recently used first (FF-47).
func (s *slice) victims(f *function) []*function {
	missing := f.Memory - s.free
	if missing <= 0 {
		return nil
	}
	victims := slices.SortedFunc(slices.Values(s.residents), byUse)
	for i, v := range victims {
		if missing -= v.Memory; missing <= 0 {
			return victims[:i+1]
		}
	}
	return victims
}

// remove frees the memory of a resident. Its data remain in it until they are scrubbed or overwritten.
func (s *slice) remove(f *function) {
	s.free += f.Memory
	s.residents = slices.DeleteFunc(s.residents, func(other *function) bool { return other == f })
	if !slices.Contains(s.stale, f.Tenant) {
		s.stale = append(s.stale, f.Tenant)
	}
}

// add takes in the data of a function that fits. It says that free memory must be scrubbed before, because another tenant's
// data may be in it (U22).
func (s *slice) add(f *function) (scrub bool) {
	scrub = slices.ContainsFunc(s.stale, func(tenant string) bool { return tenant != f.Tenant })
	if scrub {
		s.stale = nil
	}
	s.free -= f.Memory
	s.residents = append(s.residents, f)
	return scrub
}
