package shapes

import "github.com/gshare-dev/gshare/vgpu/share"

// LowerBound returns a number of GPUs, fractional, below which no packing of the pods exists, rectangles and slots alike.
//
// It is the configuration LP over the whole fleet (docs/packing.md, fact 7): minimise the sum of x(C), where C are
// multisets of SM shares that fit one GPU and every SM share gets the sum of its pods' quotas. Two things are given away,
// which can only lower it: pods of equal SM share may pass time to each other, and a pod may be cut between GPUs. The
// memory of all pods over that of one GPU bounds it too. Rounding is below a part in 1e9.
//
// With a reserve r, a pod counts with min(1, quota/(1-r)). On a GPU that switches, configurations take at most 1-r of
// the window, which these quotas stretch to the whole; there a pod with full quota is in every configuration, and none has
// a quota between 1-r and 1. On a GPU that holds one configuration all pods may run for the whole window. Either way the
// stretched quotas fit the window, so what fits with the reserve satisfies the program.
func LowerBound(pods []Pod, memory share.Bytes, reserve share.PerMille) float64 {
	return max(newMaster(pods, reserve).solve(tiny), memoryBound(pods, memory))
}

func memoryBound(pods []Pod, memory share.Bytes) float64 {
	sum := 0.0
	for _, p := range pods {
		sum += float64(p.Memory)
	}
	if sum == 0 {
		return 0
	}
	return sum / float64(memory)
}
