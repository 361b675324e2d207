package enforce

import (
	"slices"
	"time"

	fakegpu "github.com/gshare-dev/gshare/test/fake/gpu"
)

// Ahead is the most work, as time of the whole device, that was launched and not yet done when a kernel was launched after
// a point in time; that kernel is not counted. The kernels must be alone on the device and as wide as it is.
func (s Spans) Ahead(after time.Duration) (most time.Duration) {
	free := time.Duration(0) // when the device is done with what was launched so far
	for _, span := range slices.SortedFunc(slices.Values(s), func(a, b fakegpu.Span) int { return int(a.At - b.At) }) {
		if span.At >= after {
			most = max(most, free-span.At)
		}
		free = max(free, span.At) + span.End - span.Start
	}
	return most
}
