// Command gshare runs programs on shares of the machine's GPUs and inspects how a machine or a cluster shares its GPUs.
package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/gshare-dev/gshare/cmd/internal/cli"
)

func main() {
	cmd := root()
	setProgram(cmd, os.Args[0], os.Args[1:])
	cli.Main(cmd)
}

// root returns the command gshare with all its subcommands.
func root() *cobra.Command {
	cmd := cli.Root(&cobra.Command{
		Use:   "gshare",
		Short: "Share GPUs between programs and pods",
		Long: "gshare shares GPUs.\n\nOn a machine with gshare-node: run, set, ps, top.\nIn a cluster with gshare: explain, map, tree, top, doctor, version, web.\n" +
			"Before you share: whatif, plan.\n\nInstalled as kubectl-gshare, it is the plugin kubectl gshare.",
	})
	cmd.AddCommand(planCommand(), whatifCommand(), runCommand(), setCommand(), psCommand(), topCommand(),
		explainCommand(), mapCommand(), treeCommand(), doctorCommand(), versionCommand(), webCommand())
	return cmd
}
