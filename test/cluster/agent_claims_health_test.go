package cluster_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gshare-dev/gshare/test/cluster"
)

// deviceFails: a device that fails gets a taint and no new claims until it works again. The pod on it keeps running, and the kubelet reports the
// device's health in the pod's status.
func (a *agents) deviceFails(ctx context.Context, t *testing.T, node *cluster.Node) {
	a.create(ctx, t, withClaim("resident", "quarter"))
	resident := a.hasClaim(ctx, t, "resident", 24, 16<<30)
	a.waitHealth(ctx, t, resident, v1.ResourceHealthStatusHealthy, "")

	failed := strings.Replace(twoGPUs, "{uuid: GPU-1,", `{uuid: GPU-1, fault: "Xid 79",`, 1)
	a.of[node.Name].setDevices(t, failed)
	a.waitDevices(ctx, t, "gpu-1 gshare.dev/fault")
	a.waitHealth(ctx, t, resident, v1.ResourceHealthStatusUnhealthy, "Xid 79")
	a.create(ctx, t, withClaim("late", "quarter"))
	a.waitUnschedulable(ctx, t, "late")
	a.goesOn(ctx, t, resident)

	a.of[node.Name].setDevices(t, twoGPUs)
	a.waitDevices(ctx, t, "gpu-1")
	late := a.hasClaim(ctx, t, "late", 24, 16<<30)
	a.waitHealth(ctx, t, resident, v1.ResourceHealthStatusHealthy, "")
	a.goesOn(ctx, t, resident)
	a.waitBooks(ctx, t, node)
	a.endClaims(ctx, t, node, resident, late)
}

// deviceIsCordoned: a device that is cordoned in the agent's configuration gets no new claims until it is uncordoned. It stays healthy, and the pod on
// it keeps running.
func (a *agents) deviceIsCordoned(ctx context.Context, t *testing.T, node *cluster.Node) {
	a.create(ctx, t, withClaim("resident", "quarter"))
	resident := a.hasClaim(ctx, t, "resident", 24, 16<<30)
	undo := a.of[node.Name].configure(ctx, t, "  cordon: [GPU-1]\n")
	a.waitDevices(ctx, t, "gpu-1 gshare.dev/cordoned")
	a.waitHealth(ctx, t, resident, v1.ResourceHealthStatusHealthy, "")
	a.create(ctx, t, withClaim("late", "quarter"))
	a.waitUnschedulable(ctx, t, "late")
	undo()
	a.waitDevices(ctx, t, "gpu-1")
	late := a.hasClaim(ctx, t, "late", 24, 16<<30)
	a.goesOn(ctx, t, resident)
	a.endClaims(ctx, t, node, resident, late)
}

// endClaims deletes pods and waits until their claims are gone.
func (a *agents) endClaims(ctx context.Context, t *testing.T, node *cluster.Node, pods ...*v1.Pod) {
	t.Helper()
	a.leave(ctx, t, pods)
	a.waitGrants(ctx, t, node, 0)
	a.waitNoClaims(ctx, t)
}

// waitHealth waits until the kubelet has written the device's health to the pod's status.
func (a *agents) waitHealth(ctx context.Context, t *testing.T, pod *v1.Pod, health v1.ResourceHealthStatus, message string) {
	t.Helper()
	poll(ctx, t, func() string {
		now, err := a.Client().CoreV1().Pods("default").Get(ctx, pod.Name, metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		statuses := now.Status.ContainerStatuses[0].AllocatedResourcesStatus
		for _, s := range statuses {
			for _, r := range s.Resources {
				says := ""
				if r.Message != nil {
					says = *r.Message
				}
				if s.Name == "claim:gpu" && r.Health == health && says == message {
					return ""
				}
			}
		}
		return fmt.Sprintf("the resources of %s are %+v, want %s %q", pod.Name, statuses, health, message)
	})
}
