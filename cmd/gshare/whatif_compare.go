package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/gshare-dev/gshare/cmd/gshare/internal/live"
	"github.com/gshare-dev/gshare/vgpu/packing"
	"github.com/gshare-dev/gshare/vgpu/simulation/whatif"
)

// client finds the cluster as kubectl does; in a pod without a kubeconfig, that is the pod's own.
func (w *whatifRun) client() (kubernetes.Interface, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = w.kubeconfig
	overrides := &clientcmd.ConfigOverrides{CurrentContext: w.context}
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides).ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		return nil, errors.New("no kubeconfig: name one by --kubeconfig or $KUBECONFIG")
	}
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	return kubernetes.NewForConfig(config)
}

// comparison is what whatif prints.
type comparison struct {
	Assumed string       `json:"assumed"`
	Rows    []whatif.Row `json:"rows"`
	Total   whatif.Row   `json:"total"`
	Notes   []string     `json:"notes"`
}

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

func nameOf(r whatif.Row) string {
	model := cmp.Or(r.Model, "unknown model")
	if r.Pool == "" {
		return model
	}
	return r.Pool + ", " + model
}
