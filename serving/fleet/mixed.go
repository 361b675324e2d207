package fleet

import (
	"cmp"
	"slices"

	"github.com/gshare-dev/gshare/serving/rules/scaling"
)

// enlarge starts a replica with the share of the highest throughput in place of the ready one with the lowest, if the function may have no more
// replicas and those that it has cannot serve the load. The autoscaler picks for each new replica the smallest share that makes up for what is
// missing at the time, so a slowly rising load would otherwise end up with the maximal number of small replicas. It reports whether it did anything.
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
	fn.state.Samples = nil // they say nothing about the replicas from now on
	return true
}

func byThroughput(a, b scaling.Configuration) int { return cmp.Compare(a.Throughput, b.Throughput) }
