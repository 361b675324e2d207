package residency

import (
	"slices"
	"time"

	"github.com/gshare-dev/gshare/vgpu/pipeline"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// slice is one shared slice. The fields from running to until describe the request that runs on it.
type slice struct {
	pipeline.Slice
	free      share.Bytes
	residents []*function // whose data is on the slice, in no order
	stale     []string    // tenants whose data may still be in free memory

	running *function
	request queuedRequest
	started time.Duration // when it took the slice, including its load
	loaded  time.Duration // expected end of its load
	until   time.Duration // its expected end
	ended   time.Duration // when the last request ended
	meter   Meter
}

// executionTime returns the time that one request of a function takes on the slice; 0 if the function cannot run there.
func (s *slice) executionTime(f *function) time.Duration {
	if f.Memory > s.Kind.Memory {
		return 0
	}
	return f.Times[s.Kind.Name]
}

// victims returns the functions to evict from the slice so that the given one fits, the least recently used first.
func (s *slice) victims(f *function) []*function {
	missing := f.Memory - s.free
	if missing <= 0 {
		return nil
	}
	victims := slices.SortedFunc(slices.Values(s.residents), compareLastUse)
	for i, v := range victims {
		if missing -= v.Memory; missing <= 0 {
			return victims[:i+1]
		}
	}
	return victims
}

// remove frees the memory of a function on the slice. Its data is not scrubbed: the memory counts as stale until another tenant needs it.
func (s *slice) remove(f *function) {
	s.free += f.Memory
	s.residents = slices.DeleteFunc(s.residents, func(other *function) bool { return other == f })
	if !slices.Contains(s.stale, f.Tenant) {
		s.stale = append(s.stale, f.Tenant)
	}
}

// add makes a function resident on a slice that has enough free memory. It reports whether that memory must be scrubbed first, because it
// may contain data of another tenant.
func (s *slice) add(f *function) (scrub bool) {
	scrub = slices.ContainsFunc(s.stale, func(tenant string) bool { return tenant != f.Tenant }) // U22
	if scrub {
		s.stale = nil
	}
	s.free -= f.Memory
	s.residents = append(s.residents, f)
	return scrub
}
