package agent

import (
	"context"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/node/inventory"
	"github.com/gshare-dev/gshare/vgpu/node/kubelet"
	"github.com/gshare-dev/gshare/vgpu/node/ticket"
)

// advice is how long the kubelet's main loop waits for advice at most.
const advice = 50 * time.Millisecond

// Prefer implements deviceplugin.Node: tickets that are numbered like the slices of the placement, where it is clear whose
// container is being admitted. It makes the kubelet's own records easier to read, and nothing depends on it.
func (a *Agent) Prefer(ctx context.Context, available, must []string, n int) []string {
	ctx, cancel := context.WithTimeout(ctx, advice)
	defer cancel()
	var wanted []string
	if pods, err := a.Pods.Peek(ctx); err == nil {
		wanted = a.wanted(pods, n)
	}
	return ticket.Prefer(available, must, a.numbers(wanted), n)
}

// wanted is the slices of the one container of that size that has no tickets yet; nothing where there are several with
// different slices.
func (a *Agent) wanted(pods []*v1.Pod, n int) (wanted []string) {
	for _, pod := range pods {
		if kubelet.Ended(pod) || a.Records.Read(pod.UID) {
			continue
		}
		placement, present, err := kube.PlacementOf(pod)
		if !present || err != nil {
			continue
		}
		for _, c := range placement.Containers {
			var of []string
			for _, v := range c.VGPUs {
				of = append(of, v.Slice)
			}
			switch {
			case len(of) != n:
			case wanted != nil && !slices.Equal(wanted, of):
				return nil
			default:
				wanted = of
			}
		}
	}
	return wanted
}

// numbers gives the places of slices in the inventory; none while the agent is busy.
func (a *Agent) numbers(wanted []string) (numbers []int) {
	if !a.mu.TryLock() {
		return nil
	}
	defer a.mu.Unlock()
	for _, id := range wanted {
		numbers = append(numbers, slices.IndexFunc(a.inventory.Slices(), func(s inventory.Slice) bool { return s.ID == id }))
	}
	return numbers
}
