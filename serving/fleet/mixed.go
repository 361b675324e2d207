package fleet

import (
	"cmp"
	"slices"

	"github.com/gshare-dev/gshare/vgpu/scaling"
)

// enlarge starts a replica of the share that answers most in place of the ready one that answers least, where the function may have no more replicas and
// those that it has do not answer the load. Shares of several sizes are the smallest for what was missing when they were added: a load that rises slowly
// would be left with as many small ones as there may be. It reports whether it did anything.
func (f *Fleet) enlarge(fn *function) bool {
	if len(fn.variants) < 2 || !fn.scaler.IsShort(fn.state) {
		return false
	}
	largest := slices.MaxFunc(fn.variants, func(a, b variant) int { return byThroughput(a.configuration, b.configuration) })
	var least *instance
	rate := largest.configuration
	for _, counted := range fn.state.Instances {
		if i := fn.instances[counted.ID]; i != nil && i.phase == ready && byThroughput(counted.Configuration, rate) < 0 {
			least, rate = i, counted.Configuration
		}
	}
	if least == nil {
		return false
	}
	f.startInPlace(least, least.ID, largest)
	fn.state.Samples = nil // they say nothing of what there is from now on
	return true
}

func byThroughput(a, b scaling.Configuration) int { return cmp.Compare(a.Throughput, b.Throughput) }
