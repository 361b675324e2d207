package packing

// Epoch is the cluster for which a demand was frozen. While it lasts, ranks can be kept.
type Epoch struct {
	pods int
	gpu  MilliGPU
	free MilliGPU
}

// NewEpoch remembers the cluster as it is.
func NewEpoch(m *Mix, c Capacity) Epoch { return Epoch{pods: m.Pods(), gpu: c.GPU, free: c.FreeGPU} }

// Changes smaller than these are no news, whatever part of the cluster they are.
const (
	fewPods    = 16
	littleFree = 4 * WholeGPU
)

// Over says that the cluster has changed by half since then, in pods or in free GPU, or by a sixteenth in GPUs. Freezing a
// new demand costs the rank of every node for every kind of pod, so epochs must be few; half gives about fifteen while a
// cluster fills.
func (e Epoch) Over(m *Mix, c Capacity) bool {
	return 16*max(c.GPU-e.gpu, e.gpu-c.GPU) > e.gpu || moved(m.Pods(), e.pods, fewPods) || moved(c.FreeGPU, e.free, littleFree)
}

func moved[T ~int | ~int64](now, then, least T) bool {
	return max(now-then, then-now) > max(min(now, then)/2, least)
}
