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

// group is a list of commands that are used in one place. A command adds itself, beside its definition.
type group struct {
	title    string
	commands []func() *cobra.Command
}

func (g *group) add(command func() *cobra.Command) bool {
	g.commands = append(g.commands, command)
	return true
}

var (
	onMachine     = &group{title: "On a machine with gshare-node"}
	inCluster     = &group{title: "In a cluster with gshare"}
	inServing     = &group{title: "In a cluster with serving"}
	beforeSharing = &group{title: "Before you share"}
	toTest        = &group{title: "To test servers"}
)

// groups are all commands.
var groups = []*group{onMachine, inCluster, inServing, beforeSharing, toTest}

// root returns the command gshare with all its subcommands.
func root() *cobra.Command {
	cmd := cli.Root(&cobra.Command{Use: "gshare", Short: "Share GPUs between programs and pods", Version: release.Version(),
		Long: "gshare shares GPUs. Installed as kubectl-gshare, it is a kubectl plugin: kubectl gshare."})
	for _, g := range groups {
		cmd.AddGroup(&cobra.Group{ID: g.title, Title: g.title + ":"})
		for _, command := range g.commands {
			sub := command()
			sub.GroupID = g.title
			cmd.AddCommand(sub)
		}
	}
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
	switch strings.TrimSuffix(filepath.Base(program), ".exe") {
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
