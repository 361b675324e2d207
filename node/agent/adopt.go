package agent

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/gshare-dev/gshare/node/grant"
	"github.com/gshare-dev/gshare/node/kubelet"
	"github.com/gshare-dev/gshare/vgpu/kube"
)

// adopter grants shares to containers that hold device IDs in the kubelet's records but have no grant. Such containers exist after a reboot, which
// deletes the grants' files, if they were created before the plugin registered, or if their records cannot be decoded. A container that may be
// running keeps its grant even if its setup fails, and the sweeper serves it later.
type adopter struct{ *granter }

// adopt grants the shares. For retryFor, it repeats what was refused for a reason that may pass, and returns the containers that are refused then.
func (a adopter) adopt(ctx context.Context) (refused []grant.Owner) {
	claims, err := a.Records.All(ctx)
	for ; err != nil && ctx.Err() == nil; claims, err = a.Records.All(ctx) {
		a.Log.Warn("failed to read which containers hold shares, and this is tried again", "error", err)
		sleep(ctx, sweepPeriod)
	}
	for began := time.Now(); len(claims) > 0; sleep(ctx, retryPeriod) {
		over := ctx.Err() != nil || time.Since(began) > retryFor
		claims = slices.DeleteFunc(claims, func(claim grant.Claim) bool {
			err := a.admit(claim)
			if isTransient(err) && !over {
				return false // such as an MPS daemon that is not found yet
			}
			if isTransient(err) {
				refused = append(refused, claim.Owner())
			}
			a.reportRefusal(claim, claim.DeviceIDs, err)
			return true
		})
	}
	return refused
}

// adoptLater grants shares to containers for which adopt could not, until all have one or have ended. Nothing else would: the kubelet asks once for
// each container, before it starts.
func (a adopter) adoptLater(ctx context.Context, refused []grant.Owner) {
	for len(refused) > 0 && ctx.Err() == nil {
		sleep(ctx, sweepPeriod)
		claims, err := a.Records.All(ctx)
		if err != nil {
			continue
		}
		refused = slices.DeleteFunc(refused, func(o grant.Owner) bool {
			i := slices.IndexFunc(claims, func(c grant.Claim) bool { return c.Owner() == o })
			if i < 0 { // it has ended, or the records are being read again
				pod, err := a.Pods.Get(ctx, o.UID)
				return errors.Is(err, kubelet.ErrNoPod) || err == nil && kube.Ended(pod)
			}
			err := a.admit(claims[i])
			var refusal *grant.Refusal
			if isTransient(err) || errors.As(err, &refusal) && refusal.Reason == grant.InUse {
				return false
			}
			a.reportRefusal(claims[i], claims[i].DeviceIDs, err)
			return true
		})
	}
}
