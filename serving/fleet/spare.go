package fleet

import (
	"time"

	"github.com/gshare-dev/gshare/serving/gateway"
	"github.com/gshare-dev/gshare/vgpu/scaling"
)

// Spare is a replica in reserve that is ready, or one that is parked.
type Spare struct {
	Instance string
	Function gateway.FunctionName
	Since    time.Duration // since when it is in reserve; from any fixed time, the same for all
}

// Spares returns the replicas of all functions that can be given up to make room for others.
func (f *Fleet) Spares() (all []Spare) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, fn := range f.functions {
		for _, counted := range fn.state.Instances {
			if i := fn.instances[counted.ID]; i != nil && i.isSpare() {
				all = append(all, Spare{i.Name, fn.name, counted.Since})
			}
		}
	}
	return all
}

// Gift is what becomes of a replica that is given up.
type Gift int

// The gifts: nothing, as it is not in reserve any more; its GPU memory, as it is parked; or all that it has, as it is ended.
const (
	Nothing Gift = iota
	Memory
	All
)

// GiveUp parks a replica in reserve or, if it cannot be or is already, ends it, after its requests. It says which. The function gets another one when its
// load needs it.
func (f *Fleet) GiveUp(name, why string) Gift {
	f.mu.Lock()
	defer f.mu.Unlock()
	i := f.instances[name]
	if i == nil || !i.isSpare() {
		return Nothing
	}
	f.log.Info("give up replica", "replica", name, "reason", why)
	if !i.isParked() && i.function.parks(i.ID) {
		i.function.park(i.ID, f.now())
		f.publish(i.function)
		return Memory
	}
	i.function.state = i.function.state.Without(i.ID)
	f.delete(i)
	f.publish(i.function)
	return All
}

// isSpare reports whether the autoscaler counts the instance as Shared or Warm, and it is ready and not being replaced.
func (i *instance) isSpare() bool {
	r := i.function.residency(i.ID)
	return i.phase == ready && i.follower == 0 && (r == scaling.Shared || r == scaling.Warm)
}
