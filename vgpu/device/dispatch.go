package device

import (
	"container/heap"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// reservation keeps SMs for the first waiting kernel, which is wider than the free SMs. It can start once enough running kernels have
// ended.
type reservation struct {
	at    time.Duration
	spare share.PerMille // SMs that remain free once the reserved kernel runs
}

// dispatch starts ready kernels in order. Later kernels may overtake the first waiting one if that does not delay it (EASY backfilling;
// Lifka, JSSPP 1995), so narrow kernels never starve a wide one. A kernel that waits because its process has reached its own SM cap delays
// only that process.
func (d *Device) dispatch() {
	var first *reservation
	held := map[Process]bool{}
	waiting := d.ready[:0]
	for _, w := range d.ready {
		p := d.processes[w.Stream.Process]
		if first == nil && !held[w.Stream.Process] {
			w.narrowToFree(min(d.free, p.limit-p.held))
		}
		switch {
		case held[w.Stream.Process] || p.held+w.width > p.limit:
			held[w.Stream.Process] = true
		case w.width > d.free && first == nil:
			first, held[w.Stream.Process] = d.reserve(w.width), true
		case w.width <= d.free && first.admits(w, d.now):
			d.start(w)
			continue
		}
		waiting = append(waiting, w)
	}
	clear(d.ready[len(waiting):])
	d.ready = waiting
}

// admits reports whether a kernel may start now without delaying the kernel with the reservation. If the admitted kernel outlasts the
// reservation's start, its SMs are deducted from the spare ones. A nil reservation admits every kernel.
func (r *reservation) admits(w *Work, now time.Duration) bool {
	if r == nil || now+w.Duration <= r.at {
		return true
	}
	if w.width > r.spare {
		return false
	}
	r.spare -= w.width
	return true
}

// reserve returns a reservation for the earliest time at which SMs of the given width will be free.
func (d *Device) reserve(width share.PerMille) *reservation {
	ends := append(runningHeap(nil), d.running...)
	free := d.free
	for free < width {
		w := heap.Pop(&ends).(*Work)
		free += w.width
		if free >= width {
			return &reservation{w.End, free - width}
		}
	}
	return &reservation{d.now, free - width}
}

func (d *Device) start(w *Work) {
	p := d.processes[w.Stream.Process]
	others := share.Whole - d.free - p.held
	w.Duration += w.Duration * time.Duration(d.interference) * time.Duration(others) / time.Duration(share.Whole*share.Whole)
	d.free -= w.width
	p.held += w.width
	if p.kernels++; p.kernels == 1 {
		p.since = d.now
	}
	d.run(w)
}

// run starts work, which runs to its end.
func (d *Device) run(w *Work) {
	w.Start, w.End, w.started = d.now, d.now+w.Duration, true
	heap.Push(&d.running, w)
}

func (d *Device) release(w *Work) {
	d.free += w.width
	p := d.processes[w.Stream.Process]
	p.held -= w.width
	p.use.Kernels++
	p.use.SMTime += time.Duration(w.width) * w.Duration
	if p.kernels--; p.kernels > 0 {
		return
	}
	p.use.Busy += d.now - p.since
	if p.forgotten {
		delete(d.processes, w.Stream.Process)
	}
}

// runningHeap is a heap of running work, ordered by end time, then by arrival.
type runningHeap []*Work

func (r runningHeap) Len() int      { return len(r) }
func (r runningHeap) Swap(i, j int) { r[i], r[j] = r[j], r[i] }
func (r runningHeap) Less(i, j int) bool {
	return r[i].End < r[j].End || r[i].End == r[j].End && r[i].order < r[j].order
}
func (r *runningHeap) Push(w any) { *r = append(*r, w.(*Work)) }
func (r *runningHeap) Pop() any {
	last := len(*r) - 1
	w := (*r)[last]
	*r = (*r)[:last]
	return w
}
