// Package kubelet asks the kubelet of this node what it knows: its pods (PodsAPI) and which container holds which tickets
// (podresources). Both go on while the API server is away, and both refuse callers that ask too often.
package kubelet

import (
	"context"
	"errors"
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

// A kubelet serves 100 calls a second of each of its APIs, to all callers together, and 10 at once.
const (
	callsPerSecond = 60
	callsAtOnce    = 4
	maxMessage     = 64 << 20 // 110 pods of the largest size that etcd holds would be more; what is there is a tenth of it
)

// retryEvery is how long a refused call waits before it is made again.
const retryEvery = 50 * time.Millisecond

// ErrNoPod says that the kubelet does not have the pod.
var ErrNoPod = errors.New("the kubelet has no such pod")

var errBusy = errors.New("the kubelet has been asked often enough")

// dial never blocks: the kubelet may come later, and may come back.
func dial(socket string) (*grpc.ClientConn, error) {
	return grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage), grpc.WaitForReady(true)),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: reconnect, MinConnectTimeout: time.Second}))
}

// patiently makes a call, again and again where the kubelet says that it is too busy or not ready.
func patiently(ctx context.Context, limit *rate.Limiter, call func(context.Context) error) error {
	for {
		if err := limit.Wait(ctx); err != nil {
			return err
		}
		err := call(ctx)
		switch status.Code(err) {
		case codes.ResourceExhausted, codes.FailedPrecondition, codes.Unavailable:
		default:
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(retryEvery):
		}
	}
}

// Pods are those that the kubelet manages, with the status that it will report.
type Pods struct {
	conn   *grpc.ClientConn
	client podsapi.PodsClient
	limit  *rate.Limiter
	peeks  *rate.Limiter
}

// DialPods takes the socket of the PodsAPI.
func DialPods(socket string) (*Pods, error) {
	conn, err := dial(socket)
	if err != nil {
		return nil, err
	}
	return &Pods{conn, podsapi.NewPodsClient(conn), rate.NewLimiter(callsPerSecond, callsAtOnce), rate.NewLimiter(2, 1)}, nil
}

// Close ends the connection.
func (p *Pods) Close() { p.conn.Close() }

// List gives all pods, those under admission too.
func (p *Pods) List(ctx context.Context) ([]*v1.Pod, error) {
	var answer *podsapi.ListPodsResponse
	err := patiently(ctx, p.limit, func(ctx context.Context) (err error) {
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

// Peek is List for who can do without. It is made twice a second at most: where many pods are admitted at once, it would cost
// others their turn, and tell less.
func (p *Pods) Peek(ctx context.Context) ([]*v1.Pod, error) {
	if !p.peeks.Allow() {
		return nil, errBusy
	}
	answer, err := p.client.ListPods(ctx, &podsapi.ListPodsRequest{})
	if err != nil {
		return nil, err
	}
	return decode(answer)
}

// Get gives one pod; ErrNoPod if the kubelet does not have it.
func (p *Pods) Get(ctx context.Context, uid types.UID) (*v1.Pod, error) {
	var answer *podsapi.GetPodResponse
	err := patiently(ctx, p.limit, func(ctx context.Context) (err error) {
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

// Watch calls changed whenever a pod may have ended or gone, or says another SM limit, until the context or the kubelet ends. Events
// may be missed; who needs to be sure looks now and then.
func (p *Pods) Watch(ctx context.Context, changed func()) error {
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
		if pod.Unmarshal(event.Pod) != nil || event.Type == podsapi.EventType_DELETED || Ended(pod) {
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

// Ended says that no container of the pod runs or will run again.
func Ended(pod *v1.Pod) bool {
	return pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed
}
