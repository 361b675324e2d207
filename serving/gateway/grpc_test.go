package gateway

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "github.com/gshare-dev/gshare/serving/oip/inference"
)

// grpcModel is a gRPC server that returns its inputs as outputs.
type grpcModel struct {
	took   func(rows int) time.Duration
	fails  func(*pb.ModelInferRequest) error
	silent bool          // does not answer the requests of a stream
	thinks time.Duration // delay before each answer
	stuck  bool          // does not end a stream after the client has sent everything

	mu      sync.Mutex
	batches []string
	ids     []string        // IDs of the requests of streams
	seen    metadata.MD     // of the latest call
	left    []time.Duration // time until the deadline of each call
}

func (m *grpcModel) infer(ctx context.Context, r *pb.ModelInferRequest) (*pb.ModelInferResponse, error) {
	rows := 0
	for _, in := range r.GetInputs() {
		rows = int(in.GetShape()[0])
	}
	m.mu.Lock()
	m.batches = append(m.batches, fmt.Sprint(rows))
	m.seen, _ = metadata.FromIncomingContext(ctx)
	if deadline, ok := ctx.Deadline(); ok {
		m.left = append(m.left, time.Until(deadline))
	}
	m.mu.Unlock()
	if m.took != nil {
		select {
		case <-time.After(m.took(rows)):
		case <-ctx.Done():
			return nil, status.FromContextError(ctx.Err()).Err()
		}
	}
	if m.fails != nil {
		if err := m.fails(r); err != nil {
			return nil, err
		}
	}
	response := &pb.ModelInferResponse{ModelName: r.GetModelName(), Id: r.GetId(), RawOutputContents: r.GetRawInputContents()}
	for _, in := range r.GetInputs() {
		response.Outputs = append(response.Outputs, &pb.ModelInferResponse_InferOutputTensor{Name: in.GetName(), Datatype: in.GetDatatype(), Shape: in.GetShape()})
	}
	return response, nil
}

// stream answers each request of a stream with two responses.
func (m *grpcModel) stream(s grpc.ServerStream) error {
	for {
		r := new(pb.ModelInferRequest)
		if err := s.RecvMsg(r); errors.Is(err, io.EOF) {
			if m.stuck {
				<-s.Context().Done()
			}
			return nil
		} else if err != nil {
			return err
		}
		m.mu.Lock()
		m.ids = append(m.ids, r.GetId())
		m.mu.Unlock()
		time.Sleep(m.thinks)
		if m.silent {
			continue
		}
		if r.GetId() == "fail" {
			return status.Error(codes.DataLoss, "50 % lost: é")
		}
		for i := range 2 {
			if err := s.SendMsg(&pb.ModelInferResponse{Id: fmt.Sprint(r.GetId(), i)}); err != nil {
				return err
			}
		}
	}
}

func (m *grpcModel) server() *grpc.Server {
	s := grpc.NewServer()
	s.RegisterService(&grpc.ServiceDesc{
		ServiceName: pb.Service, HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{
			{MethodName: "ModelInfer", Handler: func(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
				r := new(pb.ModelInferRequest)
				if err := decode(r); err != nil {
					return nil, err
				}
				_ = grpc.SetHeader(ctx, metadata.Pairs("x-header", "h"))
				_ = grpc.SetTrailer(ctx, metadata.Pairs("x-trailer", "t"))
				return m.infer(ctx, r)
			}},
			{MethodName: "ServerLive", Handler: func(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
				return &pb.ServerLiveResponse{Live: true}, decode(new(pb.ServerLiveRequest))
			}},
		},
		Streams: []grpc.StreamDesc{{StreamName: "ModelStreamInfer", ServerStreams: true, ClientStreams: true,
			Handler: func(_ any, s grpc.ServerStream) error { return m.stream(s) }}},
	}, m)
	return s
}

// grpcReplicas serves the model under each of the names, and makes these the replicas of the function.
func (w *world) grpcReplicas(m *grpcModel, credits int, latency time.Duration, names ...string) {
	w.Helper()
	var list []Replica
	for _, name := range names {
		calls := m.server()
		server := &http.Server{Protocols: new(http.Protocols), MaxHeaderBytes: 4 << 10, Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if te := r.Header.Get("Te"); te != "trailers" {
				w.Errorf("a call with Te %q, which servers may refuse", te)
			}
			calls.ServeHTTP(rw, r)
		})}
		server.Protocols.SetUnencryptedHTTP2(true)
		w.network.run(w.T, name+":80", server)
		list = append(list, Replica{ID: name, Address: name + ":80", Credits: credits, Latency: latency})
	}
	if err := w.gateway.SetReplicas(resnet, list); err != nil {
		w.Fatal(err)
	}
}

