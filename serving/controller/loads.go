package controller

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/gshare-dev/gshare/serving/api/load"
	"github.com/gshare-dev/gshare/serving/gateway"
	"github.com/gshare-dev/gshare/serving/report"
)

// loads adds up what the gateways report. Its methods may be called concurrently.
type loads struct {
	waiting chan gateway.FunctionName

	mu       sync.Mutex
	changed  chan struct{}                         // closed, and replaced, with each change
	gateways map[string]*reporter                  // by name
	past     map[gateway.FunctionName]gateway.Load // what runs of gateways that have ended had counted
	expected map[string]bool                       // whether each existing gateway has reported or could not be reached; nil until they are known
}

// reporter is one run of a gateway.
type reporter struct {
	incarnation string
	connected   bool
	base        map[gateway.FunctionName]gateway.Load // counters of its first report, for earlier requests
	functions   map[gateway.FunctionName]reported
}

// reported is what a gateway has last reported about a function.
type reported struct {
	load    gateway.Load
	recent  []uint64        // valid requests in each of the seconds before until, oldest first
	until   time.Time       // of the last report that had recent ones: the first one of a connection
	drained map[string]bool // pods to be drained that have no requests of this gateway
	busy    []string        // pods that have requests of this gateway
}

func newLoads() *loads {
	return &loads{
		waiting: make(chan gateway.FunctionName, 1024), changed: make(chan struct{}),
		gateways: map[string]*reporter{}, past: map[gateway.FunctionName]gateway.Load{},
	}
}

// functionReport is what a gateway reports about a function.
type functionReport struct {
	name gateway.FunctionName
	reported
	waits bool // requests wait for a first replica
}

// report records a report of a gateway. What the gateway counted before its first report is left out: the fleet would take it for requests of the
// present second.
func (l *loads) report(name, incarnation string, functions []functionReport) {
	l.mu.Lock()
	r := l.gateways[name]
	if r == nil || r.incarnation != incarnation {
		l.end(name)
		r = &reporter{incarnation: incarnation, functions: map[gateway.FunctionName]reported{}, base: map[gateway.FunctionName]gateway.Load{}}
		l.gateways[name] = r
		for _, f := range functions {
			r.base[f.name] = f.load
		}
	}
	r.connected = true
	for _, f := range functions {
		now := f.reported
		if now.until = time.Now(); now.recent == nil {
			now.recent, now.until = r.functions[f.name].recent, r.functions[f.name].until
		}
		if now.load.Arrived < r.base[f.name].Arrived { // the function was deleted and created again, and is counted from zero
			delete(r.base, f.name)
		}
		now.load = subtract(now.load, r.base[f.name])
		r.functions[f.name] = now
	}
	l.attempted(name)
	l.announce()
	l.mu.Unlock()
	for _, f := range functions {
		if !f.waits {
			continue
		}
		select {
		case l.waiting <- f.name:
		default: // the fleet is far behind, and will find the request in Load
		}
	}
}

// expect records which gateways exist.
func (l *loads) expect(names []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.expected
	l.expected = map[string]bool{}
	for _, name := range names {
		l.expected[name] = before[name]
	}
	if len(before) != len(l.expected) {
		l.announce()
	}
}

// attempted records that a gateway has reported or could not be reached. The caller holds the lock.
func (l *loads) attempted(name string) {
	if _, expected := l.expected[name]; expected {
		l.expected[name] = true
	}
}

// settled reports whether each gateway has reported or could not be reached.
func (l *loads) settled() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, attempted := range l.expected {
		if !attempted {
			return false
		}
	}
	return l.expected != nil
}

// disconnect records that a gateway is out of reach: what it has counted remains, but nobody waits for its requests.
func (l *loads) disconnect(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r := l.gateways[name]; r != nil {
		r.connected = false
	}
	l.attempted(name)
	l.announce()
}

// remove records that a gateway will not come back.
func (l *loads) remove(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.end(name)
	l.announce()
}

// end adds what a run of a gateway has counted to the past. The caller holds the lock.
func (l *loads) end(name string) {
	if r := l.gateways[name]; r != nil {
		for function, last := range r.functions {
			l.past[function] = add(l.past[function], counted(last.load))
		}
		delete(l.gateways, name)
	}
}

