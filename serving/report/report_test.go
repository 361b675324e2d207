package report_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/gshare-dev/gshare/serving/api/load"
	"github.com/gshare-dev/gshare/serving/gateway"
	"github.com/gshare-dev/gshare/serving/report"
)

var chat = gateway.FunctionName{Namespace: "default", Name: "chat"}

// upstream is a replica that answers a request after the time that its header says.
type upstream struct{}

func (upstream) RoundTrip(r *http.Request) (*http.Response, error) {
	d, _ := time.ParseDuration(r.Header.Get("Takes"))
	select {
	case <-time.After(d):
		return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader("")), Header: http.Header{}}, nil
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}

// bench is a gateway with a report server, to which controllers can connect.
type bench struct {
	*testing.T
	*gateway.Gateway
	server   *report.Server
	listener *bufconn.Listener
	stop     func()
}

// newBench must be called within synctest.Test.
func newBench(t *testing.T) *bench {
	b := &bench{T: t, Gateway: gateway.New(gateway.Config{Upstream: upstream{}, Log: slog.New(slog.DiscardHandler)}), listener: bufconn.Listen(64 << 10)}
	b.server = report.New(b.Gateway, "gateway-1")
	ctx, cancel := context.WithCancel(t.Context())
	b.stop = cancel
	go b.server.Run(ctx)
	server := b.server.GRPC()
	go server.Serve(b.listener)
	t.Cleanup(func() { cancel(); server.Stop() })
	return b
}

func (b *bench) add(name gateway.FunctionName) {
	b.Helper()
	if err := b.SetFunction(gateway.Function{FunctionName: name}); err != nil {
		b.Fatal(err)
	}
}

func (b *bench) replicas(ids ...string) {
	b.Helper()
	var all []gateway.Replica
	for _, id := range ids {
		all = append(all, gateway.Replica{ID: id, Address: id + ":80", Credits: 10})
	}
	if err := b.SetReplicas(chat, all); err != nil {
		b.Fatal(err)
	}
}

// send sends a request that takes a while at its replica.
func (b *bench) send(ctx context.Context, takes time.Duration) {
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, "http://chat/", nil)
	r.Header.Set("Takes", takes.String())
	go b.ServeHTTP(httptest.NewRecorder(), r)
	synctest.Wait()
}

func (b *bench) connect() *grpc.ClientConn {
	conn, err := grpc.NewClient("passthrough:gateway", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return b.listener.DialContext(ctx) }))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = conn.Close() })
	return conn
}

// controller collects the reports that it gets.
type controller struct {
	ended chan error

	mu      sync.Mutex
	reports []report.Report
}

func (b *bench) watch() *controller {
	c, conn := &controller{ended: make(chan error, 1)}, b.connect()
	go func() {
		c.ended <- report.Watch(b.Context(), conn, func(r report.Report) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.reports = append(c.reports, r)
		})
	}()
	synctest.Wait()
	return c
}

// take returns the reports that have come since the last call.
func (c *controller) take() []report.Report {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	all := c.reports
	c.reports = nil
	return all
}

// one returns the only function of the only report that has come since the last call.
func (c *controller) one(t *testing.T) report.Function {
	t.Helper()
	all := c.take()
	if len(all) != 1 || len(all[0].Functions) != 1 {
		t.Fatalf("got reports %+v, want one about one function", all)
	}
	return all[0].Functions[0]
}

func TestReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.add(chat)
		b.add(gateway.FunctionName{Namespace: "other", Name: "chat"})
		b.replicas("a")
		time.Sleep(time.Second + time.Millisecond) // not at the moment of a report
		c := b.watch()
		first := c.take()
		b.add(gateway.FunctionName{Namespace: "other", Name: "new"})
		if all := b.watch().take(); len(all) != 1 || len(all[0].Functions) != 3 {
			t.Errorf("another controller gets %+v, want all three functions at once", all)
		}
		time.Sleep(time.Second)
		if f := c.one(t); f.Name != "new" {
			t.Errorf("after a second: %+v, want the new function", f)
		}
		if len(first) != 1 || first[0].Gateway != "gateway-1" || first[0].Incarnation == "" || len(first[0].Functions) != 2 {
			t.Fatalf("at first: %+v, want all functions at once", first)
		}
		if f := first[0].Functions[0]; f.FunctionName != chat || f.Load.Replicas != 1 {
			t.Errorf("at first: %+v, want chat with its replica", f)
		}
		time.Sleep(time.Second)
		if all := c.take(); len(all) != 1 || len(all[0].Functions) != 0 || all[0].Incarnation != first[0].Incarnation {
			t.Errorf("after a second without change: %+v, want one report of no function", all)
		}
		b.send(t.Context(), 10*time.Millisecond)
		b.send(t.Context(), time.Minute)
		time.Sleep(time.Second)
		f := c.one(t)
		want := gateway.Load{Arrived: 2, Received: 2, Answered: 1, InTime: 1, InFlight: 1, Replicas: 1, P99: f.Load.P99, LastSecond: gateway.LastSecond{Received: 2, Known: true}}
		if f.FunctionName != chat || f.Load != want || f.Load.P99 < 10*time.Millisecond || f.WaitsForReplica || f.Seconds != nil {
			t.Errorf("after requests: %+v, want chat with load %+v", f, want)
		}
	})
}

func TestWaitingIsReportedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.add(chat)
		time.Sleep(time.Millisecond) // not at the moment of a report
		one, other := b.watch(), b.watch()
		one.take()
		other.take()
		ctx, leave := context.WithCancel(t.Context())
		b.send(ctx, 0)
		for _, c := range []*controller{one, other} {
			if f := c.one(t); !f.WaitsForReplica || f.Load.Waiting != 1 {
				t.Errorf("got %+v, want that a request waits", f)
			}
		}
		b.send(ctx, 0)
		if all := one.take(); len(all) != 0 {
			t.Errorf("the second request in a second is reported at once: %+v", all)
		}
		if f := b.watch().one(t); !f.WaitsForReplica {
			t.Errorf("a late controller gets %+v, want that a request waits", f)
		}
		leave()
		time.Sleep(time.Second)
		if f := one.one(t); f.WaitsForReplica || f.Load.Gone != 2 {
			t.Errorf("after the clients left: %+v, want no request that waits", f)
		}
	})
}

func TestDrainedIsReportedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.add(chat)
		time.Sleep(time.Millisecond)
		c := b.watch()
		c.take()
		b.server.SetDrained(chat, []string{"b", "a"})
		if f := c.one(t); !slices.Equal(f.Drained, []string{"a", "b"}) {
			t.Errorf("got %+v, want both pods drained", f)
		}
		b.server.SetDrained(chat, []string{"a", "b"})
		if all := c.take(); len(all) != 0 {
			t.Errorf("got %+v, want no report without a change", all)
		}
		b.send(t.Context(), 0) // the list is in each report
		if f := c.one(t); !slices.Equal(f.Drained, []string{"a", "b"}) {
			t.Errorf("got %+v, want both pods drained still", f)
		}
		b.server.SetDrained(chat, nil)
		if f := c.one(t); f.Drained != nil {
			t.Errorf("got %+v, want no pod drained", f)
		}
	})
}

func TestSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.add(chat)
		b.replicas("a")
		time.Sleep(time.Millisecond)
		second := func(requests int) {
			for range requests {
				b.send(t.Context(), 0)
			}
			time.Sleep(time.Second)
			synctest.Wait()
		}
		second(3)
		second(0)
		second(1)
		c := b.watch()
		if f := c.one(t); !slices.Equal(f.Seconds, []uint64{3, 0, 1}) || f.Load.LastSecond != (gateway.LastSecond{Received: 1, Known: true}) {
			t.Errorf("after three seconds: %v and %+v, want 3, 0, 1", f.Seconds, f.Load.LastSecond)
		}
		second(2)
		c.take()
		b.send(t.Context(), 0) // in the present second
		b.server.SetDrained(chat, []string{"a"})
		if f := c.one(t); f.Load.LastSecond != (gateway.LastSecond{Received: 2, Known: true}) {
			t.Errorf("within the fifth second: %+v, want 2", f.Load.LastSecond)
		}
		b.server.SetDrained(chat, nil)
		second(0)
		c.take()
		second(0)
		if f := c.one(t); f.Load.LastSecond != (gateway.LastSecond{Known: true}) {
			t.Errorf("after a second without requests: %+v, want 0", f.Load.LastSecond)
		}
		b.RemoveFunction(chat)
		b.add(chat)
		b.replicas("a")
		second(1)
		if f := b.watch().one(t); !slices.Equal(f.Seconds, []uint64{3, 0, 1, 2, 1, 0, 1}) {
			t.Errorf("after a deletion that no sample saw: %v, want 3, 0, 1, 2, 1, 0, 1", f.Seconds)
		}
		b.RemoveFunction(chat)
		time.Sleep(time.Second)
		if all := b.watch().take(); len(all) != 1 || len(all[0].Functions) != 0 {
			t.Errorf("after a deletion: %+v, want no function", all)
		}
		b.add(chat)
		b.replicas("a")
		second(3)
		for range load.Seconds {
			second(0)
		}
		second(2)
		if f := b.watch().one(t); len(f.Seconds) != load.Seconds || f.Seconds[load.Seconds-1] != 2 || f.Seconds[0] != 0 {
			t.Errorf("after two minutes: %v, want %d seconds with 2 in the last", f.Seconds, load.Seconds)
		}
	})
}

// TestSlowController lets a controller read nothing for a while: it then gets the newest state, in few reports, and the others are not held up.
func TestSlowController(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.add(chat)
		quick := b.watch()
		block := make(chan struct{})
		var reports []report.Report
		conn := b.connect()
		go report.Watch(t.Context(), conn, func(r report.Report) {
			<-block
			reports = append(reports, r)
		})
		synctest.Wait()
		quick.take()
		const updates = 2000
		long := strings.Repeat("x", 1000)
		for i := range updates {
			b.server.SetDrained(chat, []string{long + string(rune('0'+i%10))})
			synctest.Wait()
		}
		b.server.SetDrained(chat, []string{"newest"})
		if n := len(quick.take()); n < updates {
			t.Errorf("the other controller got %d reports, want at least %d", n, updates)
		}
		close(block)
		synctest.Wait()
		if n := len(reports); n > updates/2 {
			t.Errorf("the slow controller got %d reports, want that they are joined", n)
		}
		if last := reports[len(reports)-1]; len(last.Functions) != 1 || !slices.Equal(last.Functions[0].Drained, []string{"newest"}) {
			t.Errorf("the last report is %+v, want the newest state", last)
		}
	})
}

func TestEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.add(chat)
		b.replicas("a")
		time.Sleep(time.Millisecond)
		c := b.watch()
		c.take()
		b.send(t.Context(), 0)
		b.stop()
		if err := <-c.ended; err != nil {
			t.Errorf("Watch returns %v, want nil", err)
		}
		if f := c.one(t); f.Load.Answered != 1 {
			t.Errorf("the last report is %+v, want the last answer in it", f)
		}
	})
}

func TestTooManyControllers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		ctx, leave := context.WithCancel(t.Context())
		for range 16 {
			conn := b.connect()
			go report.Watch(ctx, conn, func(report.Report) {})
		}
		synctest.Wait()
		select {
		case err := <-b.watch().ended:
			if status.Code(err) != codes.ResourceExhausted {
				t.Errorf("Watch returns %v, want ResourceExhausted", err)
			}
		default:
			t.Error("the 17th controller is served")
		}
		leave()
		synctest.Wait()
		if all := b.watch().take(); len(all) != 1 {
			t.Errorf("after others have left, a controller gets %v, want a report", all)
		}
	})
}

