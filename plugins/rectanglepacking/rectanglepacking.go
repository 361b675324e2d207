// Package rectanglepacking is the scheduler plugin RectanglePacking. It packs shares as rectangles of quota x SMs, by the Maximal
// Rectangles algorithm of FaST-GShare with its errors corrected.
package rectanglepacking

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

// Name is the name of the RectanglePacking plugin in a scheduler configuration.
const Name = "RectanglePacking"

// New returns the factory of the RectanglePacking scheduler plugin. All plugins of a process share one ledger of assumed placements.
func New(l *ledger.Ledger) func(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) {
	return func(ctx context.Context, obj runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
		var args v1alpha1.RectanglePackingArgs
		if err := v1alpha1.Load(obj, &args); err != nil {
			return nil, fmt.Errorf("%s: %w", Name, err)
		}
		return sharing.New(ctx, sharing.Config{
			Name: Name, Model: packing.Rectangles, Args: args.SharingArgs, Ledger: l, Ranker: bestArea,
		}, handle)
	}
}

// bestArea returns a ranker by wasted area alone, as in the FaST-GShare paper. It does not depend on what pods typically request.
func bestArea(*packing.Demand) packing.Ranker { return packing.BestArea{} }
