package serving

import (
	"fmt"
	"slices"
	"time"

	"github.com/gshare-dev/gshare/serving/rules/profile"
	"github.com/gshare-dev/gshare/vgpu/residency"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Turns says how a function of class swap is served on a cluster: by one replica, which holds the memory of its slice in turn with other replicas.
type Turns struct {
	Slice string        // slice that holds the replica
	Takes time.Duration // execution time of a request

	// Begins are the times from the decision that gives the replica a turn until it answers requests. Leaves are the times from the decision that ends the
	// turn until the memory of the slice is free, not counting requests already begun. Each turn uses the next value of both lists; after the last, they
	// start again.
	Begins, Leaves []time.Duration
}

func (t *Turns) validate() error {
	switch {
	case t.Slice == "":
		return share.Invalid("slice", "is empty")
	case t.Takes <= 0 || t.Takes > time.Hour:
		return share.Invalid("takes", "%v is not above 0 and at most 1h", t.Takes)
	}
	for field, times := range map[string][]time.Duration{"begins": t.Begins, "leaves": t.Leaves} {
		if len(times) == 0 || slices.Min(times) < 0 || slices.Max(times) > time.Hour {
			return share.Invalid(field, "%v: want one or more, from 0 to 1h", times)
		}
	}
	return nil
}

// turnSimulation simulates functions of class swap: serving/controller gives turns, and requests wait for them in serving/gateway. Once a second, the rule of
// package residency decides who has the next turn of a slice. Requests wait until their deadlines, and are refused then.
type turnSimulation struct {
	clock     *clock
	record    *record
	functions []*inTurn
}

// inTurn is one function with its replica. It counts as having had a turn before the trace begins.
type inTurn struct {
	sim      *turnSimulation
	function *Function
	stage    residency.Stage
	seen     residency.Stage // stage that the controller saw when it last looked
	since    time.Duration   // when the controller first saw this stage
	waiting  int             // number of waiting requests that gateways last reported
	inFlight int             // number of requests in flight that gateways last reported
	used     time.Duration   // when its last turn ended
	waits    time.Duration   // since when the controller has seen requests wait; 0 if it sees none
	queue    []int32         // in the order of arrival, which is also that of deadlines
	busy     bool
	turns    int // number of turns begun
}

func newTurnSimulation(in *Input, c *clock, r *record) (simulation, error) {
	w := &turnSimulation{clock: c, record: r}
	for i := range in.Functions {
		f := &in.Functions[i]
		err := error(share.Invalid("slice", "is missing: the policy needs to know with which others the function takes turns"))
		if f.Turns != nil {
			err = f.Turns.validate()
		}
		if err != nil {
			return nil, profile.WithinField(fmt.Sprintf("functions[%d].turns", i), err)
		}
		w.functions = append(w.functions, &inTurn{sim: w, function: f, used: 1})
	}
	return w, nil
}

func (w *turnSimulation) arrive(request int32) {
	p := w.functions[w.record.arrivals[request].Function]
	if p.queue = append(p.queue, request); len(p.queue) == 1 && p.stage != residency.Serving {
		p.report() // gateways report the first request that waits for the replica at once
	}
	w.clock.schedule(w.record.deadline(request), func() { p.expire(request) })
	p.serve()
}

// expire refuses a request that still waits at its deadline.
func (p *inTurn) expire(request int32) {
	if at := slices.Index(p.queue, request); at >= 0 {
		p.queue = slices.Delete(p.queue, at, at+1)
		p.sim.record.refuse(request)
	}
}

// serve makes the replica answer the next request if it has its turn and is not busy.
func (p *inTurn) serve() {
	if p.stage != residency.Serving || p.busy || len(p.queue) == 0 {
		return
	}
	request := p.queue[0]
	p.queue, p.busy = p.queue[1:], true
	p.sim.clock.after(p.function.Turns.Takes, func() {
		p.busy = false
		p.sim.record.result.GPUSeconds += p.function.Turns.Takes.Seconds() // of the slice; nothing else is reserved
		p.sim.record.answer(request, p.sim.clock.now)
		p.serve()
		p.leave()
	})
}

// report records what gateways report each second.
func (p *inTurn) report() {
	p.waiting, p.inFlight = len(p.queue), 0
	if p.busy {
		p.inFlight = 1
	}
}

// reportAge is the mean age of the gateways' last report when turns are decided.
const reportAge = residency.TurnPeriod / 2

// everySecond gives and ends turns on all slices.
func (w *turnSimulation) everySecond() error {
	w.clock.after(residency.TurnPeriod-reportAge, func() {
		for _, p := range w.functions {
			p.report()
		}
	})
	bySlice := map[string][]residency.InTurn{}
	for _, p := range w.functions {
		bySlice[p.function.Turns.Slice] = append(bySlice[p.function.Turns.Slice], p.look(w.clock.now))
	}
	next := map[string]bool{}
	for _, all := range bySlice {
		if id, any := residency.NextTurn(w.clock.now, all, residency.ClusterTurns()); any {
			next[id] = true
		}
	}
	for _, p := range w.functions {
		switch has := next[p.function.Name]; {
		case has && p.stage == residency.Waiting:
			p.begin()
		case !has && p.stage == residency.Serving: // a turn that is beginning goes on until the replica could be parked
			p.stage = residency.Leaving
			p.leave()
		}
	}
	return nil
}

// look returns the replica as the controller sees it.
func (p *inTurn) look(now time.Duration) residency.InTurn {
	switch {
	case p.waiting == 0:
		p.waits = 0
	case p.waits == 0:
		p.waits = now
	}
	if p.stage != p.seen {
		p.seen, p.since = p.stage, now
	}
	return residency.InTurn{
		ID: p.function.Name, Stage: p.stage, Since: p.since, Waiting: p.waiting, InFlight: p.inFlight, Due: p.waits + p.function.SLO, Used: p.used,
	}
}

func (p *inTurn) begin() {
	p.stage = residency.Beginning
	p.sim.record.result.WarmStarts++
	begins := p.function.Turns.Begins
	p.turns++
	p.sim.clock.after(begins[(p.turns-1)%len(begins)], func() {
		p.stage = residency.Serving
		p.serve()
	})
}

// leave gives the memory back, if the replica is meant to and no longer answers a request.
func (p *inTurn) leave() {
	if p.stage != residency.Leaving || p.busy {
		return
	}
	leaves := p.function.Turns.Leaves
	p.sim.clock.after(leaves[(p.turns-1)%len(leaves)], func() {
		p.stage = residency.Waiting
		p.used, p.waits = p.sim.clock.now, 0 // requests that still wait queue behind others that have been waiting
	})
}

func (*turnSimulation) finish(*priceList, *Result) {}
