package agent

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/node/gpu"
	"github.com/gshare-dev/gshare/vgpu/node/grant"
)

// look asks the machine what it has now. Devices that fail and devices that recover show in the inventory.
func (a *Agent) look(ctx context.Context, patience time.Duration) error {
	devices, err := a.what.ask(ctx, patience)
	if err != nil && !errors.Is(err, gpu.ErrNoGPU) {
		return err // nothing is known to have changed
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	before := a.inventory
	a.devices = devices
	a.setInventory(before.Update(a.inventoryConfig(), devices, a.bound))
	if !equalShares(before.Shares(), a.inventory.Shares()) {
		broadcast(&a.changed)
	}
	a.tellFaults(before.Slices())
	signal(a.report)
	return nil
}

func equalShares(a, b []int) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// firstLook waits for a driver that hangs only where nothing else tells what the node has: else it goes by what was published, for
// the kubelet fails pods whose devices are not registered. The answer is taken in when it comes.
func (a *Agent) firstLook(ctx context.Context) error {
	for ctx.Err() == nil {
		err := a.look(ctx, recallLimit)
		if !errors.Is(err, errHung) {
			return err
		}
		a.Log.Error("look at the devices", "err", err)
		if a.goByPublished() {
			return nil
		}
	}
	return nil
}

// goByPublished admits by the inventory that was published last, if it is known.
func (a *Agent) goByPublished() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.setInventory(a.inventory)
	return len(a.inventory.Slices()) > 0
}

// healthLoop looks at the devices again and again.
func (a *Agent) healthLoop(ctx context.Context) {
	for ctx.Err() == nil {
		period := a.Config.Kubernetes.HealthPeriod.Duration
		select {
		case <-ctx.Done():
		case <-a.appeared:
		case <-time.After(period):
		}
		if err := a.look(ctx, period); err != nil && ctx.Err() == nil {
			a.Log.Error("look at the devices", "err", err)
		}
		a.drain(ctx)
	}
}

// drain evicts the pods on slices that are to be emptied.
func (a *Agent) drain(ctx context.Context) {
	for _, g := range a.toDrain() {
		if err := a.Cluster.Evict(ctx, types.NamespacedName{Namespace: g.Namespace, Name: g.Name}, g.UID); err != nil {
			a.Log.Warn("drain", "pod", g.String(), "err", err)
		}
	}
}

func (a *Agent) toDrain() (drained []grant.Grant) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, s := range a.inventory.Slices() {
		for _, uuid := range a.Config.Kubernetes.Drain {
			if s.ID == uuid || s.Device == uuid {
				drained = append(drained, a.book.On(s.ID)...)
			}
		}
	}
	return drained
}

const publishSoon = 200 * time.Millisecond

// publishLoop keeps the API server told until the context ends. open ends before that, when the node is to be closed.
func (a *Agent) publishLoop(ctx, open context.Context) {
	a.Cluster.Changed(ctx, func() { signal(a.report) })
	told := map[types.UID]string{}
	for {
		again := a.publishAll(ctx, open, told)
		select {
		case <-ctx.Done():
			return
		case <-a.report:
		case <-again:
		}
		pause(open, publishSoon) // what happens together is told together
	}
}

// publishAll says what there is to say once, and when it is to be said again whatever happens. That the node closes goes before reports.
func (a *Agent) publishAll(ctx, open context.Context, told map[types.UID]string) (again <-chan time.Time) {
	why := a.whyShut(open)
	err := a.publish(ctx, why)
	a.metrics.published(err, why)
	if err == nil && why == kube.ReasonClosing {
		signal(a.closed)
	}
	if open.Err() != nil || a.inBurst(told, time.Now()) {
		again = time.After(publishQuiet)
	} else {
		err = errors.Join(err, a.publishEnforcement(open, told))
	}
	if err != nil && ctx.Err() == nil {
		a.Log.Warn("publish", "err", err)
		again = time.After(time.Second)
	}
	return again
}

// publish says what the node has, and that it takes no pods if there is a reason. The next agent is told without that reason.
func (a *Agent) publish(ctx context.Context, why kube.Reason) error {
	a.mu.Lock()
	has, bound := a.inventory, a.bound
	a.mu.Unlock()
	text, err := kube.EncodeInventory(has.Published())
	if err != nil {
		return err
	}
	if err := a.note(text); err != nil {
		if why != kube.ReasonClosing {
			return err // what was published and not noted would be unknown to the next agent
		}
		a.Log.Error("note what is published", "err", err)
	}
	if why != "" {
		if text, err = kube.EncodeInventory(has.Shut(why)); err != nil {
			return err
		}
	}
	return a.Cluster.Publish(ctx, text, kube.NodeResources(has.Published()), bound)
}
