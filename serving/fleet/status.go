package fleet

import (
	"math"
	"slices"
	"time"

	"github.com/gshare-dev/gshare/serving/gateway"
	"github.com/gshare-dev/gshare/serving/rules/scaling"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Status is the state of a function as its owner sees it. It has many fields: one for each column of the table and each metric.
type Status struct {
	Name     gateway.FunctionName
	SLO      time.Duration
	P99      time.Duration  // of the last 30 to 60 s; 0 without requests
	Hit      float64        // part of the requests of the last 10 s that were answered in time; NaN without requests
	Rate     float64        // requests per second that arrived completely in the last 10 s
	Replicas map[string]int // number in each phase
	Hot      int            // replicas that are wanted with their whole share, including those that are being replaced
	Shared   int            // replicas in reserve, and those being replaced because they could not be made Hot
	Warm     int            // parked replicas, which are in no phase

	// Reserved is what the Hot and Shared replicas hold of GPUs, with an element for each GPU of each of them: its share or, in reserve, only the
	// memory of a part of a GPU. What a parked replica holds is not known here.
	Reserved []share.Share

	CannotPark string // why a replica could not be parked, so that none is any more; empty if they can be
	Share      share.Share
	GPUs       int64  // number of GPUs of each replica, of each of which it has the Share
	Ready      bool   // a replica is ready, or none is wanted
	Reason     string // Serving, Idle, Starting or Failing; also Waiting, for functions that take turns on GPUs
	Message    string // about a replica that is not ready

	// Host is the function whose replicas serve the requests, as gateways are to be told; empty if there is none.
	Host gateway.FunctionName

	// GPUTime is for how long whole GPUs would have been reserved for the function since New. It is the sum over its replicas of SM request times
	// quota request times the number of its GPUs times the time from each start until nothing was left of the replica, including the wait for its share.
	// What a replica actually uses of its share, and limits above the requests, do not count.
	GPUTime time.Duration

	Starts, Failures  uint64 // of replicas, since New
	Waiting, InFlight int    // requests at present: without a replica, and at one
}

// Status returns the states of all functions, in the order in which they were added.
func (f *Fleet) Status() []Status { return f.StatusInto(nil) }

// StatusInto is Status for callers that call it often: it reuses the memory of the states that an earlier call returned, which must no longer be used.
func (f *Fleet) StatusInto(used []Status) []Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := slices.Grow(used[:0], len(f.functions))[:len(f.functions)]
	for at, fn := range f.functions {
		f.setStatus(&all[at], fn)
	}
	return all
}

// StatusOf returns the state of a function, or false if the fleet does not have it.
func (f *Fleet) StatusOf(name gateway.FunctionName) (Status, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fn := f.byName[name]
	if fn == nil {
		return Status{}, false
	}
	var s Status
	f.setStatus(&s, fn)
	return s, true
}

// setStatus sets s to the state of a function, reusing the map and the slice in s.
func (f *Fleet) setStatus(s *Status, fn *function) {
	load, now := f.gateways.Load(fn.name), time.Now()
	replicas, reserved := s.Replicas, s.Reserved[:0]
	if replicas == nil {
		replicas = map[string]int{}
	}
	clear(replicas)
	*s = Status{
		Name: fn.name, SLO: fn.slo, P99: load.P99, Hit: math.NaN(), Share: fn.variants[0].configuration.Share, GPUs: fn.object.GPUs(), Replicas: replicas, Reserved: reserved,
		GPUTime: fn.gpuTime, Starts: fn.starts, Failures: fn.failures, Waiting: load.Waiting, InFlight: load.InFlight,
	}
	if fn.hosted {
		s.Host = fn.host
	}
	fn.observe(s)
	s.CannotPark = fn.cannotPark
	for _, i := range fn.sorted() {
		s.GPUTime += i.gpuTime(now) // parked replicas count as well, as do those in reserve, so that the sum only grows
		if i.isParked() {
			s.count(scaling.Warm)
			continue
		}
		s.Replicas[string(i.phase)]++
		if i.phase != draining && i.phase != stopping {
			s.count(i.wanted())
			s.reserve(i)
		}
		if i.message != "" && s.Message == "" { // the message of the oldest instance
			s.Message = i.explained()
		}
	}
	count := func(p phase) int { return s.Replicas[string(p)] }
	failed := count(backingOff) + count(restarting)
	s.Ready = count(ready) > 0 || count(starting)+failed == 0
	switch {
	case failed > 0:
		s.Reason = "Failing"
	case count(starting) > 0:
		s.Reason = "Starting"
	case count(ready) > 0:
		s.Reason = "Serving"
	default:
		s.Reason = "Idle"
	}
}

// observe sets Rate and Hit from the counters of the last ticks.
func (fn *function) observe(s *Status) {
	if n := len(fn.counts); n > 1 {
		first, last := fn.counts[0], fn.counts[n-1]
		s.Rate = float64(since(last.received, first.received)) / (time.Duration(n-1) * period).Seconds()
		if all := since(last.finished, first.finished); all > 0 {
			s.Hit = min(1, float64(since(last.inTime, first.inTime))/float64(all))
		}
	}
}

func (s *Status) count(r scaling.Residency) {
	switch r {
	case scaling.Shared:
		s.Shared++
	case scaling.Warm:
		s.Warm++
	default:
		s.Hot++
	}
}

func (s *Status) reserve(i *instance) {
	var held share.Share
	switch i.wanted() {
	case scaling.Shared:
		held.Memory = i.Share.Memory
		if i.Share.IsWhole() { // it has the GPU to itself
			held = i.Share
		}
	case scaling.Hot:
		held = i.Share
	default:
		return
	}
	for range i.Function.GPUs() {
		s.Reserved = append(s.Reserved, held)
	}
}

// finished returns how many requests are known to have been answered in time or not. Requests whose clients left and invalid requests do not count.
func finished(l gateway.Load) uint64 { return l.Answered + l.Refused - l.Invalid + l.Failed }