// dial returns a gRPC client for the function with the given authority.
func (w *world) dial(authority string) *grpc.ClientConn {
	w.Helper()
	c, err := grpc.NewClient("passthrough:///gateway:80", grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithAuthority(authority),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) { return w.network.dial(ctx, "", address) }))
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { _ = c.Close() })
	return c
}

func inferRequest(id string, values ...byte) *pb.ModelInferRequest {
	return &pb.ModelInferRequest{ModelName: "resnet", Id: id, RawInputContents: [][]byte{values},
		Inputs: []*pb.ModelInferRequest_InferInputTensor{{Name: "x", Datatype: "UINT8", Shape: []int64{int64(len(values)), 1}}}}
}

// encode returns a message as it appears in the body of a call.
func encode(t testing.TB, m proto.Message) []byte {
	t.Helper()
	text, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(text))), text...)
}

// call infers and checks the answer.
func call(ctx context.Context, c *grpc.ClientConn, id string, values ...byte) error {
	var got pb.ModelInferResponse
	if err := c.Invoke(ctx, inferMethod, inferRequest(id, values...), &got); err != nil {
		return err
	}
	if got.GetId() != id || len(got.GetRawOutputContents()) != 1 || string(got.GetRawOutputContents()[0]) != string(values) {
		return fmt.Errorf("the answer to %s %v: %v", id, values, &got)
	}
	return nil
}

// TestGRPC checks that calls, their metadata and their statuses pass unchanged, and that deadlines are reduced by the time that has passed.
func TestGRPC(t *testing.T) {
	start(t, Function{}, func(w *world) {
		m := &grpcModel{took: constant(10 * ms)}
		w.grpcReplicas(m, 1, 0, "a")
		c := w.dial("resnet.default")
		var live pb.ServerLiveResponse
		if err := c.Invoke(w.Context(), "/"+pb.Service+"/ServerLive", &pb.ServerLiveRequest{}, &live); err != nil || !live.GetLive() {
			w.Errorf("ServerLive: %v %v", err, &live)
		}
		var header, trailer metadata.MD
		ctx := metadata.AppendToOutgoingContext(w.Context(), "x-mine", "1")
		if err := c.Invoke(ctx, inferMethod, inferRequest("1", 7), new(pb.ModelInferResponse), grpc.Header(&header), grpc.Trailer(&trailer)); err != nil {
			w.Error(err)
		}
		if !slices.Equal(header["x-header"], []string{"h"}) || !slices.Equal(header["x-gshare-cold-start"], []string{"warm"}) ||
			!slices.Equal(trailer["x-trailer"], []string{"t"}) || !slices.Equal(m.seen["x-mine"], []string{"1"}) || !slices.Equal(m.seen[":authority"], []string{"resnet.default"}) {
			w.Errorf("header %v, trailer %v, seen %v", header, trailer, m.seen)
		}
		if err := call(w.Context(), c, "large", make([]byte, 3<<20)...); err != nil {
			w.Error(err)
		}
		err := c.Invoke(w.Context(), "/"+pb.Service+"/Other", &pb.ServerLiveRequest{}, &live)
		if status.Code(err) != codes.Unimplemented {
			w.Errorf("an unknown method: %v", err)
		}
		m.fails = func(*pb.ModelInferRequest) error { return status.Error(codes.FailedPrecondition, "50 %: é") }
		if err := call(w.Context(), c, "2", 7); status.Code(err) != codes.FailedPrecondition || status.Convert(err).Message() != "50 %: é" {
			w.Errorf("the status of the replica: %v", err)
		}
		m.fails, m.left = nil, nil
		timed, cancel := context.WithTimeout(w.Context(), 50*ms)
		defer cancel()
		go call(w.Context(), c, "before", 1)
		synctest.Wait()
		if err := call(timed, c, "3", 7); err != nil {
			w.Error(err)
		}
		if len(m.left) != 1 || m.left[0] > 40*ms || m.left[0] < 30*ms {
			w.Errorf("left until the deadline: %v", m.left)
		}
		if l := w.gateway.Load(resnet); l.Arrived != 7 || l.Answered != 7 || l.InFlight != 0 {
			w.Errorf("%+v", l)
		}
		w.count(map[string]float64{"200": 5, "400": 1, "501": 1})
	})
}

