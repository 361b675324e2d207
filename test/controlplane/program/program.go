// Package program contains the programs that the child processes of package controlplane run: etcd with kube-apiserver, and
// gshare-scheduler. It is separate from controlplane because it links Kubernetes, which a test that only starts a control plane need not
// do.
package program

import (
	"fmt"
	"io"
	"os"

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // rest_client_* metrics, as in the real binaries
	_ "k8s.io/component-base/metrics/prometheus/version"
	serverapp "k8s.io/kubernetes/cmd/kube-apiserver/app"
	schedulerapp "k8s.io/kubernetes/cmd/kube-scheduler/app"

	"github.com/gshare-dev/gshare/plugins"
	"github.com/gshare-dev/gshare/test/controlplane"
)

// RunIfChild runs the program of a control plane's child process and does not return, if the arguments say that this process is one. A main
// function that supports this calls it before anything else; control planes that the process starts then use its own binary for their
// children.
func RunIfChild() {
	if len(os.Args) < 3 || os.Args[1] != controlplane.ChildArgument {
		controlplane.UseOwnProgram()
		return
	}
	go exitWithParent()
	os.Exit(run(os.Args[2], os.Args[3:]))
}

func run(role string, args []string) int {
	switch role {
	case controlplane.RoleServer:
		return runServer(args)
	case controlplane.RoleScheduler:
		command := schedulerapp.NewSchedulerCommand(SchedulerOptions()...)
		command.SetArgs(args)
		return cli.Run(command)
	}
	fmt.Fprintf(os.Stderr, "unknown child role %q\n", role)
	return 2
}

// SchedulerOptions returns the options that add gshare's plugins to the kube-scheduler command.
func SchedulerOptions() []schedulerapp.Option {
	var options []schedulerapp.Option
	for name, factory := range plugins.All() {
		options = append(options, schedulerapp.WithPlugin(name, factory))
	}
	return options
}

// exitWithParent ends the process when its standard input ends. The parent holds the other end of that pipe and never writes to it, so it
// closes when the parent ends, however that happens. (Linux's parent death signal is tied to the parent's thread, not to its process.)
func exitWithParent() {
	_, _ = io.Copy(io.Discard, os.Stdin)
	os.Exit(1)
}

// runServer runs etcd and the API server in this process, and closes etcd last.
func runServer(args []string) int {
	etcd, err := startEtcd()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer etcd.Close()
	command := serverapp.NewAPIServerCommand()
	command.SetArgs(args)
	return cli.Run(command)
}
