package report

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"time"

	"google.golang.org/grpc"

	"github.com/gshare-dev/gshare/serving/api/load"
	"github.com/gshare-dev/gshare/serving/gateway"
)

// Report is a report of a gateway. The counters continue from one report to the next as long as gateway and incarnation are the same.
type Report struct {
	Gateway     string // name of the gateway's pod
	Incarnation string
	Functions   []Function // all functions in the first report, then those that have changed
}

// Function is the load of one function.
type Function struct {
	gateway.FunctionName
	Load gateway.Load // without the median latency

	WaitsForReplica bool     // a request waits for a first replica, or one came within the present second while there was no replica
	Seconds         []uint64 // requests received in each of the last seconds, oldest first; in the first report only
	Busy            []string // all pods with requests from this gateway
	Drained         []string // all pods to be drained that no longer have requests from this gateway; see Stopped
}

// Stopped returns what a gateway adds to Function.Drained for a pod that is to be parked, in addition to its name. It means that the gateway has seen
// the residency.Wanted with this sequence number, and has no more requests at the pod.
func Stopped(pod string, seq int64) string { return pod + "/" + strconv.FormatInt(seq, 10) }

// silence is the time without a report after which a gateway counts as gone.
const silence = 5 * period

// ErrSilent is the error of Watch for a gateway that no longer sends anything.
var ErrSilent = errors.New("no report for " + silence.String())

// Watch calls receive with the reports of a gateway, one at a time, until ctx ends, the connection breaks, or the gateway is silent or sends an
// invalid report. It returns nil if the gateway has ended in good order and said so.
func Watch(ctx context.Context, gateway grpc.ClientConnInterface, receive func(Report)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	timer := time.AfterFunc(silence, func() { cancel(ErrSilent) })
	defer timer.Stop()
	stream, err := gateway.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, load.Method)
	if err == nil {
		err = stream.SendMsg(&load.WatchRequest{})
	}
	if err == nil {
		err = stream.CloseSend()
	}
	for err == nil {
		var message load.Report
		if err = stream.RecvMsg(&message); err != nil {
			break
		}
		timer.Stop()
		var r Report
		if r, err = Decode(&message); err == nil {
			receive(r)
		}
		timer.Reset(silence)
	}
	switch cause := context.Cause(ctx); {
	case errors.Is(err, io.EOF):
		return nil
	case cause != nil:
		return cause
	}
	return err
}

// Decode returns the report in a message, or an error if it is not valid.
func Decode(m *load.Report) (Report, error) {
	r := Report{Gateway: m.Gateway, Incarnation: m.Incarnation}
	if r.Gateway == "" || r.Incarnation == "" {
		return Report{}, errors.New("the report of a gateway has no name or no incarnation")
	}
	r.Functions = make([]Function, 0, len(m.Functions))
	for _, l := range m.Functions {
		f, err := decode(l)
		if err != nil {
			return Report{}, fmt.Errorf("report of gateway %.100q: function %.100q: %w", m.Gateway, f.FunctionName, err)
		}
		r.Functions = append(r.Functions, f)
	}
	return r, nil
}

func decode(l *load.FunctionLoad) (Function, error) {
	f := Function{
		FunctionName: gateway.FunctionName{Namespace: l.Namespace, Name: l.Name},
		Load: gateway.Load{
			Arrived: l.Arrived, Received: l.Received, Answered: l.Answered, InTime: l.InTime, Refused: l.Refused, Invalid: l.Invalid, Failed: l.Failed,
			Gone: l.Gone, Waiting: int(l.Waiting), InFlight: int(l.InFlight), Replicas: int(l.Replicas), P99: time.Duration(l.P99Nanos),
		},
		WaitsForReplica: l.WaitsForReplica, Seconds: l.ReceivedOfSecond, Drained: l.Drained, Busy: l.Busy,
	}
	if l.ReceivedInLastSecond != nil {
		f.Load.LastSecond = gateway.LastSecond{Received: *l.ReceivedInLastSecond, Known: true}
	}
	switch {
	case f.Namespace == "" || f.Name == "":
		return f, errors.New("has no name or no namespace")
	case len(f.Seconds) > load.Seconds:
		return f, fmt.Errorf("has %d seconds, more than %d", len(f.Seconds), load.Seconds)
	case f.Load.P99 < 0:
		return f, fmt.Errorf("has a negative latency, %v", f.Load.P99)
	case l.Waiting > math.MaxInt32 || l.InFlight > math.MaxInt32 || l.Replicas > math.MaxInt32:
		return f, errors.New("has a number that is too large")
	}
	return f, nil
}

// encode returns the message for a load.
func encode(name gateway.FunctionName, l gateway.Load) *load.FunctionLoad {
	return &load.FunctionLoad{
		Namespace: name.Namespace, Name: name.Name, Arrived: l.Arrived, Received: l.Received, Answered: l.Answered, InTime: l.InTime,
		Refused: l.Refused, Invalid: l.Invalid, Failed: l.Failed, Gone: l.Gone, Waiting: uint32(l.Waiting), InFlight: uint32(l.InFlight),
		Replicas: uint32(l.Replicas), P99Nanos: int64(l.P99),
	}
}
