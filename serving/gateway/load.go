package gateway

import "time"

// Load is what the gateway has counted for a function since it was added, and its present state. At every moment
//
//	Arrived = Answered + Refused + Failed + Gone + Waiting + InFlight
//
// A request whose body is still being read is in none of them.
type Load struct {
	Arrived  uint64 // requests that arrived completely, or ended before: they were refused, or the client left
	Received uint64 // of those, the valid ones that arrived completely: what the replicas have to answer
	Answered uint64 // by a replica, whatever the status
	InTime   uint64 // answered within their deadlines, without an error of the server
	Refused  uint64 // at once or while they waited
	Invalid  uint64 // of those, the ones that never counted as Received: malformed, too large, or with a late body
	Failed   uint64 // given up after a replica had them, or when the client's deadline passed
	Gone     uint64 // whose client left before the answer

	Waiting  int // in the queue or held
	InFlight int // at replicas
	Replicas int

	P50, P99 time.Duration // of the latency of requests in the last 30 to 60 s; 0 if there were none

	LastSecond LastSecond // only in a load that is reported every second
}

// LastSecond is how many valid requests arrived completely in a gateway's last whole second, if that is known. The difference between two values of
// Received cannot replace it: values are read at other moments than they are counted, so one difference may cover no second's requests and the next
// one those of two seconds.
type LastSecond struct {
	Received uint64
	Known    bool
}

// Load returns the load of a function, or zero if the function is not known.
func (g *Gateway) Load(name FunctionName) Load {
	if f := g.function(name); f != nil {
		return f.load()
	}
	return Load{}
}

func (f *function) load() (l Load) {
	f.mu.Lock()
	replicas := len(f.replicas)
	f.mu.Unlock()
	f.count(func(s *statistics) {
		l = s.counts
		l.P50, l.P99 = s.window.quantiles(time.Now())
	})
	l.Replicas = replicas
	return l
}
