package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gshare-dev/gshare/vgpu/node/grant"
	"github.com/gshare-dev/gshare/vgpu/node/kubelet"
)

// How long a container waits for what may be over soon: its predecessor to end, the kubelet to write its record. The kubelet
// gives PreStart 30 s, and asks again after an error.
const (
	patience   = 5 * time.Second
	lookAgain  = 100 * time.Millisecond
	startLimit = 25 * time.Second
)

// PreStart implements deviceplugin.Node: it finds out whose the tickets are, verifies what the scheduler placed for him, and
// puts it behind the name that the runtime is about to look up. Doubt is an error.
func (a *Agent) PreStart(ctx context.Context, tickets []string) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	began := time.Now()
	var first *grant.Owner
	for {
		freed := a.freedChannel()
		claim, err := a.tryStart(ctx, tickets, &first)
		if err == nil || !passing(err) || ctx.Err() != nil || time.Since(began) > patience {
			a.metrics.started(err, time.Since(began))
			a.explain(claim, tickets, err)
			return err
		}
		signal(a.wake)
		select {
		case <-freed:
		case <-ctx.Done():
		case <-time.After(lookAgain):
		}
	}
}

func (a *Agent) freedChannel() <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.freed
}

// passing says that an error may be gone in a moment.
func passing(err error) bool {
	if errors.Is(err, kubelet.ErrNoOwner) || errors.Is(err, kubelet.ErrTwoOwners) {
		return true
	}
	var refusal *grant.Refusal
	return errors.As(err, &refusal) && (refusal.Reason == grant.NoRoom || refusal.Reason == grant.TicketsInDoubt ||
		refusal.Reason == grant.Closed)
}

// explain tells the user and the log why a container does not start.
func (a *Agent) explain(claim grant.Claim, tickets []string, err error) {
	if err == nil {
		return
	}
	a.Log.Warn("a container is not started", "tickets", tickets, "container", claim.Container, "err", err)
	var refusal *grant.Refusal
	if claim.Pod != nil && errors.As(err, &refusal) {
		a.Cluster.Warn(claim.Pod, string(refusal.Reason), refusal.Text)
	}
}

// tryStart tries once. Whoever was found first must be found again: the answer is for the container that asked.
func (a *Agent) tryStart(ctx context.Context, tickets []string, first **grant.Owner) (grant.Claim, error) {
	claim, err := a.Records.Claim(ctx, tickets)
	if err != nil {
		return claim, fmt.Errorf("tickets %v: %w", tickets, err)
	}
	owner := claim.Owner()
	if *first != nil && **first != owner {
		return claim, grant.Doubt("tickets %v were of pod %s a moment ago", tickets, (*first).UID)
	}
	*first = &owner
	return claim, a.admit(claim)
}
