// Command gshare-descheduler is the Kubernetes descheduler with one additional plugin, GPURebalance, which moves pods so that whole GPUs become
// free or a waiting pod fits. Its flags, policies and metrics are those of the descheduler.
package main

import (
	"os"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/component-base/cli"
	"sigs.k8s.io/descheduler/cmd/descheduler/app"
	own "sigs.k8s.io/descheduler/pkg/features"
	"sigs.k8s.io/descheduler/pkg/framework/pluginregistry"

	"github.com/gshare-dev/gshare/cmd/gshare-descheduler/internal/rebalancing"
	"github.com/gshare-dev/gshare/cmd/internal/features"
)

func main() {
	os.Exit(cli.Run(command()))
}

func init() { runtime.Must(features.AddTo(own.DefaultMutableFeatureGate)) }

// refuse returns an error if the feature that GPURebalance is part of is off.
func refuse() error {
	return features.Of("gshare-descheduler", own.DefaultMutableFeatureGate).Refuse(features.GPURebalance, "plugin "+rebalancing.Name)
}

// command returns the descheduler's command, which registers its own plugins in PreRunE. GPURebalance is registered right after them.
func command() *cobra.Command {
	cmd := app.NewDeschedulerCommand(os.Stdout)
	before := cmd.PreRunE
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		if err := before(cmd, args); err != nil {
			return err
		}
		rebalancing.Register(pluginregistry.PluginRegistry, refuse)
		return nil
	}
	return cmd
}
