// Command gshare-scheduler is kube-scheduler with gshare's packing plugins.
package main

import (
	"os"

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // client metrics, as in kube-scheduler
	_ "k8s.io/component-base/metrics/prometheus/version"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"

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
	os.Exit(cli.Run(cmd))
}
