// Package keda lets KEDA scale functions by the rules of gshare. It is the server for triggers of the type external-push whose metadata name a function.
//
// Its only metric is the number of replicas that the function needs, with a target of 1. The trigger is active while that number is not 0. An Advisor
// decides which functions KEDA may scale and how many replicas they need.
package keda

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/gshare-dev/gshare/serving/api/externalscaler"
	"github.com/gshare-dev/gshare/serving/gateway"
)

// Metric is the name of the metric, and FunctionKey the key in the trigger's metadata under which the function's name stands. The namespace is that
// of the object that asks: KEDA's users can scale only by the load of functions in their own namespace.
const (
	Metric      = "replicas"
	FunctionKey = "function"
)

// Advisor says how many replicas functions need. *fleet.Advisor is one.
type Advisor interface {
	// Wanted returns the number of replicas, whether the function is known and another autoscaler scales it, and a channel that is closed when these
	// may have changed.
	Wanted(gateway.FunctionName) (replicas int, known bool, changed <-chan struct{})
}

// Bounds for clients, which are not authenticated.
const (
	maxStreams = 10_000  // streams of a connection: KEDA has one connection, with one stream for each trigger
	maxMessage = 1 << 16 // bytes
)

// NewServer returns a server that answers KEDA according to an Advisor.
func NewServer(a Advisor) *grpc.Server {
	server := grpc.NewServer(
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 10 * time.Second, Timeout: 5 * time.Second}),
		grpc.MaxConcurrentStreams(maxStreams), grpc.MaxRecvMsgSize(maxMessage),
	)
	s := scaler{a}
	server.RegisterService(&grpc.ServiceDesc{
		ServiceName: externalscaler.Service, HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{
			{MethodName: "IsActive", Handler: handle(s.isActive)},
			{MethodName: "GetMetricSpec", Handler: handle(s.metricSpec)},
			{MethodName: "GetMetrics", Handler: handle(s.metrics)},
		},
		Streams: []grpc.StreamDesc{{StreamName: "StreamIsActive", ServerStreams: true, Handler: func(_ any, stream grpc.ServerStream) error { return s.stream(stream) }}},
	}, s)
	return server
}

// handle returns the gRPC handler of a method.
func handle[Q any, A proto.Message, P interface {
	*Q
	proto.Message
}](answer func(P) (A, error)) grpc.MethodHandler {
	return func(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		question := P(new(Q))
		if err := decode(question); err != nil {
			return nil, err
		}
		return answer(question)
	}
}

type scaler struct{ advisor Advisor }

func (s scaler) isActive(r *externalscaler.ScaledObjectRef) (*externalscaler.IsActiveResponse, error) {
	replicas, _, err := s.wanted(r)
	return &externalscaler.IsActiveResponse{Result: replicas > 0}, err
}

func (s scaler) metricSpec(r *externalscaler.ScaledObjectRef) (*externalscaler.GetMetricSpecResponse, error) {
	_, err := functionOf(r) // if the function does not exist, reading its metric fails
	return &externalscaler.GetMetricSpecResponse{MetricSpecs: []*externalscaler.MetricSpec{{MetricName: Metric, TargetSize: 1, TargetSizeFloat: 1}}}, err
}

func (s scaler) metrics(r *externalscaler.GetMetricsRequest) (*externalscaler.GetMetricsResponse, error) {
	if r.MetricName != Metric {
		return nil, status.Errorf(codes.InvalidArgument, "there is no metric %.64q, only %s", r.MetricName, Metric)
	}
	replicas, _, err := s.wanted(r.GetScaledObjectRef())
	if err != nil {
		return nil, err
	}
	value := &externalscaler.MetricValue{MetricName: Metric, MetricValue: int64(replicas), MetricValueFloat: float64(replicas)}
	return &externalscaler.GetMetricsResponse{MetricValues: []*externalscaler.MetricValue{value}}, nil
}

// stream sends whether any replicas are needed, at once and after each change. It ends with an error while KEDA may not scale the function. Then KEDA
// asks again after 2 seconds, with pauses that grow up to a minute.
func (s scaler) stream(stream grpc.ServerStream) error {
	var r externalscaler.ScaledObjectRef
	if err := stream.RecvMsg(&r); err != nil {
		return err
	}
	for last := -1; ; {
		replicas, changed, err := s.wanted(&r)
		if err != nil {
			return err
		}
		if now := min(replicas, 1); now != last {
			if err := stream.SendMsg(&externalscaler.IsActiveResponse{Result: now > 0}); err != nil {
				return err
			}
			last = now
		}
		select {
		case <-changed:
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}

// wanted returns how many replicas the function needs that an object of KEDA names. Its errors are gRPC statuses.
func (s scaler) wanted(r *externalscaler.ScaledObjectRef) (replicas int, changed <-chan struct{}, err error) {
	name, err := functionOf(r)
	if err != nil {
		return 0, nil, err
	}
	replicas, known, changed := s.advisor.Wanted(name)
	if !known {
		return 0, nil, status.Errorf(codes.NotFound, "namespace %.64s has no GPUFunction %.64s with scaling.autoscaler External; others are scaled by gshare itself",
			name.Namespace, name.Name)
	}
	return replicas, changed, nil
}

func functionOf(r *externalscaler.ScaledObjectRef) (gateway.FunctionName, error) {
	name := gateway.FunctionName{Namespace: r.GetNamespace(), Name: r.GetScalerMetadata()[FunctionKey]}
	if name.Name == "" {
		return name, status.Errorf(codes.InvalidArgument, "the metadata of the trigger has no key %s, the name of a GPUFunction", FunctionKey)
	}
	return name, nil
}
