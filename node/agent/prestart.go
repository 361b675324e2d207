package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/gshare-dev/gshare/node/grant"
	"github.com/gshare-dev/gshare/node/kubelet"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/residency"
)

// The start of a container waits for conditions that may soon be met: that its predecessor has ended, that the kubelet has recorded its
// device IDs. The kubelet allows PreStart 30 s, and repeats it after an error.
const (
	retryFor     = 5 * time.Second
	retryPeriod  = 100 * time.Millisecond
	startLimit   = 25 * time.Second
	preferWithin = 50 * time.Millisecond // the kubelet's main loop waits for the answer of Prefer
)

// grantDeviceIDs grants the container that holds the device IDs (of gshare/vgpu) the share that the scheduler placed for it. For a few
// seconds it retries after errors that may pass soon. It returns an error if the owner of the device IDs is ambiguous.
func (g *granter) grantDeviceIDs(ctx context.Context, deviceIDs []string) error {
	var first *grant.Owner
	return g.grantSoon(ctx, retryFor, deviceIDs, func(ctx context.Context) (grant.Claim, error) { return g.tryGrant(ctx, deviceIDs, &first) })
}

// grantSoon calls try until a share is granted. For the given time, it retries after errors that may pass soon.
func (g *granter) grantSoon(
	ctx context.Context, patience time.Duration, deviceIDs []string, try func(context.Context) (grant.Claim, error),
) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	var last error
	for began := time.Now(); ; {
		freed := g.grants.freedChannel()
		claim, err := try(ctx)
		if last != nil && (ctx.Err() != nil || errors.Is(err, context.DeadlineExceeded)) {
			err = last // it tells more than that the time is over
		}
		if err == nil || !isTransient(err) || ctx.Err() != nil || time.Since(began) > patience {
			g.metrics.countStart(err, time.Since(began))
			g.reportRefusal(claim, deviceIDs, err)
			return err
		}
		last = err
		signal(g.wake)
		select {
		case <-freed:
		case <-ctx.Done():
		case <-time.After(retryPeriod):
		}
	}
}

// tryGrant attempts once to grant the share of the container that holds the device IDs. It fails if an earlier attempt found another owner,
// which is in first.
func (g *granter) tryGrant(ctx context.Context, deviceIDs []string, first **grant.Owner) (grant.Claim, error) {
	claim, err := g.Records.Claim(ctx, deviceIDs)
	if err != nil {
		return claim, fmt.Errorf("device IDs %v: %w", deviceIDs, err)
	}
	owner := claim.Owner()
	if *first != nil && **first != owner {
		return claim, grant.Ambiguous("device IDs %v were of pod %s a moment ago", deviceIDs, (*first).UID)
	}
	*first = &owner
	return claim, g.admit(claim)
}

// isTransient reports whether a retry within seconds may succeed after the error.
func isTransient(err error) bool {
	if errors.Is(err, kubelet.ErrNoOwner) || errors.Is(err, kubelet.ErrTwoOwners) {
		return true
	}
	var refusal *grant.Refusal
	return errors.As(err, &refusal) && (refusal.Reason == grant.DoesNotFit || refusal.Reason == grant.AwaitsTurn || refusal.Reason == grant.AmbiguousDeviceIDs ||
		refusal.Reason == grant.Closed)
}

// reportRefusal logs why a container was not granted its share and, if the error is a refusal, writes an event on its pod. It does nothing
// if err is nil.
func (g *granter) reportRefusal(claim grant.Claim, deviceIDs []string, err error) {
	if err == nil {
		return
	}
	g.Log.Warn("failed to start a container", "deviceIDs", deviceIDs, "container", claim.Container, "error", err)
	var refusal *grant.Refusal
	if claim.Pod != nil && errors.As(err, &refusal) {
		g.Cluster.Warn(claim.Pod, string(refusal.Reason), refusal.Text)
		g.reportRefusedStart(claim.Pod, refusal)
	}
}

// reportRefusedStart writes on an instance of a function that its slice has no room for it, so that gshare-controller replaces it. If the
// instance awaits its turn but its pod says that it has started, it writes that it has not: after a reboot nothing is left of what the
// instance had, and otherwise no other instance would get its turn.
func (g *granter) reportRefusedStart(pod *v1.Pod, refusal *grant.Refusal) {
	wanted, reached, err := kube.ResidencyOf(pod)
	refused := residency.Reached{Seq: wanted.Seq, Refused: true}
	switch {
	case err != nil || wanted == residency.Fixed || reached == refused:
		return
	case refusal.Reason == grant.AwaitsTurn && reached.Level > residency.Cold:
		refused.Refused = false
	case refusal.Reason != grant.DoesNotFit:
		return
	}
	text, err := refused.Encode()
	if err == nil {
		err = g.Cluster.WriteResidency(context.Background(), pod, text)
	}
	if err != nil { // the kubelet repeats the start
		g.Log.Warn("failed to report residency", "pod", pod.Namespace+"/"+pod.Name, "error", err)
	}
}
