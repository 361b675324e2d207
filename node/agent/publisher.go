package agent

import (
	"context"
	"errors"
	"maps"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gshare-dev/gshare/vgpu/kube"
)

// The kubelet fails a pod that it admits while nobody serves the device plugin. So a node takes new pods only while the kubelet
// watches the plugin, and the agent closes the node before it ends.

const (
	publishPause = 200 * time.Millisecond // changes within this time share a publication
	publishRetry = time.Second            // after an error
	closeTimeout = 3 * time.Second        // how long an ending agent waits for the API server

	// Each new enforcement status makes the API server and the kubelet process its pod once more. While many pods start at once, statuses
	// are held back until no share has been granted for enforcementQuiet, but for at most enforcementLate.
	enforcementQuiet = time.Second
	enforcementLate  = time.Minute
)

// publisher writes the node's inventory and its pods' enforcement statuses to the API server.
type publisher struct {
	*Options
	metrics     *metrics
	devices     *deviceMonitor
	grants      *grantStore
	enforcement *enforcementReporter
	claims      *claimReporter
	lowered     *loweredPods
	requests    chan struct{} // requests publication
	closed      chan struct{} // receives once the API server has stored that the node is closed
}

// servingContext returns a context that ends some time after ctx: once the API server has stored that the node takes no new pods, and pods
// that were bound before have had time to start.
func (p *publisher) servingContext(ctx context.Context) (serving context.Context, stop context.CancelFunc) {
	serving, stop = context.WithCancel(context.WithoutCancel(ctx))
	context.AfterFunc(ctx, func() {
		defer stop()
		signal(p.requests)
		select {
		case <-p.closed:
			p.Linger(serving)
		case <-serving.Done():
		case <-time.After(closeTimeout):
			p.Log.Warn("failed to close the node: the API server did not answer in time")
		}
	})
	return serving, stop
}

// closedReason returns why the node takes no new pods, or an empty reason if it does. The context open ends when the agent is about to end.
func (p *publisher) closedReason(open context.Context) kube.Reason {
	switch {
	case open.Err() != nil:
		return kube.ReasonClosing
	case !p.metrics.isWatched():
		return kube.ReasonUnwatched
	}
	return ""
}

// loop publishes changes until ctx ends. The context open ends earlier, and makes the node take no new pods.
func (p *publisher) loop(ctx, open context.Context) {
	p.Cluster.WatchNode(ctx, func() { signal(p.requests) })
	written := map[types.UID]string{}
	for {
		retry := p.publishOnce(ctx, open, written)
		select {
		case <-ctx.Done():
			return
		case <-p.requests:
		case <-retry:
		}
		sleep(open, publishPause)
	}
}

// publishOnce publishes the inventory and, except in a burst of starts, the enforcement statuses. retry fires when to publish again even
// without a change; nil means never. Once open has ended, it publishes that the node takes no new pods.
func (p *publisher) publishOnce(ctx, open context.Context, written map[types.UID]string) (retry <-chan time.Time) {
	reason := p.closedReason(open)
	err := p.publishInventory(ctx, reason)
	if err != nil {
		p.metrics.failures.Inc()
	}
	if err == nil && reason == kube.ReasonClosing {
		signal(p.closed)
	}
	if open.Err() != nil || p.inBurst(written, time.Now()) {
		retry = time.After(enforcementQuiet)
	} else {
		err = errors.Join(err, p.publishEnforcement(open, written))
	}
	if err != nil && ctx.Err() == nil {
		p.Log.Warn("failed to publish", "error", err)
		retry = time.After(publishRetry)
	}
	return retry
}

// publishInventory writes the inventory to the node's annotation. A reason closes every slice to new pods; the copy on disk for the next
// agent does not contain it. If the copy cannot be saved, the slices are closed for that, and the error is returned.
func (p *publisher) publishInventory(ctx context.Context, reason kube.Reason) error {
	inv, rules := p.devices.currentInventory(), p.Config.Rules()
	published := inv.Published()
	published.Rules = &rules
	text, err := kube.EncodeInventory(published)
	if err != nil {
		return err
	}
	unsaved := p.devices.savePublished(inv, text)
	switch {
	case unsaved == nil:
	case reason == kube.ReasonClosing: // the node is closed once this is published
		p.Log.Error("failed to save the inventory", "error", unsaved)
		unsaved = nil
	case reason == "":
		reason = kube.ReasonUnsaved // the next agent must know every slice that takes pods
	}
	if reason != "" {
		published.Slices = inv.AllUnhealthy(reason).Slices
		if text, err = kube.EncodeInventory(published); err != nil {
			return err
		}
	}
	var keep v1.ResourceList
	if p.devices.isBound() {
		keep = p.lowered.requested()
	}
	if err := p.Cluster.Publish(ctx, text, kube.NodeResources(published, p.lowered.get()...), keep); err != nil {
		return errors.Join(unsaved, err)
	}
	p.metrics.open.Store(reason == "")
	return unsaved
}

// inBurst reports whether to hold back enforcement statuses: a share was granted within the last second, and no pod has waited for its first
// status for a minute. written maps pod UIDs to the statuses written last.
func (p *publisher) inBurst(written map[types.UID]string, now time.Time) bool {
	burst := false
	for _, g := range p.grants.all() {
		age := now.Sub(g.Since)
		burst = burst || age >= 0 && age < enforcementQuiet // the clock may have been set back
		if written[g.UID] == "" && age > enforcementLate {
			return false
		}
	}
	return burst
}

// publishEnforcement writes the enforcement statuses that differ from those in written, and updates written.
func (p *publisher) publishEnforcement(ctx context.Context, written map[types.UID]string) (all error) {
	statuses := p.enforcement.statuses()
	for uid, t := range statuses {
		text, err := kube.EncodeEnforcementStatus(t.EnforcementStatus)
		if err == nil && written[uid] != text {
			err = p.Cluster.WriteEnforcement(ctx, t.name, uid, text)
		}
		if err != nil {
			all = errors.Join(all, err)
			continue
		}
		written[uid] = text
	}
	maps.DeleteFunc(written, func(uid types.UID, _ string) bool { _, ok := statuses[uid]; return !ok })
	return errors.Join(all, p.claims.publish(ctx))
}
