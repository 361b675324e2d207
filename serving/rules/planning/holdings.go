package planning

import (
	"cmp"
	"math"
	"slices"
	"sort"

	"github.com/gshare-dev/gshare/serving/rules/profile"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// reservedOption is a configuration of a reserved GPU share, which is paid by the second whether it is busy or not. It has no
// pointers, because thousands of them are sorted.
type reservedOption struct {
	config     int32 // index into options.configs
	latency    profile.Latency
	reply      profile.Seconds // p99 of the time from arrival to answer
	capacity   float64         // of one instance, in requests per second
	cost       Cost            // of one instance, per second
	perRequest Cost            // of one request, if the instance runs at full capacity
}

// roundLimits are the limits that plans try for the number of consecutive batches, including its own, within which a request on a
// reserved share is answered. A higher limit permits a busier share.
var roundLimits = []int{2, 4, 8}

// reservedOptions returns the configurations of a reserved GPU share that can be optimal for a model, over all measured numbers of
// SMs, and all quotas, batch sizes and round limits.
func reservedOptions(m *profile.Share, in *Input) ([]reservedOption, []Config) {
	n := len(m.Curves) * int(share.Whole/in.Platform.QuotaStep) * m.MaxBatch
	all, configs := make([]reservedOption, 0, n*len(roundLimits)), make([]Config, 0, n)
	for i, curve := range m.Curves {
		for q := in.Platform.QuotaStep; q <= share.Whole; q += in.Platform.QuotaStep {
			for batch := 1; batch <= m.MaxBatch; batch++ {
				memory := max(m.Memory.Memory(batch), share.MiB)
				if memory > share.Bytes(in.Platform.SliceMemoryMiB)*share.MiB {
					break
				}
				config := int32(len(configs))
				configs = append(configs, Config{Mode: Share, Batch: batch, SM: curve.SM, Quota: q, Memory: memory})
				all = appendRounds(all, config, &configs[config], m.Latency(batch, i, q), in)
			}
		}
	}
	return paretoReserved(all), configs
}

// appendRounds appends one option for each round limit of the configuration c, which has the index at.
func appendRounds(all []reservedOption, at int32, c *Config, l profile.Latency, in *Input) []reservedOption {
	cost := in.Prices.ofShare(c.SM, c.Quota, c.Memory)
	for _, n := range roundLimits {
		serves, capped := reservedCapacity(c.Batch, n, l.Mean, in.Platform.MaxBusy)
		all = append(all, reservedOption{at, l, profile.Seconds(n) * l.P99, serves, cost, cost / Cost(serves)})
		if capped {
			break // the limit of the busy time applies: more rounds gain nothing
		}
	}
	return all
}

// reservedCapacity returns the highest request rate at which a reserved share answers requests within n batches. A request waits for the
// batch that is running and for the batches of the requests before it. Up to (n-1)*batch requests may arrive during those n-1 batches; a
// Poisson number of mean x exceeds x + z*sqrt(x) in about 1 % of cases. capped reports that the rate is determined by maxBusy, the limit
// of the busy time.
func reservedCapacity(batch, n int, mean profile.Seconds, maxBusy share.PerMille) (serves float64, capped bool) {
	const z = 2.326
	most := float64((n - 1) * batch)
	x := math.Sqrt(most+z*z/4) - z/2
	busy, ceiling := x*x/most, float64(maxBusy)/float64(share.Whole)
	return min(busy, ceiling) * float64(batch) / float64(mean), busy >= ceiling
}

// paretoReserved returns the options, sorted by cost, for which no other one is at least as good in reply time, capacity and cost. It
// goes through the options by cost and compares each with the staircase of the cheaper ones, in which both reply time and capacity
// ascend.
func paretoReserved(all []reservedOption) []reservedOption {
	slices.SortFunc(all, func(a, b reservedOption) int {
		if a.cost != b.cost { // nearly always, so the other comparisons can be skipped
			return cmp.Compare(a.cost, b.cost)
		}
		return cmp.Or(cmp.Compare(b.capacity, a.capacity), cmp.Compare(a.reply, b.reply))
	})
	var kept, stairs []reservedOption
	for _, x := range all {
		n := sort.Search(len(stairs), func(i int) bool { return stairs[i].reply > x.reply })
		if n > 0 && stairs[n-1].capacity >= x.capacity {
			continue
		}
		kept = append(kept, x)
		end := n
		for end < len(stairs) && stairs[end].capacity <= x.capacity {
			end++
		}
		if n > 0 && stairs[n-1].reply == x.reply {
			n--
		}
		stairs = slices.Replace(stairs, n, end, x)
	}
	return kept
}
