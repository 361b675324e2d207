package planning

import (
	"cmp"
	"math"
	"slices"
	"sort"

	"github.com/gshare-dev/gshare/vgpu/profile"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// holding is one configuration that is paid by the second, busy or not. It has no pointers: there are thousands, and they are
// sorted.
type holding struct {
	config  int32 // of those held
	latency profile.Latency
	reply   profile.Seconds // from arrival to answer, at the p99
	serves  float64         // requests a second, of one instance
	cost    Cost            // a second, of one instance
	each    Cost            // of one request, if the instance is as busy as it may be
}

// rounds are the numbers of batches, its own included, within which a request on a held share may be answered: the more,
// the busier the share may be.
var rounds = []int{2, 4, 8}

// shareHoldings goes through measured SMs, quotas, batches and rounds.
func shareHoldings(m *profile.Share, in *Input) ([]holding, []Config) {
	n := len(m.Curves) * int(share.Whole/in.Platform.QuotaStep) * m.MaxBatch
	all, configs := make([]holding, 0, n*len(rounds)), make([]Config, 0, n)
	for i, curve := range m.Curves {
		for q := in.Platform.QuotaStep; q <= share.Whole; q += in.Platform.QuotaStep {
			for batch := 1; batch <= m.MaxBatch; batch++ {
				memory := max(m.Memory.Memory(batch), share.MiB)
				if memory > share.Bytes(in.Platform.SliceMemoryMiB)*share.MiB {
					break
				}
				config := int32(len(configs))
				configs = append(configs, Config{Mode: Share, Batch: batch, SM: curve.SM, Quota: q, Memory: memory})
				cost := in.Prices.Slice.rate(curve.SM, q) + in.Prices.SliceMemory.rate(memory)
				l := m.Latency(batch, i, q)
				for _, n := range rounds {
					serves, capped := throughput(batch, n, l.Mean, in.Platform.MaxBusy)
					all = append(all, holding{config, l, profile.Seconds(n) * l.P99, serves, cost, cost / Cost(serves)})
					if capped {
						break // more rounds gain nothing
					}
				}
			}
		}
	}
	return undominated(all), configs
}

// throughput returns the rate at which requests are answered within n rounds. A request waits for the batch that runs, which it
// has just missed, and for those of the requests before it. With n-1 rounds for the wait, up to (n-1)*batch requests may
// come in that time; a Poisson number of mean x is above x + z*sqrt(x) in about 1 % of cases. And a share is capped at being
// busy for maxBusy of the time.
func throughput(batch, n int, mean profile.Seconds, maxBusy share.PerMille) (serves float64, capped bool) {
	const z = 2.326
	most := float64((n - 1) * batch)
	x := math.Sqrt(most+z*z/4) - z/2
	busy, ceiling := x*x/most, float64(maxBusy)/float64(share.Whole)
	return min(busy, ceiling) * float64(batch) / float64(mean), busy >= ceiling
}

// undominated keeps the holdings that no other beats or equals in reply, service and cost, by cost. Among those before it,
// none is dearer, so only the staircase of their replies and services counts: both ascending.
func undominated(all []holding) []holding {
	slices.SortFunc(all, func(a, b holding) int {
		if a.cost != b.cost { // nearly always: the other comparisons are worth saving
			return cmp.Compare(a.cost, b.cost)
		}
		return cmp.Or(cmp.Compare(b.serves, a.serves), cmp.Compare(a.reply, b.reply))
	})
	var kept, stairs []holding
	for _, x := range all {
		n := sort.Search(len(stairs), func(i int) bool { return stairs[i].reply > x.reply })
		if n > 0 && stairs[n-1].serves >= x.serves {
			continue
		}
		kept = append(kept, x)
		end := n
		for end < len(stairs) && stairs[end].serves <= x.serves {
			end++
		}
		if n > 0 && stairs[n-1].reply == x.reply {
			n--
		}
		stairs = slices.Replace(stairs, n, end, x)
	}
	return kept
}
