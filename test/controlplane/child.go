package controlplane

import (
	"fmt"
	"io"
	"os"

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // rest_client_* metrics, as in the real binaries
	_ "k8s.io/component-base/metrics/prometheus/version"
	schedulerapp "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

// A child's command line is: program childArgument role flags...
const (
	childArgument = "__gshare-child"
	roleServer    = "kube-apiserver"
	roleScheduler = "kube-scheduler"
)

// Child runs the process as one of the control plane's children, and then never returns, if its
// arguments say so. The binary that calls Start is run again for every child, so main and TestMain
// call Child before anything else. Schedulers get the given options, usually the out-of-tree
// plugins (app.WithPlugin).
func Child(options ...schedulerapp.Option) {
	if !isChild() {
		return
	}
	go exitWithParent()
	os.Exit(runChild(os.Args[2], os.Args[3:], options))
}

func isChild() bool { return len(os.Args) > 2 && os.Args[1] == childArgument }

func runChild(role string, args []string, options []schedulerapp.Option) int {
	switch role {
	case roleServer:
		return runServer(args)
	case roleScheduler:
		command := schedulerapp.NewSchedulerCommand(options...)
		command.SetArgs(args)
		return cli.Run(command)
	}
	fmt.Fprintf(os.Stderr, "unknown child role %q\n", role)
	return 2
}

// exitWithParent ends the process when its standard input ends. The parent holds the other end of
// that pipe and never writes to it, so it ends when the parent does, however that dies. (Linux's
// parent death signal is tied to the parent's thread, not to its process.)
func exitWithParent() {
	_, _ = io.Copy(io.Discard, os.Stdin)
	os.Exit(1)
}
