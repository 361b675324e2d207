package cluster_test

import (
	"context"
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gshare-dev/gshare/draplugin"
	"github.com/gshare-dev/gshare/node/grant"
	"github.com/gshare-dev/gshare/test/cluster"
	"github.com/gshare-dev/gshare/test/cluster/machine"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// restartsWithClaims kills each program other than the agent while one pod with a claim runs and another one starts. The first must keep running, and
// the second must get its share.
func (a *agents) restartsWithClaims(t *testing.T, node *cluster.Node) {
	for _, test := range []struct {
		name     string
		programs func() []*machine.Process
		agent    bool
	}{
		{"kubelet", func() []*machine.Process { return []*machine.Process{node.Kubelet} }, false},
		{"containerd", func() []*machine.Process { return []*machine.Process{node.Containerd} }, false},
		{"scheduler", func() []*machine.Process { return []*machine.Process{a.Scheduler} }, false},
		{"controller manager", func() []*machine.Process { return []*machine.Process{a.ControllerManager} }, false},
		{"kubelet and agent", func() []*machine.Process { return []*machine.Process{node.Kubelet} }, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			ctx := testContext(t)
			a.create(ctx, t, withClaim("resident", "quarter"))
			resident := a.hasClaim(ctx, t, "resident", 24, 16<<30)
			if test.agent {
				a.of[node.Name].Kill()
			}
			for _, p := range test.programs() {
				p.Kill()
			}
			a.create(ctx, t, withClaim("arrival", "rest"))
			for _, p := range test.programs() {
				if err := p.Restart(ctx); err != nil {
					t.Fatal(err)
				}
			}
			if test.agent {
				a.of[node.Name].start(ctx, t)
			}
			arrival := a.hasClaim(ctx, t, "arrival", 76, 64<<30)
			a.goesOn(ctx, t, resident)
			a.waitDevices(ctx, t, "gpu-1") // a starting kubelet deletes the ResourceSlices of its node
			a.waitBooks(ctx, t, node)
			a.endClaims(ctx, t, node, resident, arrival)
		})
	}
	t.Run("pods end while the kubelet is away", func(t *testing.T) {
		ctx := testContext(t)
		a.create(ctx, t, withClaim("resident", "quarter"))
		resident := a.hasClaim(ctx, t, "resident", 24, 16<<30)
		node.Kubelet.Kill()
		arrival := withClaim("arrival", "rest")
		a.create(ctx, t, arrival)
		a.leave(ctx, t, []*v1.Pod{resident, arrival})
		if err := node.Kubelet.Restart(ctx); err != nil {
			t.Fatal(err)
		}
		a.endClaims(ctx, t, node)
	})
}

// rebootWithClaims reboots the node. Its pod with a claim gets its share again, although no grant survives a reboot, and so does a pod that was
// created meanwhile.
func (a *agents) rebootWithClaims(ctx context.Context, t *testing.T, node *cluster.Node) {
	a.create(ctx, t, withClaim("resident", "quarter"))
	before := a.hasClaim(ctx, t, "resident", 24, 16<<30)
	a.of[node.Name].Kill()
	a.create(ctx, t, withClaim("arrival", "rest"))
	if err := node.Reboot(ctx); err != nil {
		t.Fatal(err)
	}
	a.of[node.Name].start(ctx, t)
	_, err := a.WaitPod(ctx, "resident", func(p *v1.Pod) bool {
		return cluster.IsRunning(p) && p.Status.ContainerStatuses[0].ContainerID != before.Status.ContainerStatuses[0].ContainerID
	})
	if err != nil {
		t.Fatal(err)
	}
	resident := a.hasClaim(ctx, t, "resident", 24, 16<<30)
	arrival := a.hasClaim(ctx, t, "arrival", 76, 64<<30)
	a.waitBooks(ctx, t, node)
	a.endClaims(ctx, t, node, resident, arrival)
}

// checkClaimBooks compares the grants through resource claims on a node with the scheduler's allocations: each started pod has its own share, and no
// claim has two grants.
func (a *agents) checkClaimBooks(ctx context.Context, node *cluster.Node, grants []grant.Grant) error {
	claims, err := a.Client().ResourceV1().ResourceClaims("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	byUID := map[types.UID]*resourceapi.ResourceClaim{}
	for i := range claims.Items {
		byUID[claims.Items[i].UID] = &claims.Items[i]
	}
	sm := map[string]share.PerMille{}
	pods := map[types.UID]string{}
	for _, g := range grants {
		if !g.ByClaim() {
			continue
		}
		claim := byUID[g.ResourceClaim.UID]
		if claim == nil {
			return fmt.Errorf("%s is granted a claim that is gone", g.Name)
		}
		parts, err := draplugin.Parts(claim, node.Name)
		if err != nil {
			return fmt.Errorf("claim %s: %w", claim.Name, err)
		}
		for i, v := range g.VGPUs {
			if draplugin.DeviceName(v.Slice) != parts[i].Device || v.Share.SMLimit != parts[i].SM || v.Share.Memory != parts[i].Memory {
				return fmt.Errorf("%s: granted %+v, allocated %+v", g.Name, v, parts[i])
			}
			if sm[v.Slice] += v.Share.SMLimit; sm[v.Slice] > share.Whole {
				return fmt.Errorf("slice %s: %d per mille of the SMs are granted", v.Slice, sm[v.Slice])
			}
		}
		if other := pods[g.ResourceClaim.UID]; other != "" {
			return fmt.Errorf("one claim is granted to %s and %s", other, g.Name)
		}
		pods[g.ResourceClaim.UID] = g.Name
	}
	for uid, claim := range byUID {
		if started := len(claim.Status.Devices) > 0; started && pods[uid] == "" {
			return fmt.Errorf("claim %s has a device status, and no grant", claim.Name)
		}
	}
	return nil
}
