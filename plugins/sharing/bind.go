package sharing

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/gshare-dev/gshare/vgpu/kube"
)

// bindBackoff is the backoff between attempts to bind a pod when it is uncertain whether it is bound: 50 ms at first, then up to 5 s,
// without a limit on attempts.
var bindBackoff = wait.Backoff{Duration: 50 * time.Millisecond, Factor: 2, Jitter: 0.1, Steps: 8, Cap: 5 * time.Second}

// maxRequestTime is how long the API server may still carry out a bind request after its response was lost. By default the API server ends
// requests after a minute.
const maxRequestTime = 90 * time.Second

// Bind writes the pod's node and placement to the API server in one Binding. It skips pods without a share.
func (p *Plugin) Bind(ctx context.Context, state fwk.CycleState, pod *v1.Pod, nodeName string) *fwk.Status {
	c, status := p.cycleOf(state)
	if status != nil {
		return status
	}
	if !c.hasShare {
		return fwk.NewStatus(fwk.Skip)
	}
	assumed, ok := p.ledger.Get(pod.UID)
	if !ok || assumed.Node != nodeName {
		return fwk.NewStatus(fwk.Error, fmt.Sprintf("no placement reserved for %s on %s", klog.KObj(pod), nodeName))
	}
	binding, err := kube.MakeBinding(pod, nodeName, assumed.Placement)
	if err != nil {
		return fwk.AsStatus(err)
	}
	if err := p.bindUntilConfirmed(ctx, pod, binding); err != nil {
		binds.WithLabelValues(p.name, notBound).Inc()
		return fwk.AsStatus(fmt.Errorf("bind %s to %s: %w", klog.KObj(pod), nodeName, err))
	}
	binds.WithLabelValues(p.name, wasBound).Inc()
	return nil
}

// bindUntilConfirmed binds the pod and retries until the outcome is certain. It returns nil when the pod is bound exactly as in the
// binding, and an error only if that is not so and never will be. After a timeout or a server error, the API server may have carried out
// the request or may still do so. If the space were freed then, it could be assigned twice; so the assumed placement holds it meanwhile.
func (p *Plugin) bindUntilConfirmed(ctx context.Context, pod *v1.Pod, b *v1.Binding) error {
	backoff := bindBackoff
	var unanswered time.Time // time of the last attempt that may still be carried out
	for {
		err := p.handle.ClientSet().CoreV1().Pods(b.Namespace).Bind(ctx, b, metav1.CreateOptions{})
		if err == nil {
			return nil
		}
		if !isRejected(err) {
			unanswered = time.Now()
		}
		bound, certain := p.bindOutcome(ctx, pod, b, time.Since(unanswered) > maxRequestTime)
		if bound {
			return nil
		}
		if certain {
			return err
		}
		binds.WithLabelValues(p.name, ambiguous).Inc()
		klog.FromContext(ctx).V(2).Info("Bind is ambiguous, trying again", "pod", klog.KObj(pod), "node", b.Target.Name, "err", err)
		if waitErr := sleep(ctx, backoff.Step()); waitErr != nil {
			return errors.Join(err, waitErr)
		}
	}
}

// bindOutcome reads the pod from the API server after a failed bind. It returns whether the pod is bound exactly as in the binding, and
// whether that is certain. It is certain that a pod is not bound only if no bind request can still be in flight.
func (p *Plugin) bindOutcome(ctx context.Context, pod *v1.Pod, b *v1.Binding, nothingUnderWay bool) (bound, certain bool) {
	live, err := p.handle.ClientSet().CoreV1().Pods(b.Namespace).Get(ctx, b.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return false, true
	case err != nil:
		return false, false
	case live.UID != pod.UID:
		return false, true // another pod of that name; a late request for this one fails on the UID
	case live.Spec.NodeName != "":
		return kube.BoundAs(live, b), true
	}
	return false, nothingUnderWay
}

// isRejected reports whether the error is a rejection by the API server, after which the request is not carried out later: a 4xx status
// other than request timeout and too many requests.
func isRejected(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	code := status.Status().Code
	return code >= 400 && code < 500 && code != http.StatusRequestTimeout && code != http.StatusTooManyRequests
}

// sleep waits for the duration, or returns the context's error if the context ends first.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