// count checks the number of requests by status, according to the metrics.
func (w *world) count(want map[string]float64) {
	w.Helper()
	synctest.Wait()
	families, err := w.registry.Gather()
	if err != nil {
		w.Fatal(err)
	}
	got := map[string]float64{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			for _, l := range m.GetLabel() {
				if family.GetName() == "gshare_gateway_requests_total" && l.GetName() == "code" {
					got[l.GetValue()] += m.GetCounter().GetValue()
				}
			}
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		w.Errorf("requests by status: %v, want %v", got, want)
	}
}

// TestGRPCRefusals checks the codes of refusals, and that clients can read them.
func TestGRPCRefusals(t *testing.T) {
	refused := func(w *world, name string, err error, code codes.Code, message string) {
		w.Helper()
		if status.Code(err) != code || !strings.Contains(status.Convert(err).Message(), message) {
			w.Errorf("%s: %v, want %v", name, err, code)
		}
	}
	start(t, Function{MaxBody: 1000, MaxBytes: 1500, MaxQueued: 2, Hold: Hold{Requests: 1, For: time.Second}}, func(w *world) {
		c := w.dial("resnet")
		refused(w, "unknown function", call(w.Context(), w.dial("bert"), "1", 1), codes.NotFound, `no function "bert"`)
		refused(w, "too large", call(w.Context(), c, "1", make([]byte, 1000)...), codes.ResourceExhausted, "larger than 1000")
		held := make(chan error, 1)
		go func() { held <- call(w.Context(), c, "1", 1) }()
		synctest.Wait()
		refused(w, "hold full", call(w.Context(), c, "2", 1), codes.Unavailable, "no replica")
		refused(w, "hold expired", <-held, codes.Unavailable, "no replica")
		w.gateway.SetBackOff(resnet, time.Now().Add(time.Minute), "resnet-1: exited with code 3")
		refused(w, "backing off", call(w.Context(), c, "2", 1), codes.Unavailable, "exited with code 3")
		w.gateway.SetBackOff(resnet, time.Time{}, "")

		m := &grpcModel{took: constant(time.Second)}
		w.grpcReplicas(m, 1, time.Second, "a")
		var wait sync.WaitGroup
		for range 3 {
			wait.Go(func() {
				if err := call(w.Context(), c, "1", 1); err != nil {
					w.Error(err)
				}
			})
		}
		synctest.Wait()
		refused(w, "queue full", call(w.Context(), c, "1", 1), codes.ResourceExhausted, "too many requests wait")
		refused(w, "bodies", call(w.Context(), c, "1", make([]byte, 900)...), codes.ResourceExhausted, "too many requests wait")
		wait.Go(func() { _ = call(w.Context(), c, "1", make([]byte, 600)...) })
		wait.Wait()
		for range 2 {
			wait.Go(func() { _ = call(w.Context(), c, "1", make([]byte, 600)...) })
		}
		synctest.Wait()
		refused(w, "no room for the body", call(w.Context(), c, "1", make([]byte, 600)...), codes.ResourceExhausted, "bodies")
		predicted := metadata.AppendToOutgoingContext(w.Context(), "x-envoy-expected-rq-timeout-ms", "1500")
		refused(w, "predicted late", call(predicted, c, "1", 1), codes.DeadlineExceeded, "would miss")
		bad := metadata.AppendToOutgoingContext(w.Context(), "x-slo-ttft-ms", "never")
		refused(w, "deadline that is none", call(bad, c, "1", 1), codes.InvalidArgument, "X-Slo-Ttft-Ms")
		wait.Wait()
		m.took = constant(time.Minute)
		passed := metadata.AppendToOutgoingContext(w.Context(), "x-envoy-expected-rq-timeout-ms", "500")
		refused(w, "deadline passes", call(passed, c, "1", 1), codes.DeadlineExceeded, "deadline has passed")
		if l := w.gateway.Load(resnet); l.Waiting+l.InFlight > 0 {
			w.Errorf("%+v", l)
		}
		if f := w.gateway.function(resnet); f.bodies.bytes != 0 {
			w.Errorf("%d bytes are never released", f.bodies.bytes)
		}
	})
	start(t, Function{Protocol: OpenAI}, func(w *world) {
		refused(w, "protocol OpenAI", call(w.Context(), w.dial("resnet"), "1", 1), codes.Unimplemented, "OpenAI")
	})
}

