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

// retryBind is how an ambiguous bind is repeated: quickly at first, then every few seconds for as long as it takes.
var retryBind = wait.Backoff{Duration: 50 * time.Millisecond, Factor: 2, Jitter: 0.1, Steps: 8, Cap: 5 * time.Second}

// lateBind is how long after its answer was lost a request may still be carried out: the API server ends requests after a
// minute unless told otherwise.
const lateBind = 90 * time.Second

// Bind writes node and placement in one request. Pods that ask for no share are left to the next binder.
func (p *Plugin) Bind(ctx context.Context, state fwk.CycleState, pod *v1.Pod, nodeName string) *fwk.Status {
	c, status := p.cycleOf(state)
	if status != nil {
		return status
	}
	if !c.asks {
		return fwk.NewStatus(fwk.Skip)
	}
	promise, ok := p.ledger.Get(pod.UID)
	if !ok || promise.Node != nodeName {
		return fwk.NewStatus(fwk.Error, fmt.Sprintf("no placement reserved for %s on %s", klog.KObj(pod), nodeName))
	}
	binding, err := kube.MakeBinding(pod, nodeName, promise.Placement)
	if err != nil {
		return fwk.AsStatus(err)
	}
	if err := p.bindSurely(ctx, pod, binding); err != nil {
		binds.WithLabelValues(p.name, notBound).Inc()
		return fwk.AsStatus(fmt.Errorf("bind %s to %s: %w", klog.KObj(pod), nodeName, err))
	}
	binds.WithLabelValues(p.name, wasBound).Inc()
	return nil
}

// bindSurely returns nil when the pod is bound as the binding says, and an error only when it is certain that it is not and
// will not be. After a time-out or a server error the request may have been carried out, or may yet be: to give the space
// away then would give it twice. So it looks at the pod and binds again until the answer is clear; meanwhile the assumed
// pod goes on holding the space.
func (p *Plugin) bindSurely(ctx context.Context, pod *v1.Pod, b *v1.Binding) error {
	backoff := retryBind
	var doubt time.Time // of the last attempt that may yet be carried out
	for {
		err := p.handle.ClientSet().CoreV1().Pods(b.Namespace).Bind(ctx, b, metav1.CreateOptions{})
		if err == nil {
			return nil
		}
		if !refused(err) {
			doubt = time.Now()
		}
		bound, certain := p.outcome(ctx, pod, b, time.Since(doubt) > lateBind)
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

// outcome reads the pod live after a failed bind. Where it is still unbound, that is certain only when nothing of this or an
// earlier attempt can be under way any more.
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

// refused says that the server looked at the request and turned it down, so that nothing of it is under way: any status
// that blames the request, but not those that ask for patience.
func refused(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	code := status.Status().Code
	return code >= 400 && code < 500 && code != http.StatusRequestTimeout && code != http.StatusTooManyRequests
}

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
