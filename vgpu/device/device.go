// Package device models how one GPU runs the kernels of several processes under MPS: each process has a cap on its SMs, each stream is a
// queue, and a kernel starts when its SMs are free and runs to its end. Time is an argument, so a virtual clock can drive the model as well
// as a real one.
package device

import (
	"container/heap"
	"slices"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// Device is a model of one GPU. It is not safe for concurrent use.
type Device struct {
	now       time.Duration
	free      share.PerMille
	processes map[Process]*process
	streams   map[Stream][]*Work // in order; the first is the head, which waits or runs
	blocked   []*Work            // heads that wait for their submission time or for other work
	ready     []*Work            // heads that wait for SMs only, by priority, then arrival
	running   runningHeap        // kernels and copies
	completed []*Work
	arrivals  uint64

	interference share.PerMille
}

type process struct {
	limit, held share.PerMille // SMs it may fill, and SMs it fills now
	behind      bool           // lower priority: its kernels wait behind those of others
	kernels     int            // that are running
	since       time.Duration  // start of the busy period; valid while kernels > 0
	use         Usage
	forgotten   bool // removed once its last kernel ends
}

// New returns an idle device without processes at time zero.
func New() *Device {
	return &Device{free: share.Whole, processes: map[Process]*process{}, streams: map[Stream][]*Work{}}
}

// Attach adds a process, which may use at most limit of the SMs at a time (CUDA_MPS_ACTIVE_THREAD_PERCENTAGE).
func (d *Device) Attach(p Process, limit share.PerMille) {
	d.processes[p] = &process{limit: max(limit, 1)}
}

// LowerPriority lowers the priority of a process (CUDA_MPS_CLIENT_PRIORITY): its waiting work starts after the waiting work of other
// processes. Work that is running continues.
func (d *Device) LowerPriority(p Process) { d.processes[p].behind = true }

// SetInterference sets how much processes slow each other down through memory bandwidth and caches: a kernel takes longer by this fraction
// if kernels of other processes fill the rest of the device when it starts, and proportionally less if they fill part of it.
func (d *Device) SetInterference(by share.PerMille) { d.interference = by }

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

// Forget removes a detached process and its usage, at once or, if it still has running work, when that ends.
func (d *Device) Forget(p Process) {
	if who := d.processes[p]; who.kernels > 0 {
		who.forgotten = true
	} else {
		delete(d.processes, p)
	}
}

// Submit appends the work to its stream.
func (d *Device) Submit(w *Work) {
	w.limitTo(d.processes[w.Stream.Process].limit)
	queue := append(d.streams[w.Stream], w)
	d.streams[w.Stream] = queue
	if len(queue) == 1 {
		d.arrive(w)
	}
}

// LastWork returns the newest unfinished work of a stream, or nil.
func (d *Device) LastWork(s Stream) *Work {
	if queue := d.streams[s]; len(queue) > 0 {
		return queue[len(queue)-1]
	}
	return nil
}

// NextEvent returns the earliest time at which running work ends or waiting work may start, provided that nothing is submitted before. It
// returns false if there is no such time.
func (d *Device) NextEvent() (at time.Duration, ok bool) {
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

// Advance runs the device until now and returns the completed work, in order of completion.
func (d *Device) Advance(now time.Duration) []*Work {
	for {
		d.moveReady()
		d.dispatch()
		at, ok := d.NextEvent()
		if !ok || at > now {
			break
		}
		d.now = at
		d.completeKernels()
	}
	d.now = max(d.now, now)
	completed := d.completed
	d.completed = nil
	return completed
}

// moveReady moves the heads of streams that wait for nothing but SMs to the ready list. It repeats until nothing changes, since a marker
// completes at once and may release other work.
func (d *Device) moveReady() {
	for again := true; again; {
		again = false
		waiting := d.blocked
		d.blocked = nil
		for _, w := range waiting {
			switch {
			case !w.isReady(d.now):
				d.blocked = append(d.blocked, w)
			case w.width == 0 && w.Duration == 0:
				w.Start, w.End = d.now, d.now
				d.finishHead(w)
				again = true
			case w.width == 0:
				d.run(w) // beside kernels, on a copy engine of its own
			default:
				d.insertReady(w)
			}
		}
	}
}

// insertReady inserts a kernel into the ready list in order of arrival, behind the kernels of all processes with a higher priority.
func (d *Device) insertReady(w *Work) {
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

// completeKernels completes the running kernels and copies that end by now.
func (d *Device) completeKernels() {
	for len(d.running) > 0 && d.running[0].End <= d.now {
		w := heap.Pop(&d.running).(*Work)
		if w.width > 0 {
			d.release(w)
		}
		d.finishHead(w)
	}
}

// finishHead completes the work at the head of a stream. The next work of the stream becomes its head and starts to wait.
func (d *Device) finishHead(w *Work) {
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
