package agent

import (
	"context"
	"time"

	"github.com/gshare-dev/gshare/vgpu/kube"
)

// The kubelet fails a pod that it looks at while nobody serves the plugin. So a node takes new pods only while somebody does: it is
// opened when the kubelet watches the plugin, and closed before the agent ends.

// closeLimit bounds how long the end of an agent waits until the API server has been told.
const closeLimit = 3 * time.Second

// beyond is a context that outlives another: until the node is closed, and the pods that were bound before have come.
func (a *Agent) beyond(ctx context.Context) (serving context.Context, stop context.CancelFunc) {
	serving, stop = context.WithCancel(context.WithoutCancel(ctx))
	context.AfterFunc(ctx, func() {
		defer stop()
		signal(a.report)
		select {
		case <-a.closed:
			a.Linger(serving)
		case <-serving.Done():
		case <-time.After(closeLimit):
			a.Log.Warn("the node is not closed: the API server has not been told")
		}
	})
	return serving, stop
}

// whyShut is the reason for which the node takes no pods at all; none if it does. The context is the agent's, and ends before it does.
func (a *Agent) whyShut(ctx context.Context) kube.Reason {
	switch {
	case ctx.Err() != nil:
		return kube.ReasonClosing
	case !a.metrics.registered.Load():
		return kube.ReasonUnwatched
	}
	return ""
}
