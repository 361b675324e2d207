// Command gshare-lab runs experiments without a cluster or a GPU: a real Kubernetes control plane with simulated nodes, simulations of
// gshare's rules and of published policies, and the tables and figures of their results.
package main

import (
	"github.com/spf13/cobra"

	"github.com/gshare-dev/gshare/cmd/gshare-lab/internal/cut"
	"github.com/gshare-dev/gshare/cmd/gshare-lab/internal/results"
	"github.com/gshare-dev/gshare/cmd/gshare-lab/internal/simulate"
	"github.com/gshare-dev/gshare/cmd/gshare-lab/internal/sweep"
	"github.com/gshare-dev/gshare/cmd/gshare-lab/internal/trial"
	"github.com/gshare-dev/gshare/cmd/internal/cli"
	"github.com/gshare-dev/gshare/test/controlplane/program"
)

func main() {
	program.RunIfChild()
	cli.Main(root())
}

// root returns the command gshare-lab with all its subcommands.
func root() *cobra.Command {
	cmd := cli.Root(&cobra.Command{
		Use:   "gshare-lab",
		Short: "Try and measure gshare without a cluster or a GPU",
		Long: "demo, replay and bench start etcd, kube-apiserver and gshare-scheduler on this machine, with simulated nodes and pods, and\n" +
			"check every placement. simulate compares gshare's rules with published policies. cut cuts measured functions into stages.\n" +
			"sweep measures a model on fractions of the vCPUs of this machine.\n" +
			"results regenerates or checks the published tables and figures.\n\n" +
			"gshare-lab needs no root, no cluster and no GPU. Ctrl-C stops it and removes its files.",
	})
	cmd.AddCommand(trial.Commands()...)
	cmd.AddCommand(simulate.Command(), cut.Command(), sweep.Command(), results.Command())
	return cmd
}
