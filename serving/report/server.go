// Package report reports the load of a gateway's functions to controllers, over gRPC. serving/api/load has the messages.
//
// A Server samples the gateway every second. It reports at once what a controller must not learn late: that a request waits for the first replica of
// a function, and that a replica has answered its last request. Watch and Decode are the client's side.
package report

import (
	"cmp"
	"context"
	"crypto/rand"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/gshare-dev/gshare/serving/api/load"
	"github.com/gshare-dev/gshare/serving/gateway"
)

// period is the time between two reports.
const period = time.Second

// maxWatchers bounds how many controllers watch at once. Normally there is one, plus for a while those that it has replaced.
const maxWatchers = 16

// Server reports the load of the functions of one gateway. Its methods may be called concurrently.
//
// Its memory does not grow with what controllers leave unread: for each controller it keeps only the version of the state that it has sent last.
type Server struct {
	gateway     *gateway.Gateway
	name        string
	incarnation string
	ended       chan struct{} // closed when it is time to send the last report

	mu        sync.Mutex // guards what follows
	version   uint64     // version of the state, incremented with each change
	functions map[gateway.FunctionName]*function
	watchers  map[*watcher]bool
}

// function is the last sample of a function.
type function struct {
	load    *load.FunctionLoad // replaced, never modified
	version uint64             // version of the state in which it was replaced
	seconds []uint64           // requests received in each of the last seconds, oldest first
	last    uint64             // load.Received at the end of the last second
}

// watcher is one controller.
type watcher struct {
	wake chan struct{} // buffer of one element: there is something new
	sent uint64        // version of the state that was sent last
}

// New returns a server for a gateway. name is that of the gateway's pod. Nothing else may receive from the gateway's Waiting.
func New(g *gateway.Gateway, name string) *Server {
	return &Server{
		gateway: g, name: name, incarnation: rand.Text(), ended: make(chan struct{}),
		functions: map[gateway.FunctionName]*function{}, watchers: map[*watcher]bool{},
	}
}

// GRPC returns a gRPC server with the service. options may restrict who can read it. It closes connections whose client no longer answers.
func (s *Server) GRPC(options ...grpc.ServerOption) *grpc.Server {
	server := grpc.NewServer(append([]grpc.ServerOption{
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 10 * time.Second, Timeout: 5 * time.Second}),
		grpc.MaxConcurrentStreams(maxWatchers), grpc.MaxRecvMsgSize(1 << 10),
	}, options...)...)
	server.RegisterService(&grpc.ServiceDesc{
		ServiceName: load.Service, HandlerType: (*any)(nil),
		Streams: []grpc.StreamDesc{{StreamName: load.Watch, ServerStreams: true, Handler: func(_ any, stream grpc.ServerStream) error { return s.watch(stream) }}},
	}, s)
	return server
}

// Run samples the gateway until ctx ends. Then each controller gets one more report, and its stream ends. Call it once.
func (s *Server) Run(ctx context.Context) {
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	defer close(s.ended)
	for {
		select {
		case <-ticker.C:
			s.sampleAll(true)
			s.wakeAll()
		case name := <-s.gateway.Waiting():
			s.noteWaiting(name)
		case <-ctx.Done():
			s.sampleAll(false)
			return
		}
	}
}

// sampleAll samples the load of all functions. second says that a second has ended.
func (s *Server) sampleAll(second bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := map[gateway.FunctionName]bool{}
	for _, name := range s.gateway.Functions() {
		known[name] = true
		s.sample(name, second)
	}
	for name := range s.functions {
		if !known[name] {
			delete(s.functions, name)
		}
	}
}

// sample samples the load of a function. second says that a second has ended. The caller holds the mutex.
func (s *Server) sample(name gateway.FunctionName, second bool) *function {
	l := encode(name, s.gateway.Load(name))
	l.WaitsForReplica, l.Busy = l.Waiting > 0 && l.Replicas == 0, s.gateway.Busy(name)
	f := s.functions[name]
	if f == nil {
		f = &function{}
		s.functions[name] = f
	} else {
		l.Drained, l.ReceivedInLastSecond = f.load.Drained, f.load.ReceivedInLastSecond
	}
	if second {
		l.ReceivedInLastSecond = new(f.endSecond(l.Received))
	}
	s.set(f, l)
	return f
}

