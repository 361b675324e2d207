// Command hyperkube contains every Kubernetes program of the test cluster in one binary: "hyperkube kubelet --config F" runs the
// kubelet. Linking once instead of five times saves minutes and half a gigabyte, since what the programs have in common is compiled and
// stored once. etcd is embedded in the same way, and the scheduler is gshare's. If the binary is called by the name of one of its
// programs, as in an image, it runs that program.
package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/embed"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // rest_client_* metrics, as in the real binaries
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"

	"github.com/gshare-dev/gshare/plugins/skew"
	"github.com/gshare-dev/gshare/test/controlplane/program"
)

// programs maps names of programs to the constructors of their commands. Only the command that is to run is constructed, since the
// construction registers flags and feature gates, which are global to a process.
var programs = map[string]func() *cobra.Command{
	"etcd":                    etcdCommand,
	"gshare-scheduler":        schedulerCommand,
	"kube-apiserver":          apiServerCommand,
	"kube-controller-manager": controllerManagerCommand,
	"kube-scheduler":          schedulerCommand,
	"kubectl":                 kubectlCommand,
	"kubelet":                 kubeletCommand,
}

func main() {
	program.RunIfChild()
	if name := filepath.Base(os.Args[0]); programs[name] != nil {
		command := programs[name]()
		if name == "gshare-scheduler" { // in a pod, with the arguments of cmd/gshare-scheduler
			command.SetArgs(skew.Arguments(os.Args[1:]))
		}
		os.Exit(cli.Run(command))
	}
	if len(os.Args) < 2 || programs[os.Args[1]] == nil {
		names := strings.Join(slices.Sorted(maps.Keys(programs)), ", ")
		fmt.Fprintln(os.Stderr, "hyperkube: the first argument has to be one of", names)
		os.Exit(2)
	}
	command := programs[os.Args[1]]()
	command.SetArgs(os.Args[2:])
	os.Exit(cli.Run(command))
}

func apiServerCommand() *cobra.Command { return apiserver.NewAPIServerCommand() }
func controllerManagerCommand() *cobra.Command {
	return controllermanager.NewControllerManagerCommand()
}
func kubeletCommand() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) }
func kubectlCommand() *cobra.Command { return kubectl.NewDefaultKubectlCommand() }

// schedulerCommand returns the command of kube-scheduler with gshare's plugins.
func schedulerCommand() *cobra.Command {
	return scheduler.NewSchedulerCommand(program.SchedulerOptions()...)
}

// etcdCommand returns a command that runs one etcd member until SIGTERM.
func etcdCommand() *cobra.Command {
	var dir, listen string
	command := &cobra.Command{
		Use:   "etcd",
		Args:  cobra.NoArgs,
		RunE:  func(*cobra.Command, []string) error { return runEtcd(dir, listen) },
		Short: "Run one etcd member until SIGTERM",
	}
	command.Flags().StringVar(&dir, "data-dir", "", "folder of the data")
	command.Flags().StringVar(&listen, "listen-client-url", "http://127.0.0.1:2379", "where to serve")
	return command
}

func runEtcd(dir, listen string) error {
	config, err := program.EtcdConfig("cluster", dir, listen, "stderr")
	if err != nil {
		return fmt.Errorf("configure etcd: %w", err)
	}
	etcd, err := embed.StartEtcd(config)
	if err != nil {
		return fmt.Errorf("start etcd: %w", err)
	}
	defer etcd.Close()
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	select {
	case <-stop:
		return nil
	case err := <-etcd.Err():
		return err
	}
}
