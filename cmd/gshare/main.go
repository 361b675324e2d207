// Command gshare runs programs on shares of the machine's GPUs and inspects how a machine or a cluster shares its GPUs.
package main

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gshare-dev/gshare/cmd/internal/cli"
	"github.com/gshare-dev/gshare/cmd/internal/release"
)

func main() {
	cmd := root()
	setProgram(cmd, os.Args[0], os.Args[1:])
	cli.Main(cmd)
}

// group is a list of commands that are used in one place.
type group struct {
	where    string
	commands []*cobra.Command
}

// groups returns all commands. The command top occurs in two groups.
func groups() []group {
	return []group{
		{"On a machine with gshare-node", []*cobra.Command{runCommand(), serveCommand(), profileCommand(), setCommand(), stopCommand(), psCommand(), topCommand()}},
		{inCluster, []*cobra.Command{explainCommand(), mapCommand(), treeCommand(), topCommand(), doctorCommand(), versionCommand(), webCommand()}},
		{inServing, []*cobra.Command{functionCommand(), sloCommand()}},
		{"Before you share", []*cobra.Command{whatifCommand(), planCommand()}},
		{"To test servers", []*cobra.Command{loadCommand()}},
	}
}

// The groups of commands for administrators of a cluster.
const (
	inCluster = "In a cluster with gshare"
	inServing = "In a cluster with serving"
)

// root returns the command gshare with all its subcommands.
func root() *cobra.Command {
	cmd := cli.Root(&cobra.Command{Use: "gshare", Short: "Share GPUs between programs and pods", Version: release.Version()})
	long := "gshare shares GPUs.\n\n"
	added := map[string]bool{}
	for _, g := range groups() {
		var names []string
		for _, sub := range g.commands {
			names = append(names, sub.Name())
			if !added[sub.Name()] {
				cmd.AddCommand(sub)
			}
			added[sub.Name()] = true
		}
		long += g.where + ": " + strings.Join(names, ", ") + ".\n"
	}
	cmd.Long = long + "\nInstalled as kubectl-gshare, it is a kubectl plugin: kubectl gshare."
	return cmd
}

// pluginName is the name under which kubectl runs gshare as `kubectl gshare`; completeName is the one that it runs for shell
// completions. Both are installed as links to gshare.
const (
	pluginName   = "kubectl-gshare"
	completeName = "kubectl_complete-gshare"
)

// setProgram adapts the command's name, examples and defaults to the name under which the program was started: gshare or kubectl-gshare.
func setProgram(cmd *cobra.Command, program string, args []string) {
	switch filepath.Base(program) {
	case pluginName:
		cmd.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl gshare"}
		renameExamples(cmd)
		defaultToCluster(cmd)
	case completeName:
		cmd.SetArgs(append([]string{cobra.ShellCompRequestCmd}, args...))
	}
}

// renameExamples replaces gshare by kubectl gshare in the help examples of a command and its subcommands.
func renameExamples(cmd *cobra.Command) {
	cmd.Example = strings.ReplaceAll(cmd.Example, "  gshare ", "  kubectl gshare ")
	for _, sub := range cmd.Commands() {
		renameExamples(sub)
	}
}

// defaultToCluster makes --cluster the default of the commands that show either this machine or a cluster.
func defaultToCluster(cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		if f := sub.Flags().Lookup(clusterFlag); f != nil {
			_ = f.Value.Set("true") // never fails for a bool flag
			f.DefValue = "true"
		}
	}
}
