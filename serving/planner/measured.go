package planner

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	api "github.com/gshare-dev/gshare/vgpu/api/serving/v1alpha1"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/profile"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// measured is a model as a GPUProfile of one of a plan's functions has measured it.
type measured struct {
	model profile.Model
	notes []string
}

// largestError is the mean error of a curve against what it was fitted to above which a plan says so.
const largestError = 0.1

// readMeasured returns the model of a plan as a GPUProfile of its functions has measured it, which all serve the same model; nil if none is complete. One
// that is Stale counts where there is no other, as it does for the function itself, and the notes say so.
func readMeasured(ctx context.Context, c client.Reader, plan *api.InferencePlan) (*measured, error) {
	list := &api.GPUProfileList{}
	if err := c.List(ctx, list, client.InNamespace(plan.Namespace)); err != nil {
		return nil, err
	}
	best := bestOf(list.Items, plan.Spec.Functions)
	if best == nil {
		return nil, nil
	}
	nodes := &v1.NodeList{}
	if err := c.List(ctx, nodes); err != nil {
		return nil, err
	}
	return fit(plan.Spec.Model, best, windowOf(nodes.Items, best.Status.Fingerprint))
}

// bestOf returns the profile of the functions with the most trials, of those that are not Stale if there are any; nil if none is complete.
func bestOf(all []api.GPUProfile, functions []api.PlannedFunction) *api.GPUProfile {
	var found []*api.GPUProfile
	for i := range all {
		p := &all[i]
		isOurs := p.Spec.FunctionRef != nil && slices.ContainsFunc(functions, func(f api.PlannedFunction) bool { return f.Name == p.Spec.FunctionRef.Name })
		if isOurs && p.DeletionTimestamp == nil && p.Status.Recommended != nil && meta.IsStatusConditionTrue(p.Status.Conditions, api.ConditionComplete) {
			found = append(found, p)
		}
	}
	if len(found) == 0 {
		return nil
	}
	return slices.MinFunc(found, func(a, b *api.GPUProfile) int {
		if isStale(a) != isStale(b) {
			if isStale(b) {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(len(b.Status.Points), len(a.Status.Points)), cmp.Compare(a.Name, b.Name))
	})
}

func isStale(p *api.GPUProfile) bool {
	return meta.IsStatusConditionTrue(p.Status.Conditions, api.ConditionStale)
}

// windowOf returns the longest window of the nodes with such GPUs, in which shares get their time the latest.
func windowOf(nodes []v1.Node, measuredOn *api.ProfileFingerprint) time.Duration {
	longest := time.Duration(0)
	for i := range nodes {
		inventory, present, err := kube.InventoryOf(&nodes[i])
		if err != nil || !present {
			continue // the scheduler reports it
		}
		if slices.ContainsFunc(inventory.Slices, func(s kube.Slice) bool { return measuredOn == nil || s.Model == measuredOn.Model }) {
			longest = max(longest, inventory.Window())
		}
	}
	return cmp.Or(longest, kube.DefaultWindow)
}

// fit returns the model as a profile has measured it, with the memory that it recommends. Its errors are *problem.
func fit(model string, p *api.GPUProfile, window time.Duration) (*measured, error) {
	var points []profile.Point
	for _, m := range p.Status.Points {
		if m.Failed != "" || m.MeanMicroseconds == 0 {
			continue
		}
		points = append(points, profile.Point{
			Model: model, Resource: profile.Resource{SM: share.PerMille(10 * m.SM), Quota: share.PerMille(10 * m.Quota)}, Batch: m.Batch,
			Mean: time.Duration(m.MeanMicroseconds) * time.Microsecond, P99: time.Duration(m.P99Microseconds) * time.Microsecond,
		})
	}
	memory, err := resource.ParseQuantity(string(p.Status.Recommended.Memory))
	if err != nil {
		return nil, problemf(api.ReasonInvalidData, "GPUProfile %s: status.recommended.memory: %v", p.Name, err)
	}
	shares, worst, err := profile.FitShare(points, p.Status.Recommended.MaxBatch, profile.Seconds(window.Seconds()), share.Bytes(memory.Value()))
	if err != nil {
		return nil, problemf(api.ReasonInvalidData, "GPUProfile %s: %v", p.Name, err)
	}
	m := &measured{model: profile.Model{Name: model, Share: shares}}
	on := ""
	if f := p.Status.Fingerprint; f != nil {
		on = " on " + f.Model
	}
	m.notes = append(m.notes, fmt.Sprintf("the latencies are those of GPUProfile %s%s, for batches of up to %d", p.Name, on, shares.MaxBatch))
	if c := meta.FindStatusCondition(p.Status.Conditions, api.ConditionStale); isStale(p) {
		m.notes = append(m.notes, fmt.Sprintf("GPUProfile %s is Stale: %s", p.Name, c.Message))
	}
	if worst > largestError {
		m.notes = append(m.notes, fmt.Sprintf("GPUProfile %s: the latencies are no line over the batch, from which they are %.0f%% away", p.Name, 100*worst))
	}
	return m, nil
}
