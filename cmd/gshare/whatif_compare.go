package main

import (
	"cmp"
	"context"

	"k8s.io/client-go/kubernetes"

	"github.com/gshare-dev/gshare/cmd/gshare/internal/live"
	"github.com/gshare-dev/gshare/vgpu/packing"
	"github.com/gshare-dev/gshare/vgpu/whatif"
)

// comparison is the output of gshare whatif: for each node pool and GPU model, the GPUs in use today and those needed with gshare.
type comparison struct {
	Assumed string       `json:"assumed"`
	Rows    []whatif.Row `json:"rows"`
	Total   whatif.Row   `json:"total"`
	Notes   []string     `json:"notes"`
}

// compare reads the cluster, packs its pods as gshare would, and returns the comparison.
func (w *whatifRun) compare(ctx context.Context, client kubernetes.Interface) (*comparison, error) {
	cluster, err := live.Read(ctx, client, w.options)
	if err != nil {
		return nil, err
	}
	rules := packing.NewRules(packing.Slots)
	rules.MixTenants = w.mixTenants
	c := &comparison{Assumed: w.options.Assume.String(), Notes: cluster.Notes}
	c.Rows = whatif.Compare(cluster.Nodes, cluster.Pods, rules)
	c.Total = whatif.Total(c.Rows)
	return c, nil
}

// rowName returns the name of a row of the comparison, from its node pool and its GPU model.
func rowName(r whatif.Row) string {
	model := cmp.Or(r.Model, "unknown model")
	if r.Pool == "" {
		return model
	}
	return r.Pool + ", " + model
}
