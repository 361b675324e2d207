package main

import (
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
)

// kubectl runs a program of the first name as `kubectl gshare`, and asks one of the second for completions. Both are links to
// gshare.
const (
	pluginName   = "kubectl-gshare"
	completeName = "kubectl_complete-gshare"
)

// as makes the command speak of itself by the name under which it was run.
func as(cmd *cobra.Command, program string, args []string) {
	switch filepath.Base(program) {
	case pluginName:
		cmd.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl gshare"}
		renameExamples(cmd)
		lookAtCluster(cmd)
	case completeName:
		cmd.SetArgs(append([]string{cobra.ShellCompRequestCmd}, args...))
	}
}

func renameExamples(cmd *cobra.Command) {
	cmd.Example = strings.ReplaceAll(cmd.Example, "  gshare ", "  kubectl gshare ")
	for _, sub := range cmd.Commands() {
		renameExamples(sub)
	}
}

// lookAtCluster makes commands that could also look at this machine look at the cluster.
func lookAtCluster(cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		if f := sub.Flags().Lookup(clusterFlag); f != nil {
			_ = f.Value.Set("true") // a Bool takes it
			f.DefValue = "true"
		}
	}
}