// TestGRPCStream checks that the messages of a stream pass in both directions as soon as they are sent, that the stream ends with the replica's
// status, and what else ends it.
func TestGRPCStream(t *testing.T) {
	start(t, Function{Protocol: OIP, MaxBatch: 8}, func(w *world) {
		m := &grpcModel{}
		w.grpcReplicas(m, 1, 0, "a")
		c := w.dial("resnet")
		open := func(ctx context.Context) grpc.ClientStream {
			s, err := c.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, streamMethod)
			if err != nil {
				w.Fatal(err)
			}
			return s
		}
		exchange := func(s grpc.ClientStream, id string) {
			w.Helper()
			begin := time.Now()
			defer func() {
				if took := time.Since(begin); took > 0 {
					w.Errorf("%s waited for %v", id, took)
				}
			}()
			if err := s.SendMsg(inferRequest(id, 1)); err != nil {
				w.Error(err)
			}
			for i := range 2 {
				var got pb.ModelInferResponse
				if err := s.RecvMsg(&got); err != nil || got.GetId() != fmt.Sprint(id, i) {
					w.Errorf("%v %v", &got, err)
				}
			}
		}
		end := func(s grpc.ClientStream) error { return s.RecvMsg(new(pb.ModelInferResponse)) }

		s := open(w.Context())
		for i := range 3 {
			exchange(s, fmt.Sprint(i))
			time.Sleep(idleTimeout - time.Second) // longer than a body may take in total
		}
		if err := s.CloseSend(); err != nil {
			w.Error(err)
		}
		if err := end(s); !errors.Is(err, io.EOF) {
			w.Errorf("at the end: %v", err)
		}

		s = open(w.Context())
		exchange(s, "before")
		if err := s.SendMsg(inferRequest("fail", 1)); err != nil {
			w.Error(err)
		}
		if err := end(s); status.Code(err) != codes.DataLoss || status.Convert(err).Message() != "50 % lost: é" {
			w.Errorf("the status of the replica: %v", err)
		}

		s = open(w.Context())
		exchange(s, "idle")
		begin := time.Now()
		if err := end(s); status.Code(err) != codes.DeadlineExceeded || time.Since(begin) != idleTimeout {
			w.Errorf("a stream on which nothing comes: %v after %v", err, time.Since(begin))
		}

		ctx, cancel := context.WithCancel(w.Context())
		s = open(ctx)
		exchange(s, "cancel")
		cancel()
		synctest.Wait()
		timed, cancel := context.WithTimeout(w.Context(), time.Second)
		defer cancel()
		s = open(timed)
		exchange(s, "late")
		if err := end(s); status.Code(err) != codes.DeadlineExceeded {
			w.Errorf("a stream whose deadline passes: %v", err)
		}
		synctest.Wait()
		if l := w.gateway.Load(resnet); l.Arrived != 5 || l.Answered+l.Gone+l.Failed != 5 || l.Gone == 0 || l.InFlight != 0 {
			w.Errorf("%+v", l)
		}
		s = open(w.Context())
		exchange(s, "not avoided")
		if err := s.CloseSend(); err != nil {
			w.Error(err)
		}
		if err := end(s); !errors.Is(err, io.EOF) {
			w.Errorf("at the end: %v", err)
		}
	})
}

// TestGRPCStreamThatIsRefused checks that a client gets the status of a replica that answers a stream with headers only.
func TestGRPCStreamThatIsRefused(t *testing.T) {
	start(t, Function{Protocol: OIP}, func(w *world) {
		server := &http.Server{Protocols: new(http.Protocols), Handler: http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Content-Type", grpcType)
			rw.Header().Set(grpcStatus, strconv.Itoa(int(codes.ResourceExhausted)))
			rw.Header().Set(grpcMessage, "no memory")
		})}
		server.Protocols.SetUnencryptedHTTP2(true)
		w.network.run(w.T, "a:80", server)
		if err := w.gateway.SetReplicas(resnet, []Replica{{ID: "a", Address: "a:80"}}); err != nil {
			w.Fatal(err)
		}
		s, err := w.dial("resnet").NewStream(w.Context(), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, streamMethod)
		if err != nil {
			w.Fatal(err)
		}
		if err := s.SendMsg(inferRequest("1", 1)); err != nil {
			w.Error(err)
		}
		if err := s.RecvMsg(new(pb.ModelInferResponse)); status.Code(err) != codes.ResourceExhausted || status.Convert(err).Message() != "no memory" {
			w.Errorf("the status of the replica: %v", err)
		}
	})
}

