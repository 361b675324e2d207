package controller

import (
	"context"
	"sync"

	"github.com/gshare-dev/gshare/serving/gateway"
)

// loads adds up what the gateways report. Its methods may be called concurrently.
type loads struct {
	waiting chan gateway.FunctionName

	mu       sync.Mutex
	changed  chan struct{}                         // closed, and replaced, with each change
	gateways map[string]*reporter                  // by name
	past     map[gateway.FunctionName]gateway.Load // counted by runs that have ended
}

// reporter is one run of a gateway.
type reporter struct {
	incarnation string
	connected   bool
	functions   map[gateway.FunctionName]reported
}

// reported is what a gateway has last reported of a function.
type reported struct {
	load    gateway.Load
	recent  []uint64        // valid requests in each of the seconds before the first report, oldest first
	drained map[string]bool // pods without requests of this gateway that are to be drained
}

func newLoads() *loads {
	return &loads{
		waiting: make(chan gateway.FunctionName, 1024), changed: make(chan struct{}),
		gateways: map[string]*reporter{}, past: map[gateway.FunctionName]gateway.Load{},
	}
}

// report notes what a gateway has reported of a function. waits is whether a request waits there for a first replica.
func (l *loads) report(name, incarnation string, function gateway.FunctionName, now reported, waits bool) {
	l.mu.Lock()
	r := l.gateways[name]
	if r == nil || r.incarnation != incarnation {
		l.end(name)
		r = &reporter{incarnation: incarnation, functions: map[gateway.FunctionName]reported{}}
		l.gateways[name] = r
	}
	r.connected = true
	if now.recent == nil {
		now.recent = r.functions[function].recent
	}
	r.functions[function] = now
	l.announce()
	l.mu.Unlock()
	if waits {
		select {
		case l.waiting <- function:
		default: // the fleet is far behind, and will find the request in Load
		}
	}
}

// disconnect notes that a gateway is out of reach: what it has counted remains, and nobody waits for its requests.
func (l *loads) disconnect(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r := l.gateways[name]; r != nil {
		r.connected = false
	}
	l.announce()
}

// remove notes that a gateway will not come back.
func (l *loads) remove(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.end(name)
	l.announce()
}

// end adds what the run of a gateway has counted to the past. The lock must be held.
func (l *loads) end(name string) {
	if r := l.gateways[name]; r != nil {
		for function, last := range r.functions {
			l.past[function] = add(l.past[function], counted(last.load))
		}
		delete(l.gateways, name)
	}
}

// announce tells those that wait for a change. The lock must be held.
func (l *loads) announce() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// Load returns the sum over all gateways, those that have ended included.
func (l *loads) Load(function gateway.FunctionName) gateway.Load {
	l.mu.Lock()
	defer l.mu.Unlock()
	sum := l.past[function]
	for _, r := range l.gateways {
		last := r.functions[function].load
		if !r.connected {
			last = counted(last)
		}
		sum = add(sum, last)
	}
	return sum
}

// Recent returns the requests in each of the seconds before the gateways' first reports, oldest first.
func (l *loads) Recent(function gateway.FunctionName) []uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	var sum []uint64
	for _, r := range l.gateways {
		recent := r.functions[function].recent
		if missing := len(recent) - len(sum); missing > 0 {
			sum = append(make([]uint64, missing), sum...)
		}
		for at, n := range recent {
			sum[len(sum)-len(recent)+at] += n
		}
	}
	return sum
}

// waitDrained returns when each connected gateway has reported that it drains a pod and has no requests there, or with the error of ctx.
func (l *loads) waitDrained(ctx context.Context, function gateway.FunctionName, pod string) error {
	for {
		l.mu.Lock()
		changed := l.changed
		all := true
		for _, r := range l.gateways {
			all = all && (!r.connected || r.functions[function].drained[pod])
		}
		l.mu.Unlock()
		if all {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// forget removes what is known of a function whose object is gone.
func (l *loads) forget(function gateway.FunctionName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.past, function)
	for _, r := range l.gateways {
		delete(r.functions, function)
	}
}

// counted returns the counters of a load without what is there now.
func counted(l gateway.Load) gateway.Load {
	l.Waiting, l.InFlight, l.Replicas, l.P50, l.P99 = 0, 0, 0, 0, 0
	return l
}

// add returns the sum of the loads of two gateways, and the greater of their percentiles: that of both together is no greater.
func add(a, b gateway.Load) gateway.Load {
	return gateway.Load{
		Arrived: a.Arrived + b.Arrived, Received: a.Received + b.Received, Answered: a.Answered + b.Answered, InTime: a.InTime + b.InTime,
		Refused: a.Refused + b.Refused, Invalid: a.Invalid + b.Invalid, Failed: a.Failed + b.Failed, Gone: a.Gone + b.Gone,
		Waiting: a.Waiting + b.Waiting, InFlight: a.InFlight + b.InFlight, Replicas: max(a.Replicas, b.Replicas), P50: max(a.P50, b.P50), P99: max(a.P99, b.P99),
	}
}