// announce wakes those who wait for a change. The caller holds the lock.
func (l *loads) announce() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// Load returns the sum over all gateways, including those that have ended. Its LastSecond is known if every connected gateway that has the function
// reports it.
func (l *loads) Load(function gateway.FunctionName) gateway.Load {
	l.mu.Lock()
	defer l.mu.Unlock()
	sum := l.past[function]
	second := gateway.LastSecond{}
	unknown := false // of some connected gateway
	for _, r := range l.gateways {
		reported, found := r.functions[function]
		last := reported.load
		if !r.connected {
			last = counted(last)
		} else if found {
			second.Received += last.LastSecond.Received
			second.Known = true
			unknown = unknown || !last.LastSecond.Known
		}
		sum = add(sum, last)
	}
	if second.Known && !unknown {
		sum.LastSecond = second
	}
	return sum
}

// Recent returns the number of requests in each of the seconds before the gateways' first reports, oldest first. Reports that are older than the seconds
// that they cover at most say nothing about the present, and are left out.
func (l *loads) Recent(function gateway.FunctionName) []uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	var sum []uint64
	for _, r := range l.gateways {
		recent := r.functions[function].recent
		if time.Since(r.functions[function].until) > load.Seconds*time.Second {
			continue
		}
		if missing := len(recent) - len(sum); missing > 0 {
			sum = append(make([]uint64, missing), sum...)
		}
		for at, n := range recent {
			sum[len(sum)-len(recent)+at] += n
		}
	}
	return sum
}

// isBusy reports whether a pod of a function has requests of a connected gateway.
func (l *loads) isBusy(function gateway.FunctionName, pod string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.gateways {
		if r.connected && slices.Contains(r.functions[function].busy, pod) {
			return true
		}
	}
	return false
}

// waitDrained returns when every connected gateway has reported that it is draining a pod and has no requests there, or with the error of ctx.
func (l *loads) waitDrained(ctx context.Context, function gateway.FunctionName, pod string) error {
	return l.wait(ctx, func() bool {
		for _, r := range l.gateways {
			if r.connected && !r.functions[function].drained[pod] {
				return false
			}
		}
		return true
	})
}

// waitStopped returns when every existing gateway has reported that it no longer sends requests to a pod, as the residency.Wanted with sequence
// number seq demands, or with the error of ctx. A gateway that cannot be reached might still send some, so it is waited for.
func (l *loads) waitStopped(ctx context.Context, function gateway.FunctionName, pod string, seq int64) error {
	stopped := report.Stopped(pod, seq)
	return l.wait(ctx, func() bool {
		all := l.expected != nil
		for name := range l.expected {
			r := l.gateways[name]
			all = all && r != nil && r.connected && r.functions[function].drained[stopped]
		}
		for _, r := range l.gateways {
			all = all && (!r.connected || r.functions[function].drained[stopped])
		}
		return all
	})
}

// wait returns when the reports meet a condition, or with the error of ctx. holds reports whether they do; it is called with l.mu locked, again
// after each change.
func (l *loads) wait(ctx context.Context, holds func() bool) error {
	for {
		l.mu.Lock()
		changed, done := l.changed, holds()
		l.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// forget removes what is known about a function whose object has been deleted.
func (l *loads) forget(function gateway.FunctionName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.past, function)
	for _, r := range l.gateways {
		delete(r.functions, function)
		delete(r.base, function)
	}
}

// counted returns only the counters of a load: no requests in the queue or at replicas, no latencies, and no rate.
func counted(l gateway.Load) gateway.Load {
	l.Waiting, l.InFlight, l.Replicas, l.P50, l.P99, l.LastSecond = 0, 0, 0, 0, 0, gateway.LastSecond{}
	return l
}

// subtract returns a load whose counters are by how much they have grown since before.
func subtract(now, before gateway.Load) gateway.Load {
	now.Arrived, now.Received, now.Answered, now.InTime = now.Arrived-before.Arrived, now.Received-before.Received, now.Answered-before.Answered, now.InTime-before.InTime
	now.Refused, now.Invalid, now.Failed, now.Gone = now.Refused-before.Refused, now.Invalid-before.Invalid, now.Failed-before.Failed, now.Gone-before.Gone
	return now
}

// add returns the sum of the loads of two gateways, with the greater of their percentiles: that of all requests together is no greater.
func add(a, b gateway.Load) gateway.Load {
	return gateway.Load{
		Arrived: a.Arrived + b.Arrived, Received: a.Received + b.Received, Answered: a.Answered + b.Answered, InTime: a.InTime + b.InTime,
		Refused: a.Refused + b.Refused, Invalid: a.Invalid + b.Invalid, Failed: a.Failed + b.Failed, Gone: a.Gone + b.Gone,
		Waiting: a.Waiting + b.Waiting, InFlight: a.InFlight + b.InFlight, Replicas: max(a.Replicas, b.Replicas), P50: max(a.P50, b.P50), P99: max(a.P99, b.P99),
	}
}
