package fleet

import (
	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/serving/gateway"
	"github.com/gshare-dev/gshare/serving/rules/scaling"
)

// Movable is a ready replica that can be moved: no replica of its function is being replaced.
type Movable struct {
	Instance string
	Function *api.GPUFunction
	Rate     float64 // its part of the function's requests per second, in the last 10 s
}

// Movable returns the replicas that can be moved, and the names of those that Move has started and that are not ready yet.
func (f *Fleet) Movable() (all []Movable, moving []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, fn := range f.functions {
		var of Status
		fn.observe(&of)
		ready, first := 0, len(all)
		for _, i := range fn.sorted() {
			if i.Move.From != 0 {
				moving = append(moving, i.Name)
			}
			if i.getsRequests() {
				ready++
			}
			if f.canMove(i) {
				all = append(all, Movable{Instance: i.Name, Function: fn.object})
			}
		}
		for at := range all[first:] {
			all[first+at].Rate = of.Rate / float64(ready) // not zero: a movable replica is ready
		}
	}
	return all, moving
}

func (i *instance) getsRequests() bool { return i.phase == ready && i.wanted() <= scaling.Shared }

// canMove reports whether an instance can be moved now.
func (f *Fleet) canMove(i *instance) bool {
	if i.function.removed || i.outdated || !i.getsRequests() || i.function.residency(i.ID) > scaling.Shared {
		return false
	}
	for _, other := range i.function.instances {
		if other.holdsUp() {
			return false
		}
	}
	return true
}

// Move starts a replica on a MIG instance of a profile. Once it is ready it takes the place of another replica, in the same residency, and the other
// one ends after it has answered its requests. Move reports whether it did so: the other replica may no longer be Movable.
func (f *Fleet) Move(name, profile string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	i := f.instances[name]
	if i == nil || !f.canMove(i) {
		return false
	}
	fn := i.function
	v := fn.sameVariant(i)
	fn.state.LastID++
	id := fn.state.LastID
	fn.state = fn.state.Replace(i.ID, id, v.configuration)
	i.follower = id
	next := &instance{
		Instance: Instance{Name: InstanceName(fn.name, id), ID: id, Function: v.object, Share: v.configuration.Share, Move: Move{From: i.ID, Profile: profile}},
		function: fn,
	}
	f.add(next)
	f.create(next)
	f.tell(next, Moving, "")
	f.publish(fn)
	return true
}

// abandon ends a move whose new instance, next, has failed before it was ready: the old instance goes on. It reports whether next was part of a move.
func (f *Fleet) abandon(next *instance, e Event) bool {
	fn := next.function
	i := fn.instances[next.Move.From]
	if i == nil || i.follower != next.ID || i.phase == draining || i.phase == stopping {
		next.Move = Move{} // the old instance is gone or ending, so this one is like any other now
		return false
	}
	fn.failures++
	v, _ := fn.variantWith(i.Share)
	fn.state = fn.state.Replace(next.ID, i.ID, v.configuration)
	i.follower, i.stays = 0, scaling.Hot
	f.tell(next, Abandoned, e.Message)
	if e.Kind == Failed {
		f.remove(next)
	} else {
		f.delete(next)
		f.publish(fn)
	}
	return true
}

// goOn continues a move that an earlier process has begun: next was created to replace another instance, which still exists and has not been told to end.
func (f *Fleet) goOn(next *instance, from scaling.ID) {
	fn := next.function
	i := fn.instances[from]
	if i == nil || i == next || i.follower != 0 || i.phase == draining || i.phase == stopping {
		return
	}
	i.follower, next.Move = next.ID, Move{From: from}
	fn.state = fn.state.Without(from)
	if next.phase == ready {
		f.succeed(next)
	}
}

// MoveStep is a step of a move.
type MoveStep struct {
	Function gateway.FunctionName
	From, To string // replicas
	Profile  string // of the MIG instance; empty if an earlier process began the move
	Kind     MoveKind
	Why      string // the reason, only of Abandoned
}

// MoveKind is the kind of a MoveStep.
type MoveKind string

// The kinds of steps: the new replica is starting; it serves, and the old one is to end; or it has failed, and the old one goes on.
const (
	Moving    MoveKind = "Moving"
	Moved     MoveKind = "Moved"
	Abandoned MoveKind = "Abandoned"
)

// tell writes a step of the move to an instance into the log and passes it to Config.Moved.
func (f *Fleet) tell(next *instance, kind MoveKind, why string) {
	fn := next.function
	s := MoveStep{Function: fn.name, From: InstanceName(fn.name, next.Move.From), To: next.Name, Profile: next.Move.Profile, Kind: kind, Why: why}
	f.log.Info("move replica", "replica", s.From, "to", s.To, "profile", s.Profile, "step", string(kind), "reason", why)
	if f.moved != nil {
		f.moved(fn.object, s)
	}
}
