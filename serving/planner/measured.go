package planner

import (
	"cmp"
	"context"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gshare-dev/gshare/serving/api/profileview"
	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/vgpu/kube"
)

// readMeasured returns the model of a plan as measured by a GPUProfile of one of its functions, which all serve the same model; nil if no profile is complete.
// A profile that is Stale counts only if there is no other, as it does for the function itself, and the notes say so. Its errors are those of the API server,
// and *problem.
func readMeasured(ctx context.Context, c client.Reader, plan *api.InferencePlan) (m *profileview.Measured, notes []string, err error) {
	list := &api.GPUProfileList{}
	if err := c.List(ctx, list, client.InNamespace(plan.Namespace)); err != nil {
		return nil, nil, err
	}
	best := profileview.Best(profilesOf(list.Items, plan.Spec.Functions))
	if best == nil {
		return nil, nil, nil
	}
	nodes := &v1.NodeList{}
	if err := c.List(ctx, nodes); err != nil {
		return nil, nil, err
	}
	if m, err = profileview.Fit(plan.Spec.Model, best, windowOf(nodes.Items, best.Status.Fingerprint)); err != nil {
		return nil, nil, problemf(api.ReasonInvalidData, "GPUProfile %s: %v", best.Name, err)
	}
	return m, m.Notes("GPUProfile " + best.Name), nil
}

// profilesOf returns the profiles of the functions.
func profilesOf(all []api.GPUProfile, functions []api.PlannedFunction) (found []*api.GPUProfile) {
	for i := range all {
		of := all[i].Spec.FunctionRef
		if of != nil && slices.ContainsFunc(functions, func(f api.PlannedFunction) bool { return f.Name == of.Name }) {
			found = append(found, &all[i])
		}
	}
	return found
}

// windowOf returns the longest window of the nodes with GPUs of the measured kind: with it, shares wait longest for their time.
func windowOf(nodes []v1.Node, measuredOn *api.ProfileFingerprint) time.Duration {
	longest := time.Duration(0)
	for i := range nodes {
		inventory, present, err := kube.InventoryOf(&nodes[i])
		if err != nil || !present {
			continue // the scheduler reports an inventory that cannot be read
		}
		if slices.ContainsFunc(inventory.Slices, func(s kube.Slice) bool { return measuredOn == nil || s.Model == measuredOn.Model }) {
			longest = max(longest, inventory.RulesOrDefault().Window.Duration)
		}
	}
	return cmp.Or(longest, kube.DefaultWindow)
}
