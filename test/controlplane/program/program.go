// Package program is what the child processes of package controlplane run: etcd with kube-apiserver, and gshare-scheduler. It is apart
// from controlplane because it links Kubernetes, which a test that only starts a control plane need not do.
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

// Child runs this process as a child of a control plane and does not return, if the arguments say that it is one. A main that can be
// a child calls it before anything else; control planes that the process starts then use it as their program.
func Child() {
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

// SchedulerOptions returns kube-scheduler's options for gshare's plugins.
func SchedulerOptions() []schedulerapp.Option {
	var options []schedulerapp.Option
	for name, factory := range plugins.All() {
		options = append(options, schedulerapp.WithPlugin(name, factory))
	}
	return options
}

// exitWithParent ends the process when its standard input ends. The parent holds the other end of that pipe and never writes to it,
// so it ends when the parent does, however that dies. (Linux's parent death signal is tied to the parent's thread, not to its process.)
func exitWithParent() {
	_, _ = io.Copy(io.Discard, os.Stdin)
	os.Exit(1)
}

// runServer runs etcd and the API server in this process. etcd is closed last.
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
