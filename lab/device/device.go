// Package device models how one GPU runs the kernels of several processes under MPS: each process has a cap of SMs, each
// stream is a queue, a kernel starts when its SMs are free and then runs to its end. Time is an argument, so the same model
// serves a virtual clock and a real one.
package device

import (
	"container/heap"
	"slices"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// Device is one GPU. It is not safe for concurrent use.
type Device struct {
	now       time.Duration
	free      share.PerMille
	processes map[Process]*process
	streams   map[Stream][]*Work // first: the head, waiting or running
	blocked   []*Work            // heads that wait for their time or for other work
	ready     []*Work            // heads that wait for SMs alone, in order of arrival
	running   running
	completed []*Work
	arrivals  uint64

	interference share.PerMille
}

type process struct {
	limit, held share.PerMille // SMs it may fill, and fills
	behind      bool           // its blocks wait where others' do
	kernels     int            // running
	since       time.Duration  // valid while kernels > 0
	use         Use
}

// New returns an idle device at time zero.
func New() *Device {
	return &Device{free: share.Whole, processes: map[Process]*process{}, streams: map[Stream][]*Work{}}
}

// Attach lets a process use the device, at most limit of its SMs at a time (CUDA_MPS_ACTIVE_THREAD_PERCENTAGE).
func (d *Device) Attach(p Process, limit share.PerMille) {
	d.processes[p] = &process{limit: max(limit, 1)}
}

// Yield puts what waits of a process behind what waits of those that do not yield (CUDA_MPS_CLIENT_PRIORITY). What runs goes on.
func (d *Device) Yield(p Process) { d.processes[p].behind = true }

// Interfere lets neighbours slow each other down beyond the SMs they hold, by bandwidth and caches: a kernel takes so much
// longer when it starts while others fill the whole rest of the device, and less in proportion.
func (d *Device) Interfere(by share.PerMille) { d.interference = by }

// Detach drops what the process has queued. What runs goes on to its end: a GPU does not preempt.
func (d *Device) Detach(p Process) {
	drop := func(list []*Work) (kept []*Work) {
		for _, w := range list {
			if w.Stream.Process != p {
				kept = append(kept, w)
			}
		}
		return kept
	}
	d.blocked, d.ready = drop(d.blocked), drop(d.ready)
	for s, queue := range d.streams {
		if s.Process != p {
			continue
		}
		if queue[0].started {
			d.streams[s] = queue[:1]
		} else {
			delete(d.streams, s)
		}
	}
}

// Submit puts work at the end of its stream.
func (d *Device) Submit(w *Work) {
	w.fit(d.processes[w.Stream.Process].limit)
	queue := append(d.streams[w.Stream], w)
	d.streams[w.Stream] = queue
	if len(queue) == 1 {
		d.arrive(w)
	}
}

// Last returns the newest work of a stream that is not done, or nil.
func (d *Device) Last(s Stream) *Work {
	if queue := d.streams[s]; len(queue) > 0 {
		return queue[len(queue)-1]
	}
	return nil
}

// Next returns when the device changes by itself: at the end of a kernel or the arrival of one.
func (d *Device) Next() (at time.Duration, ok bool) {
	if len(d.running) > 0 {
		at, ok = d.running[0].End, true
	}
	for _, w := range d.blocked {
		if w.After != nil && !w.After.Done {
			continue
		}
		if t := max(w.At, d.now); !ok || t < at {
			at, ok = t, true
		}
	}
	return at, ok
}

// Advance runs the device until now and returns what was completed, in order.
func (d *Device) Advance(now time.Duration) []*Work {
	for {
		d.unblock()
		d.dispatch()
		at, ok := d.Next()
		if !ok || at > now {
			break
		}
		d.now = at
		d.complete()
	}
	d.now = max(d.now, now)
	completed := d.completed
	d.completed = nil
	return completed
}

// unblock moves the heads that may start to the ready list, until none is left: a marker that ends lets others go.
func (d *Device) unblock() {
	for again := true; again; {
		again = false
		waiting := d.blocked
		d.blocked = nil
		for _, w := range waiting {
			switch {
			case !w.may(d.now):
				d.blocked = append(d.blocked, w)
			case w.width == 0:
				w.Start, w.End = d.now, d.now+w.Duration
				d.finish(w)
				again = true
			default:
				d.queue(w)
			}
		}
	}
}

// queue puts a head where its kernel's arrival puts it among those that wait for SMs.
func (d *Device) queue(w *Work) {
	if w.order == 0 {
		d.arrivals++
		w.order = d.arrivals
	}
	at := len(d.ready)
	for at > 0 && d.before(w, d.ready[at-1]) {
		at--
	}
	d.ready = slices.Insert(d.ready, at, w)
}

func (d *Device) before(a, b *Work) bool {
	if x, y := d.processes[a.Stream.Process].behind, d.processes[b.Stream.Process].behind; x != y {
		return y
	}
	return a.order < b.order
}

// complete ends the kernels whose time has come.
func (d *Device) complete() {
	for len(d.running) > 0 && d.running[0].End <= d.now {
		w := heap.Pop(&d.running).(*Work)
		d.release(w)
		d.finish(w)
	}
}

// finish marks the head of a stream as done and lets the next one arrive.
func (d *Device) finish(w *Work) {
	w.Done = true
	d.completed = append(d.completed, w)
	queue := d.streams[w.Stream][1:]
	if len(queue) == 0 {
		delete(d.streams, w.Stream)
		return
	}
	d.streams[w.Stream] = queue
	if queue[0].Follows {
		queue[0].order = w.order
	}
	d.arrive(queue[0])
}

func (d *Device) arrive(w *Work) { d.blocked = append(d.blocked, w) }
