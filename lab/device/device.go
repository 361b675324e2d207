// Package device models how one GPU runs the kernels of several processes under MPS: each process has a cap of SMs, each stream is
// a queue, and a kernel starts when its SMs are free and runs to its end. Time is an argument, so that the model serves a virtual
// clock and a real one.
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

// Attach adds a process, which may use at most limit of the SMs at a time (CUDA_MPS_ACTIVE_THREAD_PERCENTAGE).
func (d *Device) Attach(p Process, limit share.PerMille) {
	d.processes[p] = &process{limit: max(limit, 1)}
}

// Yield gives a process the lower priority (CUDA_MPS_CLIENT_PRIORITY): its waiting work starts after that of other processes.
// Running work continues.
func (d *Device) Yield(p Process) { d.processes[p].behind = true }

// Interfere sets by how much neighbours slow each other down through memory bandwidth and caches: a kernel takes that much longer
// if others fill the rest of the device when it starts, and proportionally less if they fill a part of it.
func (d *Device) Interfere(by share.PerMille) { d.interference = by }

// Detach removes the waiting work of a process. Running work continues to its end, as a GPU does not preempt.
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

// Submit appends work to its stream.
func (d *Device) Submit(w *Work) {
	w.fit(d.processes[w.Stream.Process].limit)
	queue := append(d.streams[w.Stream], w)
	d.streams[w.Stream] = queue
	if len(queue) == 1 {
		d.arrive(w)
	}
}

// Last returns the newest unfinished work of a stream, or nil.
func (d *Device) Last(s Stream) *Work {
	if queue := d.streams[s]; len(queue) > 0 {
		return queue[len(queue)-1]
	}
	return nil
}

// Next returns the time of the next event without a submission: the end or the arrival of a kernel.
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

// Advance runs the device until now and returns the completed work, in order.
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

// unblock moves the heads that may start to the ready list, repeatedly, as a completed marker releases others.
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

// queue inserts a head into the ready list by the arrival of its kernel.
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

// complete ends the kernels whose end has been reached.
func (d *Device) complete() {
	for len(d.running) > 0 && d.running[0].End <= d.now {
		w := heap.Pop(&d.running).(*Work)
		d.release(w)
		d.finish(w)
	}
}

// finish completes the head of a stream and lets the next one arrive.
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
