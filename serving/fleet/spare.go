package fleet

import (
	"time"

	"github.com/gshare-dev/gshare/serving/gateway"
	"github.com/gshare-dev/gshare/vgpu/scaling"
)

// Spare is a replica in reserve that is ready.
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

// GiveUp ends a replica in reserve, after its requests, and reports whether it was one still. The function gets another one when its load needs it.
func (f *Fleet) GiveUp(name, why string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	i := f.instances[name]
	if i == nil || !i.isSpare() {
		return false
	}
	f.log.Info("give up replica", "replica", name, "reason", why)
	i.function.state = i.function.state.Without(i.ID)
	f.delete(i)
	f.publish(i.function)
	return true
}

// isSpare reports whether the autoscaler counts the instance as Shared, and it is ready and not being replaced.
func (i *instance) isSpare() bool {
	return i.phase == ready && i.follower == 0 && i.function.residency(i.ID) == scaling.Shared
}
