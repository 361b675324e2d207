// Command gshare-scheduler is kube-scheduler with gshare's packing plugins, and with a page that shows what they have packed.
package main

import (
	"context"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // client metrics, as in kube-scheduler
	_ "k8s.io/component-base/metrics/prometheus/version"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"

	"github.com/gshare-dev/gshare/cmd/gshare-scheduler/internal/page"
	"github.com/gshare-dev/gshare/cmd/internal/release"
	"github.com/gshare-dev/gshare/plugins"
)

func main() {
	go announce()
	os.Exit(cli.Run(command()))
}

func command() *cobra.Command {
	var options []app.Option
	for name, factory := range plugins.All() {
		options = append(options, app.WithPlugin(name, factory))
	}
	cmd := app.NewSchedulerCommand(options...)
	cmd.Use = "gshare-scheduler"
	cmd.Long = "gshare-scheduler is kube-scheduler with gshare's packing plugins. Its configuration file names the profiles; pods choose\n" +
		"one by spec.schedulerName. All flags and files are those of kube-scheduler, and two more: --web-address serves a map of\n" +
		"what is packed on the GPUs, as HTTPS, to those who may get " + page.Path + "; --web-kubeconfig says how it reads the cluster,\n" +
		"where the process is not in it."
	withPage(cmd)
	return cmd
}

// withPage serves the page beside the scheduler, also while that is not the leader.
func withPage(cmd *cobra.Command) {
	var web page.Options
	web.AddTo(cmd.Flags())
	schedule := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		web.CertFile = cmd.Flag("tls-cert-file").Value.String()
		web.KeyFile = cmd.Flag("tls-private-key-file").Value.String()
		if web.Address != "" {
			if _, err := web.Start(cmd.Context()); err != nil {
				return err
			}
		}
		return schedule(cmd, args)
	}
}

// announce writes the version on the scheduler's pod, if it runs in one: by way of the status, which is all that a scheduler may patch
// of a pod.
func announce() {
	config, err := rest.InClusterConfig()
	if err != nil {
		return // not in a pod
	}
	client, err := kubernetes.NewForConfig(config)
	if err == nil {
		err = release.Announce(context.Background(), client, "status")
	}
	if err != nil {
		klog.Background().Error(err, "Telling the version")
	}
}
