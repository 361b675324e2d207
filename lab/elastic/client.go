package elastic

import (
	"time"

	"github.com/gshare-dev/gshare/lab/device"
)

// ahead is the number of unfinished waves from which on a host launches no further kernel.
const ahead = 4

// client is a host that launches one pass of its function after another.
type client struct {
	Tenant
	process device.Process
	all     []Phase // kernels of a pass, in order

	arrivals []time.Duration // requests to come; a training needs none
	waiting  []time.Duration // requests that came
	next     int             // kernel of the pass to launch; len(all) if none is left
	flying   int             // waves on the device
	resume   time.Duration   // the host does something else until then

	began time.Duration // first launch of the pass
	batch time.Duration // the longest pass since the server last looked

	done      int // waves, for the throughput of a training
	latencies []time.Duration
}

func newClient(t Tenant, p device.Process, arrivals []time.Duration) *client {
	c := &client{Tenant: t, process: p, arrivals: arrivals}
	for range t.Layers {
		c.all = append(c.all, t.Layer...)
	}
	c.next = len(c.all)
	return c
}

// wants reports whether the host has a kernel to launch.
func (c *client) wants(now time.Duration) bool { return c.next < len(c.all) && now >= c.resume }

// busy reports whether a pass is unfinished.
func (c *client) busy() bool { return c.next < len(c.all) || c.flying > 0 }

// arrive adds new requests to the queue, and begins the next pass if the last one is finished.
func (c *client) arrive(now time.Duration) {
	for len(c.arrivals) > 0 && c.arrivals[0] <= now {
		c.waiting = append(c.waiting, c.arrivals[0])
		c.arrivals = c.arrivals[1:]
	}
	if !c.busy() && (c.Trains || len(c.waiting) > 0) {
		c.next = 0
	}
}

// wake returns the time of the next event on the host, if there is one.
func (c *client) wake(now time.Duration) (at time.Duration, ok bool) {
	if len(c.arrivals) > 0 {
		at, ok = c.arrivals[0], true
	}
	if c.resume > now {
		at, ok = c.resume, true
	}
	return at, ok
}

// launch returns the waves of the next kernel.
func (c *client) launch(now time.Duration) (waves []*device.Work) {
	if c.next == 0 {
		c.began = now
	}
	p := c.all[c.next]
	c.next++
	c.flying += p.Waves
	for n := range p.Waves {
		waves = append(waves, &device.Work{Stream: device.Stream{Process: c.process, ID: 1}, At: now, Duration: p.Wave, Width: p.Width,
			Least: (p.Width + 1) / 2, Follows: n > 0})
	}
	return waves
}

// complete records the end of a wave, and of a pass.
func (c *client) complete(now time.Duration) {
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
