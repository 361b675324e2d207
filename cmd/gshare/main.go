// Command gshare runs programs on shares of this machine's GPUs, and shows what is shared on a machine or in a cluster.
package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/gshare-dev/gshare/cmd/internal/cli"
)

func main() {
	cmd := root()
	as(cmd, os.Args[0], os.Args[1:])
	cli.Main(cmd)
}

func root() *cobra.Command {
	cmd := cli.Root(&cobra.Command{
		Use:   "gshare",
		Short: "Share GPUs, and see what sharing does",
		Long: "gshare shares the GPUs of this machine (run, set, ps, top), looks at a cluster that gshare shares (explain, map, tree, top,\n" +
			"doctor, version), and says what sharing would do (whatif, plan). Linked to as kubectl-gshare it is kubectl gshare.",
	})
	cmd.AddCommand(planCommand(), whatifCommand(), runCommand(), setCommand(), psCommand(), topCommand(),
		explainCommand(), mapCommand(), treeCommand(), doctorCommand(), versionCommand(), webCommand())
	return cmd
}
