package main

import (
	"os"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	apps "k8s.io/api/apps/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/component-base/featuregate"
	"sigs.k8s.io/descheduler/cmd/descheduler/app/options"
	"sigs.k8s.io/descheduler/pkg/descheduler"
	own "sigs.k8s.io/descheduler/pkg/features"
	frameworkfake "sigs.k8s.io/descheduler/pkg/framework/fake"
	"sigs.k8s.io/descheduler/pkg/framework/pluginregistry"
	"sigs.k8s.io/yaml"

	"github.com/gshare-dev/gshare/cmd/gshare-descheduler/internal/rebalancing"
	"github.com/gshare-dev/gshare/cmd/internal/features"
)

// TestPolicy: the descheduler reads the policy of the manifests, with the plugin's arguments.
func TestPolicy(t *testing.T) {
	descheduler.SetupPlugins()
	rebalancing.Register(pluginregistry.PluginRegistry, refuse)
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

// TestFeature: a policy with the plugin is refused until the arguments turn its feature on, as those of the manifests do.
func TestFeature(t *testing.T) {
	t.Cleanup(func() { own.DefaultMutableFeatureGate = featuregate.NewFeatureGate() })
	for name, test := range map[string]struct {
		args []string
		want string // in the error; empty for none
	}{
		"by default": {nil, "plugin GPURebalance: the feature GPURebalance is Alpha and off: start gshare-descheduler with --feature-gates=GPURebalance=true"},
		"on":         {[]string{"--feature-gates=GPURebalance=true"}, ""},
		"manifests":  {arguments(t), ""},
		"unknown":    {[]string{"--feature-gates=GPURebalanced=true"}, "unrecognized feature gate: GPURebalanced"},
	} {
		t.Run(name, func(t *testing.T) {
			own.DefaultMutableFeatureGate = featuregate.NewFeatureGate()
			if err := features.AddTo(own.DefaultMutableFeatureGate); err != nil {
				t.Fatal(err)
			}
			server, err := options.NewDeschedulerServer()
			if err != nil {
				t.Fatal(err)
			}
			flags := pflag.NewFlagSet("", pflag.ContinueOnError)
			server.AddFlags(flags)
			if err := flags.Parse(test.args); err != nil {
				t.Fatal(err)
			}
			server.SecureServing.BindPort = 0
			registry := pluginregistry.NewRegistry()
			rebalancing.Register(registry, refuse)
			err = server.Apply()
			if err == nil {
				_, err = registry[rebalancing.Name].PluginBuilder(t.Context(), &rebalancing.Args{}, &frameworkfake.HandleImpl{
					SharedInformerFactoryImpl: informers.NewSharedInformerFactory(fake.NewClientset(), 0)})
			}
			if (err != nil) != (test.want != "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, want %s", err, test.want)
			}
		})
	}
}

// arguments returns those of the descheduler in the manifests.
func arguments(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile("../../manifests/rebalance/deployment.yaml")
	if err != nil {
		t.Fatal(err)
	}
	d := &apps.Deployment{}
	if err := yaml.Unmarshal(text, d); err != nil {
		t.Fatal(err)
	}
	return d.Spec.Template.Spec.Containers[0].Args
}
