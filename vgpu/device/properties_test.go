package device_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/gshare-dev/gshare/vgpu/device"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// load is a random run: the submitted work and the caps.
type load struct {
	limits map[device.Process]share.PerMille
	work   []*device.Work
}

func randomLoad(r *rand.Rand) load {
	l := load{limits: map[device.Process]share.PerMille{}}
	for p := range device.Process(4) {
		l.limits[p] = share.PerMille(100 * (1 + r.IntN(10)))
	}
	at := time.Duration(0)
	for range 60 {
		at += time.Duration(r.IntN(400)) * time.Microsecond
		l.work = append(l.work, &device.Work{
			Stream: device.Stream{Process: device.Process(r.IntN(4)), ID: uint64(r.IntN(2))},
			At:     at, Duration: time.Duration(1+r.IntN(2000)) * time.Microsecond, Width: share.PerMille(1 + r.IntN(1000)),
		})
	}
	return l
}

func (l load) run(step time.Duration) (d *device.Device) {
	d = device.New()
	for p := range device.Process(len(l.limits)) {
		d.Attach(p, l.limits[p])
	}
	next := 0
	for now := time.Duration(0); now < time.Second; now += step {
		for ; next < len(l.work) && l.work[next].At <= now+step; next++ {
			d.Submit(l.work[next])
		}
		d.Advance(now)
	}
	return d
}

// broken returns the first property of the model that the completed work violates, or an empty string.
func (l load) broken() string {
	last := map[device.Stream]time.Duration{}
	for _, w := range l.work {
		if !w.Done {
			return "starved"
		}
		if w.Start < w.At || w.Start < last[w.Stream] {
			return "out of order"
		}
		last[w.Stream] = w.End
		busy, own := share.PerMille(0), share.PerMille(0)
		for _, other := range l.work {
			if other.Start > w.Start || other.End <= w.Start {
				continue
			}
			width := min(other.Width, l.limits[other.Stream.Process])
			busy += width
			if other.Stream.Process == w.Stream.Process {
				own += width
			}
		}
		if busy > share.Whole {
			return "more SMs than there are"
		}
		if own > l.limits[w.Stream.Process] {
			return "more SMs than the cap"
		}
		if l.idleBefore(w) {
			return "idle with work waiting"
		}
	}
	return ""
}

// idleBefore reports whether the device was idle although the kernel could have run.
func (l load) idleBefore(w *device.Work) bool {
	from := w.At
	for _, other := range l.work {
		if other.Stream == w.Stream && other.End <= w.Start {
			from = max(from, other.End)
		}
	}
	if from == w.Start {
		return false
	}
	for _, other := range l.work {
		if other != w && other.Start < w.Start && other.End >= w.Start {
			return false
		}
	}
	return true
}

func TestProperties(t *testing.T) {
	for seed := range uint64(300) {
		l := randomLoad(rand.New(rand.NewPCG(seed, 1)))
		l.run(time.Millisecond)
		if found := l.broken(); found != "" {
			t.Fatalf("seed %d: %s", seed, found)
		}
	}
}

// TestSteps checks that the result does not depend on how often Advance is called.
func TestSteps(t *testing.T) {
	for seed := range uint64(50) {
		fine, coarse := randomLoad(rand.New(rand.NewPCG(seed, 2))), randomLoad(rand.New(rand.NewPCG(seed, 2)))
		fine.run(100 * time.Microsecond)
		coarse.run(5 * time.Millisecond)
		for i := range fine.work {
			if fine.work[i].End != coarse.work[i].End {
				t.Fatalf("seed %d: kernel %d ends at %v or %v", seed, i, fine.work[i].End, coarse.work[i].End)
			}
		}
	}
}

// TestBroken is the negative control: each violated property is found.
func TestBroken(t *testing.T) {
	ran := func(stream uint64, width share.PerMille, at, start, end time.Duration) *device.Work {
		return &device.Work{Stream: device.Stream{ID: stream}, Width: width, At: at, Start: start, End: end, Done: true}
	}
	for want, l := range map[string]load{
		"":                        {map[device.Process]share.PerMille{0: 500}, []*device.Work{ran(0, 500, 0, 0, ms), ran(1, 500, 0, ms, 2*ms)}},
		"starved":                 {nil, []*device.Work{{}}},
		"out of order":            {nil, []*device.Work{ran(0, 500, 0, 0, ms), ran(0, 1, 0, ms/2, ms)}},
		"more SMs than the cap":   {map[device.Process]share.PerMille{0: 500}, []*device.Work{ran(0, 300, 0, 0, ms), ran(1, 300, 0, 0, ms)}},
		"more SMs than there are": {map[device.Process]share.PerMille{0: 2000}, []*device.Work{ran(0, 600, 0, 0, ms), ran(1, 600, 0, 0, ms)}},
		"idle with work waiting":  {map[device.Process]share.PerMille{0: 500}, []*device.Work{ran(0, 500, 0, 0, ms), ran(0, 500, 0, 3*ms, 4*ms)}},
	} {
		t.Run(want, func(t *testing.T) {
			if found := l.broken(); found != want {
				t.Errorf("found %q, want %q", found, want)
			}
		})
	}
}

// TestNoStarvation submits narrow kernels without end: a wide one still starts once those before it have ended.
func TestNoStarvation(t *testing.T) {
	d := device.New()
	d.Attach(1, share.Whole)
	d.Attach(2, share.Whole)
	for i := range 1000 {
		for s := range uint64(4) {
			d.Submit(&device.Work{Stream: device.Stream{Process: 1, ID: s}, At: time.Duration(s) * ms / 4,
				Duration: time.Duration(700+i%13) * time.Microsecond, Width: 250})
		}
	}
	wide := &device.Work{Stream: device.Stream{Process: 2}, At: 5 * ms, Duration: ms, Width: share.Whole}
	d.Submit(wide)
	d.Advance(time.Minute)
	if !wide.Done || wide.Start > 6*ms {
		t.Errorf("the wide kernel started at %v", wide.Start)
	}
}