// TestGRPCReplicaFails checks that a call is sent to another replica if one fails, and that replicas that do not speak gRPC are not avoided
// because of that.
func TestGRPCReplicaFails(t *testing.T) {
	start(t, Function{}, func(w *world) {
		m := &grpcModel{}
		w.grpcReplicas(m, 1, 0, "a", "b")
		c := w.dial("resnet")
		if err := call(w.Context(), c, "1", 1); err != nil {
			w.Error(err)
		}
		w.network.mu.Lock()
		delete(w.network.servers, "a:80")
		w.network.mu.Unlock()
		w.gateway.upstreamGRPC.(*http.Transport).CloseIdleConnections()
		if err := call(w.Context(), c, "2", 1); err != nil {
			w.Error(err)
		}
		if l := w.gateway.Load(resnet); l.Answered != 2 {
			w.Errorf("%+v", l)
		}
	})
	start(t, Function{}, func(w *world) {
		w.replicas(echo(0), 1, 0, "a")
		c := w.dial("resnet")
		for range 3 {
			if err := call(w.Context(), c, "1", 1); status.Code(err) != codes.Unavailable {
				w.Errorf("a replica without gRPC: %v", err)
			}
			if a := w.ask(w.Context(), "input"); a.status != 200 || a.took != 0 {
				w.Errorf("another client: %+v", a)
			}
		}
	})
}

// TestHTTP2 checks that an HTTP/2 client that does not speak gRPC is served like an HTTP/1.1 client.
func TestHTTP2(t *testing.T) {
	start(t, Function{}, func(w *world) {
		w.replicas(echo(0), 1, 0, "a")
		down := &http.Transport{DialContext: w.network.dial, Protocols: new(http.Protocols)}
		down.Protocols.SetUnencryptedHTTP2(true)
		w.client = &http.Client{Transport: down}
		defer down.CloseIdleConnections()
		if a := w.ask(w.Context(), "input"); a.status != 200 || a.body != "input" || a.header.Get("X-Path") != "/v1/predict?x=1" {
			w.Errorf("%+v", a)
		}
		if a := w.ask(w.Context(), "input", "Host", "bert"); a.status != 404 || !strings.Contains(a.body, "error") {
			w.Errorf("%+v", a)
		}
	})
}

func TestGRPCTimeout(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"": 0, "1H": time.Hour, "2M": 2 * time.Minute, "3S": 3 * time.Second, "4m": 4 * ms, "5u": 5 * time.Microsecond, "6n": 6, "0S": 1,
		"99999999H": maxTimeout, "99999999S": maxTimeout, "99999999n": 99999999,
	} {
		t.Run(text, func(t *testing.T) {
			if got, err := parseGRPCTimeout(text); got != want || err != nil {
				t.Errorf("%v %v, want %v", got, err, want)
			}
		})
	}
	for _, text := range []string{"1", "S", "1s", "-1S", "+1S", "1.5S", "100000000S", "1 S", "1SS"} {
		t.Run("bad "+text, func(t *testing.T) {
			if got, err := parseGRPCTimeout(text); err == nil {
				t.Errorf("%v", got)
			}
		})
	}
}

// TestGRPCLongTimeout checks that a message reaches the replica even if its timeout has more digits than the header grpc-timeout allows.
func TestGRPCLongTimeout(t *testing.T) {
	start(t, batched, func(w *world) {
		m := &grpcModel{}
		w.grpcReplicas(m, 1, 0, "a")
		r := inferRequest("1", 1)
		r.Parameters = map[string]*pb.InferParameter{"timeout": {ParameterChoice: &pb.InferParameter_Int64Param{Int64Param: 1e15}}}
		if err := w.dial("resnet").Invoke(w.Context(), inferMethod, r, new(pb.ModelInferResponse)); err != nil {
			w.Error(err)
		}
		if len(m.left) != 1 || m.left[0] != maxTimeout {
			w.Errorf("left until the deadline: %v", m.left)
		}
	})
}

