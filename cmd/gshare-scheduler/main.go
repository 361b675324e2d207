// Command gshare-scheduler is kube-scheduler with gshare's packing plugins.
package main

import (
	"context"
	"os"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // client metrics, as in kube-scheduler
	_ "k8s.io/component-base/metrics/prometheus/version"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"

	"github.com/gshare-dev/gshare/cmd/internal/release"
	"github.com/gshare-dev/gshare/plugins"
)

func main() {
	var options []app.Option
	for name, factory := range plugins.All() {
		options = append(options, app.WithPlugin(name, factory))
	}
	cmd := app.NewSchedulerCommand(options...)
	cmd.Use = "gshare-scheduler"
	cmd.Long = "gshare-scheduler is kube-scheduler with gshare's packing plugins. Its configuration file names the profiles; pods choose\n" +
		"one by spec.schedulerName. All flags and files are those of kube-scheduler."
	go announce()
	os.Exit(cli.Run(cmd))
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
