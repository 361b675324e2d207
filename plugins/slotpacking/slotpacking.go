// Package slotpacking is the scheduler plugin SlotPacking: SMs are counted, time is split, and a set of shares fits exactly
// when its configuration LP fits the window. It is the default.
package slotpacking

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/gshare-dev/gshare/plugins/ledger"
	"github.com/gshare-dev/gshare/plugins/sharing"
	"github.com/gshare-dev/gshare/vgpu/api/config/v1alpha1"
	"github.com/gshare-dev/gshare/vgpu/packing"
)

// Name is the name of the SlotPacking plugin in a scheduler configuration.
const Name = "SlotPacking"

// New returns the factory of the SlotPacking scheduler plugin. All plugins of a process share one ledger of assumed placements.
func New(l *ledger.Ledger) func(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) {
	return func(ctx context.Context, obj runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
		var args v1alpha1.SlotPackingArgs
		if err := v1alpha1.Load(obj, &args); err != nil {
			return nil, fmt.Errorf("%s: %w", Name, err)
		}
		return sharing.New(ctx, sharing.Config{
			Name: Name, Model: packing.Slots, Args: args.SharingArgs, Ledger: l, Ranker: ranker(terms(args.Balance)),
		}, handle)
	}
}

// terms returns the weights of the node ranking.
func terms(b v1alpha1.BalanceArgs) packing.Terms {
	return packing.Terms{
		Fragmentation: *b.Fragmentation, Stranding: *b.Stranding, CPUShortage: *b.CPUShortage, Scarcity: *b.Scarcity,
	}
}

func ranker(t packing.Terms) func(*packing.Demand) packing.Ranker {
	return func(d *packing.Demand) packing.Ranker { return packing.Balance{Terms: t, Demand: d} }
}
