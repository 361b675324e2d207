package residency

import (
	"maps"
	"slices"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// maxTime is the longest valid duration in a Function or a Policy.
const maxTime = time.Hour

// Function describes a function whose instance takes turns with other functions on shared slices. There it always runs as a whole;
// pipelines have slices of their own.
type Function struct {
	Name     string
	Tenant   string                   // memory is scrubbed between tenants (U22)
	Memory   share.Bytes              // on the slice, and in host memory
	Times    map[string]time.Duration // of one request, by name of the kinds on which it runs
	LoadWarm time.Duration            // from host memory onto a slice
	LoadCold time.Duration            // from storage
}

func (f *Function) validate() error {
	switch {
	case f.Name == "":
		return share.Invalid("name", "is empty")
	case f.Memory < 1 || f.Memory > share.MaxMemory:
		return share.Invalid("memory", "%d of %.64q is outside 1 to %d bytes", f.Memory, f.Name, share.MaxMemory)
	case f.LoadWarm < 0 || f.LoadWarm > maxTime:
		return share.Invalid("loadWarm", "%v of %.64q is outside 0 to %v", f.LoadWarm, f.Name, maxTime)
	case f.LoadCold < f.LoadWarm || f.LoadCold > maxTime:
		return share.Invalid("loadCold", "%v of %.64q is outside loadWarm, %v, to %v", f.LoadCold, f.Name, f.LoadWarm, maxTime)
	case len(f.Times) == 0:
		return share.Invalid("times", "%.64q was measured on no kind of slice", f.Name)
	}
	for _, kind := range slices.Sorted(maps.Keys(f.Times)) {
		if t := f.Times[kind]; t <= 0 || t > maxTime {
			return share.Invalid("times", "%v of %.64q on %.64q is not above 0 and at most %v", t, f.Name, kind, maxTime)
		}
	}
	return nil
}
