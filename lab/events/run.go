package events

import (
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// Sample is the number of GPUs in use after an event.
type Sample struct {
	After  time.Duration // since the first event
	Active int
}

// Result is the outcome of replaying a list of events under one policy. Means are over time, from the first event to the last.
type Result struct {
	Timeline  []Sample // one for each event
	Peak      int      // most GPUs that were active at once
	Mean      float64
	Decisions int // starts of instances
	Refused   int // starts that were refused because no GPU had room

	// The mean fractions of active GPUs that no instance requested: SMs beyond the requests, whatever the
	// policy guarantees, and memory.
	SMFragmentation, MemoryFragmentation float64
}

// Run replays the list of events under a policy and returns the GPUs that it needed.
func Run(list []Event, cfg Config, p Policy) Result {
	c := newCluster(cfg, p)
	var r Result
	var total usageIntegral
	for i, e := range list {
		if i > 0 {
			total.add(c, e.At.Sub(list[i-1].At))
		}
		r.apply(c, e)
		r.Timeline = append(r.Timeline, Sample{After: e.At.Sub(list[0].At), Active: c.active})
		r.Peak = max(r.Peak, c.active)
	}
	r.Mean = ratio(total.gpus, total.seconds)
	r.SMFragmentation = 1 - ratio(total.sm, total.gpus*float64(share.Whole))
	r.MemoryFragmentation = 1 - ratio(total.memory, total.gpus*float64(cfg.Memory))
	return r
}

func (r *Result) apply(c *cluster, e Event) {
	if !e.Start {
		c.stop(e.Instance.Name)
		return
	}
	r.Decisions++
	if !c.start(e.Instance) {
		r.Refused++
	}
}

// usageIntegral sums GPUs, requested SMs and requested memory over time, each weighted by seconds.
type usageIntegral struct{ seconds, gpus, sm, memory float64 }

func (t *usageIntegral) add(c *cluster, d time.Duration) {
	s := d.Seconds()
	t.seconds += s
	t.gpus += s * float64(c.active)
	t.sm += s * float64(c.requested.sm)
	t.memory += s * float64(c.requested.memory)
}

// ratio returns a/b, or 0 if b is 0.
func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}