// set replaces the sample of a function if it differs. The caller holds the mutex.
func (s *Server) set(f *function, l *load.FunctionLoad) {
	if f.load != nil && proto.Equal(f.load, l) {
		return
	}
	s.version++
	f.load, f.version = l, s.version
}

// endSecond returns how many requests came in the second that has ended, given how many have been received in all. That counter starts again at 0
// when a function is deleted and created again.
func (f *function) endSecond(received uint64) uint64 {
	came := received
	if came >= f.last {
		came -= f.last
	}
	f.last = received
	if len(f.seconds) == load.Seconds {
		f.seconds = slices.Delete(f.seconds, 0, 1)
	}
	f.seconds = append(f.seconds, came)
	return came
}

// noteWaiting reports at once that a request waits for the first replica of a function. It does nothing if the last sample already says so, so that
// clients that come and leave cost one sample per second.
func (s *Server) noteWaiting(name gateway.FunctionName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.functions[name]; f != nil && f.load.WaitsForReplica {
		return
	}
	f := s.sample(name, false)
	l := proto.CloneOf(f.load) // in the sample the request may have left already
	l.WaitsForReplica = true
	s.set(f, l)
	s.wake()
}

// SetDrained sets the pods of a function that are to be drained and have no more requests. A change is reported at once.
func (s *Server) SetDrained(name gateway.FunctionName, pods []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	pods = slices.Sorted(slices.Values(pods))
	f := s.functions[name]
	switch {
	case f == nil && len(pods) == 0, f != nil && slices.Equal(f.load.Drained, pods):
		return
	case f == nil:
		f = s.sample(name, false)
	}
	l := proto.CloneOf(f.load)
	l.Drained = pods
	s.set(f, l)
	s.wake()
}

func (s *Server) wakeAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wake()
}

// wake makes the streams of all controllers send what is new. The caller holds the mutex.
func (s *Server) wake() {
	for w := range s.watchers {
		select {
		case w.wake <- struct{}{}:
		default: // earlier news has not been sent yet; all will be sent together
		}
	}
}

// watch serves one controller until it leaves or the server ends.
func (s *Server) watch(stream grpc.ServerStream) error {
	if err := stream.RecvMsg(&load.WatchRequest{}); err != nil {
		return err
	}
	w := &watcher{wake: make(chan struct{}, 1)}
	if !s.add(w) {
		return status.Errorf(codes.ResourceExhausted, "%d controllers watch already", maxWatchers)
	}
	defer s.remove(w)
	s.sampleAll(false) // there may be new functions since the last second
	for first := true; ; first = false {
		if err := stream.SendMsg(s.next(w, first)); err != nil {
			return err
		}
		select {
		case <-w.wake:
		case <-s.ended:
			return stream.SendMsg(s.next(w, false))
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}

func (s *Server) add(w *watcher) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.watchers) >= maxWatchers {
		return false
	}
	s.watchers[w] = true
	return true
}

func (s *Server) remove(w *watcher) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.watchers, w)
}

// next returns the next report for a controller: everything that has changed since the last one.
func (s *Server) next(w *watcher, first bool) *load.Report {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := &load.Report{Gateway: s.name, Incarnation: s.incarnation}
	for _, f := range s.functions {
		if f.version <= w.sent { // never true for the first report
			continue
		}
		l := f.load
		if first {
			l = proto.CloneOf(l)
			l.ReceivedOfSecond = slices.Clone(f.seconds)
		}
		r.Functions = append(r.Functions, l)
	}
	slices.SortFunc(r.Functions, func(a, b *load.FunctionLoad) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	w.sent = s.version
	return r
}
