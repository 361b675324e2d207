package elastic

import (
	"context"
	"time"

	"github.com/gshare-dev/gshare/vgpu/device"
	"github.com/gshare-dev/gshare/vgpu/token"
)

const never = token.Never

// simulation is one simulated GPU with its clients and the gate that controls their launches.
type simulation struct {
	device  *device.Device
	gate    gate
	clients []*client
	now     time.Duration
	check   time.Duration // time of the next call of gate.advance
}

func serve(ctx context.Context, c []*client, s Setting) error {
	g, err := newGate(s, c)
	if err != nil {
		return err
	}
	w := &simulation{device: device.New(), gate: g, clients: c}
	w.device.SetInterference(s.Interference)
	for _, client := range c {
		w.device.Attach(client.process, smCap(s.Policy, client.Function))
		if client.Trains && lowersBestEffort(s.Policy) {
			w.device.LowerPriority(client.process)
		}
	}
	for steps := 0; w.now < s.Length || w.now < 2*s.Length && w.hasRequests(); steps++ {
		if steps%10_000 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		w.step(s.Length)
	}
	return nil
}

// hasRequests reports whether requests are waiting or still to arrive.
func (w *simulation) hasRequests() bool {
	for _, c := range w.clients {
		if !c.Trains && (len(c.waiting) > 0 || len(c.arrivals) > 0) {
			return true
		}
	}
	return false
}

// step advances the simulation to the next event. It counts the work of trainings until end, when requests stop arriving.
func (w *simulation) step(end time.Duration) {
	w.launch()
	next := w.check
	if at, ok := w.device.NextEvent(); ok {
		next = min(next, at)
	}
	for _, c := range w.clients {
		if at, ok := c.nextEvent(w.now); ok {
			next = min(next, at)
		}
	}
	w.now = min(next, w.now+time.Second)
	for _, work := range w.device.Advance(w.now) {
		c := w.clients[0]
		if c.process != work.Stream.Process {
			c = w.clients[1]
		}
		c.completeWave(w.now)
		if w.now > end {
			c.done--
		}
	}
}

// launch advances the gate and lets every client launch the kernels that the gate allows.
func (w *simulation) launch() {
	for _, c := range w.clients {
		c.acceptRequests(w.now)
	}
	w.check = w.gate.advance(w.now, w.clients, w.device)
	for k, c := range w.clients {
		for c.flying < maxQueuedWaves && c.hasKernel(w.now) && w.gate.may(k) {
			w.gate.launched(w.now, k, c.all[c.next].blocks()*int64(c.all[c.next].Waves))
			for _, wave := range c.launchKernel(w.now) {
				w.device.Submit(wave)
			}
		}
	}
}
