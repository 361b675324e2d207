// Command gshare-descheduler is the Kubernetes descheduler with one additional plugin, GPURebalance, which moves pods so that whole GPUs become
// free or a waiting pod fits. Its flags, policies and metrics are those of the descheduler.
package main

import (
	"os"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	"sigs.k8s.io/descheduler/cmd/descheduler/app"
	"sigs.k8s.io/descheduler/pkg/framework/pluginregistry"

	"github.com/gshare-dev/gshare/cmd/gshare-descheduler/internal/rebalancing"
)

func main() {
	os.Exit(cli.Run(command()))
}

// command returns the descheduler's command, which registers its own plugins in PreRunE. GPURebalance is registered right after them.
func command() *cobra.Command {
	cmd := app.NewDeschedulerCommand(os.Stdout)
	before := cmd.PreRunE
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		if err := before(cmd, args); err != nil {
			return err
		}
		rebalancing.Register(pluginregistry.PluginRegistry)
		return nil
	}
	return cmd
}
