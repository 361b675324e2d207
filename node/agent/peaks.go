package agent

import (
	"math/bits"

	"github.com/gshare-dev/gshare/node/tokenserver"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// memoryPeaks holds the memory peaks of containers, by grant ID. It is used by one goroutine.
type memoryPeaks map[string]int64

// risen reports whether a peak, as enforcement statuses show it, is greater than at the last call. Since peaks are rounded to few steps, a
// container that forges its count causes no more writes of its pod than there are steps.
func (p *memoryPeaks) risen(containers []tokenserver.Status) bool {
	found, risen := memoryPeaks{}, false
	for _, c := range containers {
		found[c.ID] = peakOf(&c)
		risen = risen || found[c.ID] > (*p)[c.ID]
	}
	*p = found
	return risen
}

// peakOf returns the most memory that a container has had on one GPU, in MiB as an enforcement status shows it.
func peakOf(c *tokenserver.Status) (most int64) {
	for _, v := range c.VGPUs {
		most = max(most, roundedPeak(v.Peak))
	}
	return most
}

// peakBits is how many of the leading bits of a peak are shown.
const peakBits = 6

// roundedPeak returns a peak in MiB, rounded up so that only its leading peakBits bits can be set. The result exceeds the peak by less than
// 1/32.
func roundedPeak(peak share.Bytes) int64 {
	mib := (int64(peak) + int64(share.MiB) - 1) / int64(share.MiB)
	unit := int64(1) << max(0, bits.Len64(uint64(mib))-peakBits)
	return (mib + unit - 1) / unit * unit
}
