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

// retryBind is the backoff after an ambiguous bind: short at first, then a few seconds, without a limit on attempts.
var retryBind = wait.Backoff{Duration: 50 * time.Millisecond, Factor: 2, Jitter: 0.1, Steps: 8, Cap: 5 * time.Second}

// lateBind is how long after a lost response the API server may still carry out the request: it ends requests after a minute by
// default.
const lateBind = 90 * time.Second

// Bind writes the pod's node and placement in one Binding. It skips pods without a share.
func (p *Plugin) Bind(ctx context.Context, state fwk.CycleState, pod *v1.Pod, nodeName string) *fwk.Status {
	c, status := p.cycleOf(state)
	if status != nil {
		return status
	}
	if !c.asks {
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

// bindUntilConfirmed returns nil when the pod is bound as in the binding, and an error only when it is certain that the pod is not and
// will not be bound so. After a timeout or a server error the request may have been carried out, or may still be: freeing the space
// then could assign it twice. So it reads the pod and binds again until the outcome is certain; meanwhile the assumed pod holds the
// space.
func (p *Plugin) bindUntilConfirmed(ctx context.Context, pod *v1.Pod, b *v1.Binding) error {
	backoff := retryBind
	var unanswered time.Time // time of the last attempt that may still be carried out
	for {
		err := p.handle.ClientSet().CoreV1().Pods(b.Namespace).Bind(ctx, b, metav1.CreateOptions{})
		if err == nil {
			return nil
		}
		if !refused(err) {
			unanswered = time.Now()
		}
		bound, certain := p.outcome(ctx, pod, b, time.Since(unanswered) > lateBind)
		if bound {
			return nil
		}
		if certain {
			return err
		}
		binds.WithLabelValues(p.name, ambiguous).Inc()
		klog.FromContext(ctx).V(2).Info("Bind is ambiguous, trying again", "pod", klog.KObj(pod), "node", b.Target.Name, "err", err)
		if waitErr := pause(ctx, backoff.Step()); waitErr != nil {
			return errors.Join(err, waitErr)
		}
	}
}

// outcome reads the pod from the API server after a failed bind. An unbound pod is certain only if no request of this or an earlier
// attempt can still be in flight.
func (p *Plugin) outcome(ctx context.Context, pod *v1.Pod, b *v1.Binding, nothingUnderWay bool) (bound, certain bool) {
	live, err := p.handle.ClientSet().CoreV1().Pods(b.Namespace).Get(ctx, b.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return false, true
	case err != nil:
		return false, false
	case live.UID != pod.UID:
		return false, true // another pod of that name; a late request fails on the UID
	case live.Spec.NodeName != "":
		return kube.BoundAs(live, b), true
	}
	return false, nothingUnderWay
}

// refused reports whether the API server rejected the request, so that it will not be carried out later: a 4xx status, except timeout
// and too many requests.
func refused(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	code := status.Status().Code
	return code >= 400 && code < 500 && code != http.StatusRequestTimeout && code != http.StatusTooManyRequests
}

// pause waits for d or until the context ends.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
