package keda

import (
	"context"
	"net"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/gshare-dev/gshare/serving/api/externalscaler"
	"github.com/gshare-dev/gshare/serving/gateway"
)

// advice is an Advisor that says what a test wants.
type advice struct {
	mu       sync.Mutex
	replicas map[gateway.FunctionName]int
	changed  chan struct{}
}

func (a *advice) Wanted(name gateway.FunctionName) (int, bool, <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	n, known := a.replicas[name]
	return n, known, a.changed
}

func (a *advice) set(name gateway.FunctionName, replicas int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.replicas[name] = replicas
	close(a.changed)
	a.changed = make(chan struct{})
}

var resnet = gateway.FunctionName{Namespace: "ml", Name: "resnet50"}

// start returns an Advisor that knows one function, and a connection to a server of it.
func start(t *testing.T) (*advice, *grpc.ClientConn) {
	t.Helper()
	a := &advice{replicas: map[gateway.FunctionName]int{resnet: 3}, changed: make(chan struct{})}
	listener := bufconn.Listen(1 << 16)
	server := NewServer(a)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	connection, err := grpc.NewClient("passthrough:///scaler", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	return a, connection
}

func ref(namespace string, metadata map[string]string) *externalscaler.ScaledObjectRef {
	return &externalscaler.ScaledObjectRef{Name: "object", Namespace: namespace, ScalerMetadata: metadata}
}

func call[A any](t *testing.T, c *grpc.ClientConn, method string, question any) (*A, error) {
	t.Helper()
	answer := new(A)
	return answer, c.Invoke(t.Context(), "/externalscaler.ExternalScaler/"+method, question, answer)
}

func TestAnswers(t *testing.T) {
	a, c := start(t)
	r := ref("ml", map[string]string{"function": "resnet50", "scalerAddress": "gshare-scaler:9091"})
	spec, err := call[externalscaler.GetMetricSpecResponse](t, c, "GetMetricSpec", r)
	if err != nil || len(spec.MetricSpecs) != 1 || spec.MetricSpecs[0].MetricName != "replicas" || spec.MetricSpecs[0].TargetSizeFloat != 1 || spec.MetricSpecs[0].TargetSize != 1 {
		t.Fatalf("%v, error %v", spec, err)
	}
	for _, want := range []int{3, 0, 1000} {
		a.set(resnet, want)
		m, err := call[externalscaler.GetMetricsResponse](t, c, "GetMetrics", &externalscaler.GetMetricsRequest{ScaledObjectRef: r, MetricName: "replicas"})
		if err != nil || len(m.MetricValues) != 1 || m.MetricValues[0].MetricName != "replicas" || m.MetricValues[0].MetricValueFloat != float64(want) || m.MetricValues[0].MetricValue != int64(want) {
			t.Errorf("%v, error %v, want %d", m, err, want)
		}
		active, err := call[externalscaler.IsActiveResponse](t, c, "IsActive", r)
		if err != nil || active.Result != (want > 0) {
			t.Errorf("active %v, error %v at %d replicas", active, err, want)
		}
	}
}

func TestRefusals(t *testing.T) {
	_, c := start(t)
	for name, test := range map[string]struct {
		ref    *externalscaler.ScaledObjectRef
		metric string
		code   codes.Code
		text   string
	}{
		"no function":                {ref("ml", nil), Metric, codes.InvalidArgument, "no key function"},
		"no reference":               {nil, Metric, codes.InvalidArgument, "no key function"},
		"not one that KEDA scales":   {ref("ml", map[string]string{"function": "bert"}), Metric, codes.NotFound, "scaling.autoscaler External"},
		"one of another namespace":   {ref("other", map[string]string{"function": "resnet50"}), Metric, codes.NotFound, "namespace other"},
		"one that names a namespace": {ref("other", map[string]string{"function": "ml/resnet50"}), Metric, codes.NotFound, "namespace other"},
		"another metric":             {ref("ml", map[string]string{"function": "resnet50"}), "load", codes.InvalidArgument, "no metric"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := call[externalscaler.GetMetricsResponse](t, c, "GetMetrics", &externalscaler.GetMetricsRequest{ScaledObjectRef: test.ref, MetricName: test.metric})
			if status.Code(err) != test.code || !strings.Contains(err.Error(), test.text) {
				t.Errorf("error %v, want %v with %q", err, test.code, test.text)
			}
		})
	}
}

func TestStream(t *testing.T) {
	a, c := start(t)
	stream, err := c.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true}, "/externalscaler.ExternalScaler/StreamIsActive")
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.SendMsg(ref("ml", map[string]string{"function": "resnet50"})); err != nil {
		t.Fatal(err)
	}
	expect := func(want bool) {
		t.Helper()
		var answer externalscaler.IsActiveResponse
		if err := stream.RecvMsg(&answer); err != nil || answer.Result != want {
			t.Fatalf("%v, error %v, want %v", answer.Result, err, want)
		}
	}
	expect(true) // at once
	a.set(resnet, 0)
	expect(false)
	a.set(resnet, 2)
	expect(true)
	a.set(resnet, 5) // the answer is the same
	a.set(resnet, 0)
	expect(false)
	a.mu.Lock()
	delete(a.replicas, resnet)
	a.mu.Unlock()
	a.set(gateway.FunctionName{Namespace: "ml", Name: "bert"}, 1)
	if err := stream.RecvMsg(&externalscaler.IsActiveResponse{}); status.Code(err) != codes.NotFound {
		t.Errorf("error %v once the function is gone", err)
	}
}
