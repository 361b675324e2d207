// Command gshare-lab is gshare's laboratory: a real Kubernetes control plane with simulated nodes, simulations of gshare's rules
// beside published policies, and the tables and figures made from them.
package main

import (
	"github.com/spf13/cobra"

	"github.com/gshare-dev/gshare/cmd/gshare-lab/internal/results"
	"github.com/gshare-dev/gshare/cmd/gshare-lab/internal/simulate"
	"github.com/gshare-dev/gshare/cmd/gshare-lab/internal/trial"
	"github.com/gshare-dev/gshare/cmd/internal/cli"
	"github.com/gshare-dev/gshare/test/controlplane/program"
)

func main() {
	program.Child()
	cli.Main(root())
}

func root() *cobra.Command {
	cmd := cli.Root(&cobra.Command{
		Use:   "gshare-lab",
		Short: "Try and measure gshare without a cluster or a GPU",
		Long: "gshare-lab demo, replay and bench start etcd, kube-apiserver and gshare-scheduler as child processes, fill them with\n" +
			"simulated nodes and pods, and check every placement. They need no root, no cluster and no GPU; Ctrl-C stops them and\n" +
			"removes what they wrote. simulate runs gshare's rules beside published policies; results regenerates or checks the\n" +
			"published tables and figures.",
	})
	cmd.AddCommand(trial.Commands()...)
	cmd.AddCommand(simulate.Command(), results.Command())
	return cmd
}
