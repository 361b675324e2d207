package cluster

import (
	"maps"
	"math"
	"slices"

	"github.com/gshare-dev/gshare/vgpu/packing"
)

// byWorth tries to replace the term stranding, W, by the worth of what is left of a device, in bid prices. The prices of parts of a
// device are the dual variables of the cutting-stock program of the running pods; what is left is worth the best combination of parts
// that fits it.
func byWorth(t *tryPolicy, d *packing.Demand) packing.Ranker {
	lost := lostOf(t.parts())
	rest := packing.Balance{Terms: packing.Terms{Fragmentation: true, CPUShortage: true, Scarcity: true}, Demand: d}
	return rankerFunc(func(n *packing.Node, pod *packing.Pod, picks []packing.Choice) packing.Rank {
		var cost float64
		for _, p := range picks {
			before := free(n, p.Slice)
			after := before - int(pod.Request.Containers[p.Container].Share.RequestArea()/1000)
			cost += lost[max(0, after)] - lost[before]
		}
		return rest.Rank(n, pod, picks).Plus(int64(cost * milliGPU))
	})
}

// free returns the thousandths of a device that no share requests.
func free(n *packing.Node, device int) int {
	return int(packing.WholeGPU) - int(n.Loads[device].Requested()/1000)
}

// part is a size of requests per device: its thousandths of a device, the number of devices of which running pods request such a part, and
// the worth of the part as a fraction of a device.
type part struct {
	milli        int
	count, price float64
}

// parts returns the sizes that running pods request, the smallest first.
func (t *tryPolicy) parts() (list []part) {
	counts := map[int]float64{}
	for i, n := range t.running {
		if sh := t.pods[i].shape; n > 0 && sh.VGPUs > 0 {
			counts[int(sh.Milli)] += float64(n * sh.VGPUs)
		}
	}
	for _, milli := range slices.Sorted(maps.Keys(counts)) {
		list = append(list, part{milli: milli, count: counts[milli], price: float64(milli) / float64(packing.WholeGPU)})
	}
	return list
}

// lostOf returns, for each free part of a device, how many thousandths of it are worth nothing to pods that request the listed parts.
func lostOf(list []part) []float64 {
	price(list)
	best, _ := fillings(list)
	lost := make([]float64, len(best))
	for r := range best {
		lost[r] = float64(r) - best[r]*float64(packing.WholeGPU)
	}
	return lost
}

// rounds is how many times the prices are adapted to the best filling of a device.
const rounds = 400

// price sets the prices such that no filling of a device is worth more than one, and the worth of all requests is greatest. It uses
// multiplicative weights, for which the mean over the later half of the rounds converges.
func price(list []part) {
	mean := make([]float64, len(list))
	for round := range rounds {
		best, last := fillings(list)
		filled := best[packing.WholeGPU]
		used := make([]float64, len(list))
		for r := int(packing.WholeGPU); r > 0; {
			if last[r] < 0 {
				r-- // no part ends here
				continue
			}
			used[last[r]]++
			r -= list[last[r]].milli
		}
		total := 0.0
		for i := range list {
			total += list[i].count * list[i].price
		}
		step := 1 / math.Sqrt(1+float64(round))
		for i := range list {
			x := &list[i]
			x.price *= math.Exp(step * x.price * (x.count/total - used[i]/filled))
			if round >= rounds/2 {
				mean[i] += x.price
			}
		}
		scale(list)
	}
	for i := range list {
		list[i].price = mean[i]
	}
	scale(list)
}

// scale divides the prices so that the best filling of a device is worth one.
func scale(list []part) {
	best, _ := fillings(list)
	for i := range list {
		list[i].price /= best[packing.WholeGPU]
	}
}

// fillings returns, for each free part of a device, the worth of the best combination of parts in it and the last part of that
// combination, which is negative if none ends there.
func fillings(list []part) (best []float64, last []int) {
	best, last = make([]float64, packing.WholeGPU+1), make([]int, packing.WholeGPU+1)
	last[0] = -1
	for r := 1; r < len(best); r++ {
		best[r], last[r] = best[r-1], -1
		for i := range list {
			if x := &list[i]; x.milli > 0 && x.milli <= r && best[r-x.milli]+x.price > best[r] {
				best[r], last[r] = best[r-x.milli]+x.price, i
			}
		}
	}
	return best, last
}
