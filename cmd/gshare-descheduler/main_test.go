package main

import (
	"testing"

	"k8s.io/client-go/kubernetes/fake"
	"sigs.k8s.io/descheduler/pkg/descheduler"
	"sigs.k8s.io/descheduler/pkg/framework/pluginregistry"

	"github.com/gshare-dev/gshare/cmd/gshare-descheduler/internal/rebalancing"
)

// TestPolicy: the descheduler reads the policy of the manifests, with the plugin's arguments.
func TestPolicy(t *testing.T) {
	descheduler.SetupPlugins()
	rebalancing.Register(pluginregistry.PluginRegistry)
	policy, err := descheduler.LoadPolicyConfig("../../manifests/rebalance/policy.yaml", fake.NewClientset(), pluginregistry.PluginRegistry)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range policy.Profiles[0].PluginConfigs {
		if args, ok := c.Args.(*rebalancing.Args); ok && args.Rest.Minutes() == 30 && args.MovesPerGPU == 10 {
			return
		}
	}
	t.Errorf("%+v", policy.Profiles[0].PluginConfigs)
}
