package device_test

import (
	"testing"
	"time"

	"github.com/gshare-dev/gshare/vgpu/device"
	"github.com/gshare-dev/gshare/vgpu/share"
)

const ms = time.Millisecond

// kernel is one row of a table: the process that submits it, and when it must run.
type kernel struct {
	process    device.Process
	stream     uint64
	at         time.Duration
	duration   time.Duration
	width      share.PerMille
	start, end time.Duration
}

func TestDevice(t *testing.T) {
	for name, test := range map[string]struct {
		limits  map[device.Process]share.PerMille
		kernels []kernel
	}{
		"two halves together": {nil, []kernel{{1, 1, 0, ms, 500, 0, ms}, {2, 1, 0, ms, 500, 0, ms}}},
		"a copy beside a kernel": {map[device.Process]share.PerMille{1: 250}, []kernel{
			{1, 1, 0, ms, 0, 0, ms}, {1, 1, 0, ms, 0, ms, 2 * ms}, {2, 1, 0, 3 * ms, 1000, 0, 3 * ms}, {1, 1, 0, ms, 250, 3 * ms, 4 * ms}}},
		"two wholes in turn":  {nil, []kernel{{1, 1, 0, ms, 1000, 0, ms}, {2, 1, 0, ms, 1000, ms, 2 * ms}}},
		"one stream in order": {nil, []kernel{{1, 1, 0, ms, 100, 0, ms}, {1, 1, 0, ms, 100, ms, 2 * ms}}},
		"two streams":         {nil, []kernel{{1, 1, 0, ms, 100, 0, ms}, {1, 2, 0, ms, 100, 0, ms}}},
		"not before its time": {nil, []kernel{{1, 1, 3 * ms, ms, 100, 3 * ms, 4 * ms}}},
		"a cap stretches": {map[device.Process]share.PerMille{1: 250},
			[]kernel{{1, 1, 0, ms, 1000, 0, 4 * ms}, {2, 1, 0, ms, 750, 0, ms}}},
		"a cap holds for all streams": {map[device.Process]share.PerMille{1: 250},
			[]kernel{{1, 1, 0, ms, 200, 0, ms}, {1, 2, 0, ms, 100, ms, 2 * ms}, {2, 1, 0, ms, 100, 0, ms}}},
		"a short one fills in": {nil, []kernel{
			{1, 1, 0, 4 * ms, 600, 0, 4 * ms}, {2, 1, 0, ms, 1000, 4 * ms, 5 * ms}, {3, 1, 0, ms, 400, 0, ms}}},
		"a long one does not": {nil, []kernel{
			{1, 1, 0, 4 * ms, 600, 0, 4 * ms}, {2, 1, 0, ms, 1000, 4 * ms, 5 * ms}, {3, 1, 0, 5 * ms, 400, 5 * ms, 10 * ms}}},
		"a long one beside the reservation": {nil, []kernel{
			{1, 1, 0, 4 * ms, 600, 0, 4 * ms}, {2, 1, 0, ms, 700, 4 * ms, 5 * ms}, {3, 1, 0, 5 * ms, 300, 0, 5 * ms}}},
	} {
		t.Run(name, func(t *testing.T) {
			d := device.New()
			for p := device.Process(1); p <= 3; p++ {
				limit, ok := test.limits[p]
				if !ok {
					limit = share.Whole
				}
				d.Attach(p, limit)
			}
			var all []*device.Work
			for _, k := range test.kernels {
				w := &device.Work{Stream: device.Stream{Process: k.process, ID: k.stream}, At: k.at, Duration: k.duration, Width: k.width}
				d.Submit(w)
				all = append(all, w)
			}
			d.Advance(time.Second)
			for i, k := range test.kernels {
				if w := all[i]; !w.Done || w.Start != k.start || w.End != k.end {
					t.Errorf("kernel %d: done %v, ran %v-%v, want %v-%v", i, w.Done, w.Start, w.End, k.start, k.end)
				}
			}
		})
	}
}

// TestAfter lets a second stream wait for an event of the first.
func TestAfter(t *testing.T) {
	d := device.New()
	d.Attach(1, share.Whole)
	first, second := device.Stream{Process: 1, ID: 1}, device.Stream{Process: 1, ID: 2}
	d.Submit(&device.Work{Stream: first, Duration: 3 * ms, Width: 100})
	event := &device.Work{Stream: first}
	d.Submit(event)
	d.Submit(&device.Work{Stream: second, After: event})
	last := &device.Work{Stream: second, Duration: ms, Width: 100}
	d.Submit(last)
	d.Advance(2 * ms)
	if event.Done || d.LastWork(second) != last {
		t.Fatal("the event came before the kernel in front of it ended")
	}
	d.Advance(10 * ms)
	if event.End != 3*ms || last.Start != 3*ms || !last.Done || d.LastWork(second) != nil {
		t.Errorf("event at %v, kernel after it at %v", event.End, last.Start)
	}
}

// TestDetach checks that waiting work is removed and running work completes.
func TestDetach(t *testing.T) {
	d := device.New()
	d.Attach(1, share.Whole)
	d.Attach(2, share.Whole)
	submit := func(p device.Process) *device.Work {
		w := &device.Work{Stream: device.Stream{Process: p}, Duration: 2 * ms, Width: share.Whole}
		d.Submit(w)
		return w
	}
	runs, waits, other := submit(1), submit(1), submit(2)
	d.Advance(ms)
	d.Detach(1)
	d.Advance(10 * ms)
	if !runs.Done || waits.Done || other.Start != 2*ms {
		t.Errorf("running %v, queued %v, other at %v", runs.Done, waits.Done, other.Start)
	}
	if use := d.Usage(1); use != (device.Usage{Kernels: 1, Busy: 2 * ms, SMTime: 2000 * ms}) {
		t.Errorf("use %+v", use)
	}
}

// TestForget checks that nothing is kept of a process that is forgotten, once its running kernel has ended.
func TestForget(t *testing.T) {
	for name, runs := range map[string]bool{"idle": false, "with a running kernel": true} {
		t.Run(name, func(t *testing.T) {
			d := device.New()
			d.Attach(1, share.Whole)
			w := &device.Work{Stream: device.Stream{Process: 1}, Duration: 2 * ms, Width: share.Whole}
			d.Submit(w)
			if !runs {
				d.Advance(2 * ms)
			}
			d.Advance(3 * ms / 2)
			d.Detach(1)
			d.Forget(1)
			d.Advance(10 * ms)
			if use := d.Usage(1); !w.Done || use != (device.Usage{}) {
				t.Errorf("done %v, use %+v", w.Done, use)
			}
		})
	}
}
