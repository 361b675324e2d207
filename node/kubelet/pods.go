// Package kubelet reads from the kubelet the pods of this node (PodsAPI) and which container holds which device IDs (podresources). Both work
// while the API server is away, and both limit the rate of calls. For kubelets without PodsAPI, pods are read from the API server instead.
package kubelet

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	podsapi "k8s.io/kubelet/pkg/apis/pods/v1alpha1"

	"github.com/gshare-dev/gshare/vgpu/kube"
)

// A kubelet serves 100 calls per second of each of its APIs, for all callers together, and 10 at the same time.
const (
	callsPerSecond = 60
	callsAtOnce    = 4
	maxMessage     = 64 << 20 // ten times what 110 typical pods take
)

// retryEvery is the pause before a call that the kubelet refused is repeated.
const retryEvery = 50 * time.Millisecond

// ErrNoPod is returned for a pod that the kubelet does not have.
var ErrNoPod = errors.New("the kubelet has no such pod")

var errBusy = errors.New("too many calls to the kubelet")

// dial returns a gRPC connection to a socket of the kubelet. It connects in the background, and again after the kubelet restarts.
func dial(socket string) (*grpc.ClientConn, error) {
	return grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage), grpc.WaitForReady(true)),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: reconnect, MinConnectTimeout: time.Second}))
}

// retryWhileBusy repeats a call, at the limiter's rate, while the kubelet answers that it is too busy or not ready. Its error is
// context.DeadlineExceeded if it gives up for lack of time, even if some time is left that would not suffice.
func retryWhileBusy(ctx context.Context, limit *rate.Limiter, call func(context.Context) error) error {
	for {
		if err := limit.Wait(ctx); err != nil {
			if ctx.Err() == nil { // the deadline is too near, or has passed and the context's timer is late
				err = fmt.Errorf("%w: %w", context.DeadlineExceeded, err)
			}
			return err
		}
		err := call(ctx)
		switch status.Code(err) {
		case codes.ResourceExhausted, codes.FailedPrecondition, codes.Unavailable:
		case codes.DeadlineExceeded: // the kubelet knows the deadline, too
			return fmt.Errorf("%w: %w", context.DeadlineExceeded, err)
		default:
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ctx.Err(), err)
		case <-time.After(retryEvery):
		}
	}
}

// Pods are the pods of this node with their current status. Their methods may be called from any goroutine.
type Pods interface {
	// List returns all pods of the node, including those that the kubelet has not admitted yet. It retries while it gets no answer.
	List(context.Context) ([]*v1.Pod, error)

	// TryList lists the pods once without waiting. It may refuse, to leave the kubelet to more important calls.
	TryList(context.Context) ([]*v1.Pod, error)

	// Get returns the pod with this UID, or ErrNoPod.
	Get(context.Context, types.UID) (*v1.Pod, error)

	// Watch calls changed when a pod may have ended or its SM limit annotation has changed. It returns when the context ends or the
	// connection breaks. It may miss events, so callers must also poll.
	Watch(ctx context.Context, changed func()) error

	// Close ends the connection.
	Close()
}

// PodsAPI is a client of the kubelet's PodsAPI.
type PodsAPI struct {
	conn   *grpc.ClientConn
	client podsapi.PodsClient
	limit  *rate.Limiter
	tries  *rate.Limiter
}

// DialPods returns a client of the kubelet's PodsAPI at the given socket path.
func DialPods(socket string) (*PodsAPI, error) {
	conn, err := dial(socket)
	if err != nil {
		return nil, err
	}
	return &PodsAPI{conn, podsapi.NewPodsClient(conn), rate.NewLimiter(callsPerSecond, callsAtOnce), rate.NewLimiter(2, 1)}, nil
}

// Close closes the connection to the kubelet.
func (p *PodsAPI) Close() { p.conn.Close() }

// List returns all pods of the node, including those that the kubelet has not admitted yet. It retries while the kubelet is busy.
func (p *PodsAPI) List(ctx context.Context) ([]*v1.Pod, error) {
	var answer *podsapi.ListPodsResponse
	err := retryWhileBusy(ctx, p.limit, func(ctx context.Context) (err error) {
		answer, err = p.client.ListPods(ctx, &podsapi.ListPodsRequest{})
		return err
	})
	if err != nil {
		return nil, err
	}
	return decode(answer)
}

func decode(answer *podsapi.ListPodsResponse) (pods []*v1.Pod, err error) {
	for _, text := range answer.Pods {
		pod := &v1.Pod{}
		if err := pod.Unmarshal(text); err != nil {
			return nil, err
		}
		pods = append(pods, pod)
	}
	return pods, nil
}

// TryList lists the pods once without retrying. It returns an error if it was called less than half a second ago, to leave the kubelet's
// rate limit to more important calls.
func (p *PodsAPI) TryList(ctx context.Context) ([]*v1.Pod, error) {
	if !p.tries.Allow() {
		return nil, errBusy
	}
	answer, err := p.client.ListPods(ctx, &podsapi.ListPodsRequest{})
	if err != nil {
		return nil, err
	}
	return decode(answer)
}

// Get returns the pod with this UID, or ErrNoPod if the kubelet does not have it.
func (p *PodsAPI) Get(ctx context.Context, uid types.UID) (*v1.Pod, error) {
	var answer *podsapi.GetPodResponse
	err := retryWhileBusy(ctx, p.limit, func(ctx context.Context) (err error) {
		answer, err = p.client.GetPod(ctx, &podsapi.GetPodRequest{PodUID: string(uid)})
		return err
	})
	if status.Code(err) == codes.NotFound {
		return nil, ErrNoPod
	}
	if err != nil {
		return nil, err
	}
	pod := &v1.Pod{}
	return pod, pod.Unmarshal(answer.Pod)
}

// Watch calls changed when a pod may have ended or its SM limit annotation has changed. It returns when the context ends or the connection
// to the kubelet breaks. It may miss events, so callers must also poll.
func (p *PodsAPI) Watch(ctx context.Context, changed func()) error {
	stream, err := p.client.WatchPods(ctx, &podsapi.WatchPodsRequest{})
	if err != nil {
		return err
	}
	limits := map[types.UID]string{}
	for {
		event, err := stream.Recv()
		if err != nil {
			return err
		}
		pod := &v1.Pod{}
		if pod.Unmarshal(event.Pod) != nil || event.Type == podsapi.EventType_DELETED || kube.Ended(pod) {
			delete(limits, pod.UID)
			changed()
			continue
		}
		limit, known := limits[pod.UID]
		limits[pod.UID] = pod.Annotations[kube.AnnotationSMLimit]
		if known && limit != limits[pod.UID] {
			changed()
		}
	}
}

// matters reports whether a change of a pod is one that Watch reports.
func matters(before, after *v1.Pod) bool {
	return kube.Ended(after) || before.Annotations[kube.AnnotationSMLimit] != after.Annotations[kube.AnnotationSMLimit]
}
