package fleet

import (
	"cmp"
	"slices"
	"time"

	"github.com/gshare-dev/gshare/serving/gateway"
	"github.com/gshare-dev/gshare/serving/rules/scaling"
)

// Spare is a ready replica in reserve, or a parked one.
type Spare struct {
	Instance string
	Function gateway.FunctionName
	Since    time.Duration // when it was last needed, from a fixed time that is the same for all: now if it has requests, else when it came into reserve
}

// Spares returns the replicas of all functions that can be given up to make room for others, among them those that are not needed and end when they have
// answered their requests.
func (f *Fleet) Spares() []Spare {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.spares()
}

func (f *Fleet) spares() (all []Spare) {
	for _, fn := range f.functions {
		for _, i := range fn.sorted() {
			if i.phase == draining && i.hurry != nil {
				all = append(all, Spare{i.Name, fn.name, 0}) // before those in reserve
			}
		}
		for _, counted := range fn.state.Instances {
			if i := fn.instances[counted.ID]; i != nil && i.isSpare() {
				since := counted.Since
				if f.gateways.IsBusy(fn.name, i.Name) { // giving it up may cut its answers
					since = f.now()
				}
				all = append(all, Spare{i.Name, fn.name, since})
			}
		}
	}
	return all
}

// Gift says what giving up a replica has made free.
type Gift int

// The gifts: nothing, since the replica is no longer in reserve; its GPU memory, since it is parked; or all that it had, since it is ended.
const (
	Nothing Gift = iota
	Memory
	All
)

// GiveUp parks a replica in reserve or, if that is impossible or it is parked already, ends it after it has answered its requests. It returns which
// of these it has done. The function gets another replica when its load needs one.
func (f *Fleet) GiveUp(name, why string) Gift {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.giveUp(name, why)
}

func (f *Fleet) giveUp(name, why string) Gift {
	i := f.instances[name]
	if i != nil && i.phase == draining && i.hurry != nil {
		f.log.Info("give up replica", "replica", name, "reason", why)
		f.delete(i)
		return All
	}
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

// makeRoom gives up replicas while others have waited for their share for a period: one for each of those for which none ends, first those that have been
// in reserve for longest. How large the shares are and on which GPUs only the platform knows; if it was not enough, another one follows.
func (f *Fleet) makeRoom() {
	missing := 0
	for _, i := range f.instances {
		switch {
		case i.phase == starting && i.queued && time.Since(i.created) >= period:
			missing++
		case i.phase == stopping || i.phase == draining && i.hurry == nil:
			missing--
		}
	}
	if missing <= 0 {
		return
	}
	spares := f.spares()
	slices.SortStableFunc(spares, func(a, b Spare) int { return cmp.Compare(a.Since, b.Since) })
	for _, s := range spares[:min(missing, len(spares))] {
		f.giveUp(s.Instance, "another replica waits for a share")
	}
}

// isSpare reports whether the autoscaler counts the instance as Shared or Warm, and it is ready and not being replaced.
func (i *instance) isSpare() bool {
	r := i.function.residency(i.ID)
	return i.phase == ready && i.follower == 0 && (r == scaling.Shared || r == scaling.Warm)
}