func TestWatchEnds(t *testing.T) {
	message := &load.Report{Gateway: "gateway-1", Incarnation: "x"}
	for name, test := range map[string]struct {
		serve func(grpc.ServerStream) error
		want  func(error) bool
		after time.Duration
	}{
		"silent": {func(s grpc.ServerStream) error {
			for range 10 {
				_ = s.SendMsg(message)
				time.Sleep(time.Second)
			}
			<-s.Context().Done()
			return nil
		}, func(err error) bool { return errors.Is(err, report.ErrSilent) }, 14 * time.Second},
		"silent from the beginning": {func(s grpc.ServerStream) error { <-s.Context().Done(); return nil }, func(err error) bool { return errors.Is(err, report.ErrSilent) }, 5 * time.Second},
		"invalid":                   {func(s grpc.ServerStream) error { return s.SendMsg(&load.Report{}) }, func(err error) bool { return err != nil && strings.Contains(err.Error(), "incarnation") }, 0},
		"failed":                    {func(grpc.ServerStream) error { return status.Error(codes.Internal, "x") }, func(err error) bool { return status.Code(err) == codes.Internal }, 0},
		"in order":                  {func(grpc.ServerStream) error { return nil }, func(err error) bool { return err == nil }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				listener, server := bufconn.Listen(64<<10), grpc.NewServer()
				server.RegisterService(&grpc.ServiceDesc{ServiceName: load.Service, HandlerType: (*any)(nil), Streams: []grpc.StreamDesc{{
					StreamName: load.Watch, ServerStreams: true, Handler: func(_ any, s grpc.ServerStream) error { return test.serve(s) },
				}}}, nil)
				go server.Serve(listener)
				defer server.Stop()
				begin := time.Now()
				c := (&bench{T: t, listener: listener}).watch()
				if err := <-c.ended; !test.want(err) || time.Since(begin) != test.after {
					t.Errorf("Watch returns %v after %v, want it after %v", err, time.Since(begin), test.after)
				}
			})
		})
	}
}

func TestDecode(t *testing.T) {
	function := func(change func(*load.FunctionLoad)) *load.Report {
		l := &load.FunctionLoad{Namespace: "default", Name: "chat"}
		change(l)
		return &load.Report{Gateway: "gateway-1", Incarnation: "x", Functions: []*load.FunctionLoad{l}}
	}
	for name, test := range map[string]struct {
		message *load.Report
		want    string // part of the error; none if empty
	}{
		"valid":             {function(func(*load.FunctionLoad) {}), ""},
		"no gateway":        {&load.Report{Incarnation: "x"}, "no name"},
		"no incarnation":    {&load.Report{Gateway: "x"}, "no incarnation"},
		"no function":       {function(func(l *load.FunctionLoad) { l.Name = "" }), "no name"},
		"no namespace":      {function(func(l *load.FunctionLoad) { l.Namespace = "" }), "no namespace"},
		"too many seconds":  {function(func(l *load.FunctionLoad) { l.ReceivedOfSecond = make([]uint64, load.Seconds+1) }), "121 seconds"},
		"negative latency":  {function(func(l *load.FunctionLoad) { l.P99Nanos = -1 }), "negative"},
		"too many requests": {function(func(l *load.FunctionLoad) { l.Waiting = 1 << 31 }), "too large"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := report.Decode(test.message)
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("got error %v, want one with %q", err, test.want)
			}
		})
	}
}

// TestBusy: a report has the replicas with requests.
func TestBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.add(chat)
		b.replicas("a", "b")
		b.send(t.Context(), 3*time.Second)
		time.Sleep(1500 * time.Millisecond)
		c := b.watch()
		if f := c.one(t); len(f.Busy) != 1 || f.Load.InFlight != 1 {
			t.Errorf("%+v, want one replica busy", f)
		}
		time.Sleep(3 * time.Second)
		all := c.take()
		last := all[len(all)-1].Functions
		for at := len(all) - 1; len(last) == 0; at-- { // a report without changes
			last = all[at].Functions
		}
		if len(last[0].Busy) > 0 {
			t.Errorf("%+v, want none busy", all)
		}
	})
}
