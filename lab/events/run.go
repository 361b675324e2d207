package events

import (
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// Sample is the number of used GPUs after an event.
type Sample struct {
	After  time.Duration // since the first event
	Active int
}

// Result is the outcome of a replay. Means are over time, from the first event to the last.
type Result struct {
	Timeline  []Sample // one for each event
	Peak      int      // most GPUs that were active at once
	Mean      float64
	Decisions int // instances that started
	Refused   int // of these, those that found no room

	// The parts of active GPUs that nobody asked for (DI-102): SMs beyond the instances' requests, whatever the policy
	// promises them, and memory.
	SMFragmentation, MemoryFragmentation float64
}

// Run replays the list under a policy.
func Run(list []Event, cfg Config, p Policy) Result {
	c := newCluster(cfg, p)
	var r Result
	var total integral
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

// integral is a sum over time.
type integral struct{ seconds, gpus, sm, memory float64 }

func (t *integral) add(c *cluster, d time.Duration) {
	s := d.Seconds()
	t.seconds += s
	t.gpus += s * float64(c.active)
	t.sm += s * float64(c.asked.sm)
	t.memory += s * float64(c.asked.memory)
}

// ratio returns a/b, and 0 if both are 0.
func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}
