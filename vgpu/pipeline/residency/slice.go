package residency

import (
	"slices"
	"time"

	"github.com/gshare-dev/gshare/vgpu/pipeline"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// slice is one shared slice. The fields from running to until describe the request that runs.
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

// time returns the execution time of one request; 0 if the function cannot run here.
func (s *slice) executionTime(f *function) time.Duration {
	if f.Memory > s.Kind.Memory {
		return 0
	}
	return f.Times[s.Kind.Name]
}

// victims returns the residents to evict until a function fits, the least recently used first (FF-47).
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

// remove frees the memory of a resident, without scrubbing its data.
func (s *slice) remove(f *function) {
	s.free += f.Memory
	s.residents = slices.DeleteFunc(s.residents, func(other *function) bool { return other == f })
	if !slices.Contains(s.stale, f.Tenant) {
		s.stale = append(s.stale, f.Tenant)
	}
}

// add makes a function that fits a resident. It reports whether free memory has to be scrubbed first, because it may contain
// another tenant's data (U22).
func (s *slice) add(f *function) (scrub bool) {
	scrub = slices.ContainsFunc(s.stale, func(tenant string) bool { return tenant != f.Tenant })
	if scrub {
		s.stale = nil
	}
	s.free -= f.Memory
	s.residents = append(s.residents, f)
	return scrub
}