// TestGRPCBatches checks that calls that wait while a replica is busy are sent together, that each gets its own rows and ID, and that a failing
// batch is divided until only the call that is to blame gets the error.
func TestGRPCBatches(t *testing.T) {
	start(t, batched, func(w *world) {
		m := &grpcModel{took: constant(10 * ms)}
		m.fails = func(r *pb.ModelInferRequest) error {
			if bytes.Contains(bytes.Join(r.GetRawInputContents(), nil), []byte{13}) {
				return status.Error(codes.InvalidArgument, "13")
			}
			return nil
		}
		w.grpcReplicas(m, 1, 0, "a")
		c := w.dial("resnet")
		var wait sync.WaitGroup
		ask := func(ctx context.Context, i byte) {
			wait.Go(func() {
				err := call(ctx, c, fmt.Sprint("id", i), i, 2*i)
				if i == 13 && status.Convert(err).Message() == "13" || i != 13 && err == nil {
					return
				}
				w.Errorf("%d: %v", i, err)
			})
		}
		ask(w.Context(), 0)
		synctest.Wait()
		for i := range byte(8) {
			ask(w.Context(), 1+i)
		}
		wait.Wait()
		if got := strings.Join(m.batches, " "); got != "2 8 8" {
			w.Errorf("rows of the batches: %s", got)
		}
		m.batches = nil
		ask(w.Context(), 0)
		synctest.Wait()
		for i := range byte(4) {
			ask(w.Context(), 10+i)
		}
		wait.Wait()
		if got := strings.Join(m.batches, " "); got != "2 8 4 4 2 2" {
			w.Errorf("rows of the batches, one of which fails: %s", got)
		}
		m.batches = nil
		ask(w.Context(), 0)
		synctest.Wait()
		for i := range byte(2) { // must not be seen by others
			ask(metadata.AppendToOutgoingContext(w.Context(), "authorization", "secret"), 1+i)
		}
		wait.Wait()
		if got := strings.Join(m.batches, " "); got != "2 2 2" {
			w.Errorf("rows of calls with a secret: %s", got)
		}
		err := c.Invoke(w.Context(), inferMethod, &pb.ModelInferRequest{}, new(pb.ModelInferResponse))
		if status.Code(err) != codes.InvalidArgument || !strings.Contains(status.Convert(err).Message(), "inputs is missing") {
			w.Errorf("a message that is malformed: %v", err)
		}
		if l := w.gateway.Load(resnet); l.InFlight+l.Waiting != 0 || l.Invalid != 1 || l.Failed != 0 {
			w.Errorf("%+v", l)
		}
	})
}

// TestGRPCBatchGarbage checks that calls whose batch gets a response that is not exactly one message are then sent alone, without delay.
func TestGRPCBatchGarbage(t *testing.T) {
	for name, body := range map[string]string{"no message": "", "a compressed one": "\x01\x00\x00\x00\x01x", "half of one": "\x00\x00\x00\x01\x01x", "two": "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"} {
		t.Run(name, func(t *testing.T) {
			start(t, batched, func(w *world) {
				var calls atomic.Int32
				server := &http.Server{Protocols: new(http.Protocols), Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
					_, _ = io.Copy(io.Discard, r.Body)
					calls.Add(1)
					time.Sleep(10 * ms)
					rw.Header().Set("Content-Type", grpcType)
					_, _ = io.WriteString(rw, body)
					rw.Header().Set(http.TrailerPrefix+grpcStatus, "0")
				})}
				server.Protocols.SetUnencryptedHTTP2(true)
				w.network.run(w.T, "a:80", server)
				if err := w.gateway.SetReplicas(resnet, []Replica{{ID: "a", Address: "a:80"}}); err != nil {
					w.Fatal(err)
				}
				c := w.dial("resnet")
				begin := time.Now()
				var wait sync.WaitGroup
				for i := range 3 { // one alone, and a batch of two
					wait.Go(func() {
						if err := call(w.Context(), c, fmt.Sprint(i), 1); err == nil {
							w.Error("garbage is taken for an answer")
						}
					})
					synctest.Wait()
				}
				wait.Wait()
				if took := time.Since(begin); took != 40*ms || calls.Load() != 4 || w.avoided() > 0 {
					w.Errorf("%d calls in %v, %d replicas are avoided", calls.Load(), took, w.avoided())
				}
			})
		})
	}
}
