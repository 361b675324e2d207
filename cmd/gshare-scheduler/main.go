// Command gshare-scheduler is kube-scheduler with gshare's packing plugins.
package main

import (
	"context"
	"os"

	"github.com/spf13/cobra"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // client metrics, as in kube-scheduler
	_ "k8s.io/component-base/metrics/prometheus/version"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"

	"github.com/gshare-dev/gshare/cmd/internal/features"
	"github.com/gshare-dev/gshare/cmd/internal/release"
	"github.com/gshare-dev/gshare/plugins"
	"github.com/gshare-dev/gshare/plugins/skew"
)

func main() {
	go announce()
	cmd := command()
	cmd.SetArgs(skew.Arguments(os.Args[1:]))
	os.Exit(cli.Run(cmd))
}

func init() { utilruntime.Must(features.AddTo(utilfeature.DefaultMutableFeatureGate)) }

// command returns kube-scheduler's command with gshare's plugins registered.
func command() *cobra.Command {
	var options []app.Option
	for name, factory := range plugins.All() {
		options = append(options, app.WithPlugin(name, factory))
	}
	cmd := app.NewSchedulerCommand(options...)
	cmd.Use = "gshare-scheduler"
	cmd.Long = "gshare-scheduler is kube-scheduler with gshare's packing plugins. It has the flags and the configuration file of\n" +
		"kube-scheduler. Pods select one of the file's profiles by spec.schedulerName."
	return cmd
}

// announce writes the scheduler's version to the annotations of its own pod. It does nothing if the scheduler does not run in a pod.
func announce() {
	config, err := rest.InClusterConfig()
	if err != nil {
		return // not in a pod
	}
	client, err := kubernetes.NewForConfig(config)
	if err == nil {
		err = release.Announce(context.Background(), client, "status") // kube-scheduler's role allows patches of the status only
	}
	if err != nil {
		klog.Background().Error(err, "failed to announce version")
	}
}
