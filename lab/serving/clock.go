package serving

import "time"

// clock is a virtual clock with a heap of scheduled events. Events at the same time run in the order in which they were scheduled.
type clock struct {
	now  time.Duration
	heap []event
	set  int64
}

type event struct {
	at    time.Duration
	order int64
	do    func()
}

func (e *event) before(o *event) bool { return e.at < o.at || e.at == o.at && e.order < o.order }

// schedule schedules an event. A time in the past means now.
func (c *clock) schedule(t time.Duration, do func()) {
	c.set++
	c.heap = append(c.heap, event{max(t, c.now), c.set, do})
	for i := len(c.heap) - 1; i > 0; {
		parent := (i - 1) / 2
		if !c.heap[i].before(&c.heap[parent]) {
			break
		}
		c.heap[i], c.heap[parent] = c.heap[parent], c.heap[i]
		i = parent
	}
}

func (c *clock) after(d time.Duration, do func()) { c.schedule(c.now+d, do) }

// nextTime returns the time of the next event, and false if none is scheduled.
func (c *clock) nextTime() (time.Duration, bool) {
	if len(c.heap) == 0 {
		return 0, false
	}
	return c.heap[0].at, true
}

// runNext removes the next event, advances the clock to its time and runs it.
func (c *clock) runNext() {
	e := c.heap[0]
	last := len(c.heap) - 1
	c.heap[0], c.heap[last] = c.heap[last], event{}
	c.heap = c.heap[:last]
	for i := 0; ; {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < last; child++ {
			if c.heap[child].before(&c.heap[least]) {
				least = child
			}
		}
		if least == i {
			break
		}
		c.heap[i], c.heap[least] = c.heap[least], c.heap[i]
		i = least
	}
	c.now = e.at
	e.do()
}
