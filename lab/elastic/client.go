package elastic

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/gshare-dev/gshare/vgpu/device"
)

// maxQueuedWaves is the number of unfinished waves from which a host launches no further kernel.
const maxQueuedWaves = 4

// client simulates a host that runs one pass of its function after another on the GPU.
type client struct {
	Tenant
	process device.Process
	all     []Kernel // kernels of a pass, in order

	arrivals []time.Duration // times of future requests; a training needs none
	waiting  []time.Duration // arrival times of queued requests
	next     int             // kernel of the pass to launch; len(all) if none is left
	flying   int             // number of waves on the device
	resume   time.Duration   // time until which the host launches nothing

	spread float64    // see Setting.Spread
	random *rand.Rand // nil for a training, whose passes all take the same time
	pace   float64    // factor of the time of the present pass

	began time.Duration // time of the pass's first launch
	batch time.Duration // the longest pass since the server last read it

	done      int // number of completed waves, for the throughput of a training
	latencies []time.Duration
}

func newClient(t Tenant, p device.Process, arrivals []time.Duration) *client {
	c := &client{Tenant: t, process: p, arrivals: arrivals, pace: 1}
	for range t.Layers {
		c.all = append(c.all, t.Layer...)
	}
	c.next = len(c.all)
	return c
}

// hasKernel reports whether the host has a kernel to launch now.
func (c *client) hasKernel(now time.Duration) bool { return c.next < len(c.all) && now >= c.resume }

// isBusy reports whether a pass is unfinished.
func (c *client) isBusy() bool { return c.next < len(c.all) || c.flying > 0 }

// acceptRequests adds the requests that have arrived to the queue, and begins the next pass if the last one is finished.
func (c *client) acceptRequests(now time.Duration) {
	for len(c.arrivals) > 0 && c.arrivals[0] <= now {
		c.waiting = append(c.waiting, c.arrivals[0])
		c.arrivals = c.arrivals[1:]
	}
	if !c.isBusy() && (c.Trains || len(c.waiting) > 0) {
		c.next = 0
	}
}

// nextEvent returns the time of the next arrival of a request or of the host's resumption, and false if neither is to come.
func (c *client) nextEvent(now time.Duration) (at time.Duration, ok bool) {
	if len(c.arrivals) > 0 {
		at, ok = c.arrivals[0], true
	}
	if c.resume > now {
		at, ok = c.resume, true
	}
	return at, ok
}

// launchKernel returns the waves of the next kernel, as work for the device.
func (c *client) launchKernel(now time.Duration) (waves []*device.Work) {
	if c.next == 0 {
		c.began = now
		if c.random != nil {
			c.pace = math.Exp(c.spread * c.random.NormFloat64())
		}
	}
	p := c.all[c.next]
	c.next++
	c.flying += p.Waves
	for n := range p.Waves {
		waves = append(waves, &device.Work{Stream: device.Stream{Process: c.process, ID: 1}, At: now, Duration: time.Duration(float64(p.Wave) * c.pace), Width: p.Width,
			Least: (p.Width + 1) / 2, Follows: n > 0})
	}
	return waves
}

// completeWave records the end of a wave of thread blocks and, if it was the last wave of the pass, the end of the pass.
func (c *client) completeWave(now time.Duration) {
	c.flying--
	c.done++
	if c.flying > 0 || c.next < len(c.all) {
		return
	}
	c.resume = now + c.Gap
	c.batch = max(c.batch, now-c.began)
	if !c.Trains {
		c.latencies = append(c.latencies, now-c.waiting[0])
		c.waiting = c.waiting[1:]
	}
}
