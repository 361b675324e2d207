package packing

// Epoch is the cluster for which a demand was frozen. While it lasts, ranks can be kept.
type Epoch struct {
	pods   int
	gpu    MilliGPU
	free   MilliGPU
	demand *Demand
}

// NewEpoch remembers the cluster as it is.
func NewEpoch(m *Mix, c Capacity) Epoch {
	return Epoch{pods: m.Pods(), gpu: c.GPU, free: c.FreeGPU, demand: NewDemand(m, c)}
}

// Changes smaller than these are no news, whatever part of the cluster they are.
const (
	fewPods    = 16
	littleFree = 4 * WholeGPU
)

// Over says that pods now ask for something else than then. Freezing a new demand costs the rank of every node for every kind
// of pod, so epochs must be few: demand is looked at only where the cluster has changed by half since the last look, in pods or
// in free GPU, or by a sixteenth in GPUs.
func (e *Epoch) Over(m *Mix, c Capacity) bool {
	if 16*max(c.GPU-e.gpu, e.gpu-c.GPU) > e.gpu {
		return true
	}
	if !moved(m.Pods(), e.pods, fewPods) && !moved(c.FreeGPU, e.free, littleFree) {
		return false
	}
	e.pods, e.free = m.Pods(), c.FreeGPU
	return e.demand == nil || e.demand.differs(NewDemand(m, c), c)
}

func moved[T ~int | ~int64](now, then, least T) bool {
	return max(now-then, then-now) > max(min(now, then)/2, least)
}
