package gateway

import (
	"time"
)

// Head returns how many requests of a function wait, and when the first of them is due.
func (g *Gateway) Head(name FunctionName) (waiting int, due time.Time) {
	if f := g.function(name); f != nil {
		return f.head()
	}
	return 0, time.Time{}
}

// holdAll makes the queued requests of a function with Hold.InTime wait for its next replica, if it has none now.
func (f *function) holdAll() {
	if !f.config.Hold.InTime || len(f.replicas) > 0 {
		return
	}
	for id, it := range f.items {
		f.queue.Remove(it.request)
		delete(f.items, id)
		f.hold(it)
	}
	f.wake.Stop()
}

// refuseAtDue refuses an item at the time it is due if it is still in a queue then. Its deadline in the queue was put off in the expectation that a
// replica would take it at once, and none has.
func refuseAtDue(it *item) {
	time.AfterFunc(time.Until(it.due), func() {
		f := it.lockQueue() // it may be in the queue of a host, or have come back from there
		defer f.mu.Unlock()
		if id := it.request.ID; f.items[id] == it {
			f.queue.Remove(it.request)
			delete(f.items, id)
			it.refuse(newRefusal(causeLate, "the function had no turn in time"))
		}
	})
}

// head returns how many requests wait, and when the first of them is due.
func (f *function) head() (waiting int, due time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	earliest := func(it *item) {
		if due.IsZero() || it.request.Deadline.Before(due) {
			due = it.request.Deadline
		}
	}
	for _, it := range f.held {
		earliest(it)
	}
	for _, it := range f.items {
		earliest(it)
	}
	return len(f.held) + len(f.items), due
}
