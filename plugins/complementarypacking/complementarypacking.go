// Package complementarypacking is the scheduler plugin ComplementaryPacking. Of the slices that the slot model admits, it prefers those
// with similar workloads and then those whose SMs and memory the pod fills best (Dilu's resource-complementary scheduling).
package complementarypacking

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/gshare-dev/gshare/plugins/ledger"
	"github.com/gshare-dev/gshare/plugins/sharing"
	"github.com/gshare-dev/gshare/vgpu/api/config/v1alpha1"
	"github.com/gshare-dev/gshare/vgpu/packing"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Name is the name of the ComplementaryPacking plugin in a scheduler configuration.
const Name = "ComplementaryPacking"

// New returns the factory of the ComplementaryPacking scheduler plugin. All plugins of a process share one ledger of assumed placements.
func New(l *ledger.Ledger) func(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) {
	return func(ctx context.Context, obj runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
		var args v1alpha1.ComplementaryPackingArgs
		if err := v1alpha1.Load(obj, &args); err != nil {
			return nil, fmt.Errorf("%s: %w", Name, err)
		}
		return sharing.New(ctx, sharing.Config{
			Name: Name, Model: packing.Slots, Args: args.SharingArgs, Ledger: l, Ranker: ranker(args), Affinity: true,
		}, handle)
	}
}

// ranker returns a function that creates a node ranker with the weights of the plugin's arguments. The function ignores its argument, the
// mix of pods in the cluster.
func ranker(args v1alpha1.ComplementaryPackingArgs) func(*packing.Demand) packing.Ranker {
	weights := packing.Complementary{
		Alpha: share.PerMille(*args.AlphaPercent) * 10, Beta: share.PerMille(*args.BetaPercent) * 10,
	}
	return func(*packing.Demand) packing.Ranker { return weights }
}
