// Command kubernetes contains every program of a kind node in one binary and runs the one whose name it is called by: kubeadm, kubelet and
// kubectl on the node, and the programs of the system pods. Linking once instead of nine times saves minutes and a gigabyte, and one image
// serves all of those pods.
//
// The C library is linked statically, so that the image needs none; Go therefore resolves host names itself.
//
//go:debug netdns=go
package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // rest_client_* metrics, as in the real binaries
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubeadm "k8s.io/kubernetes/cmd/kubeadm/app"
	kubeadmerrors "k8s.io/kubernetes/cmd/kubeadm/app/util/errors"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"

	"github.com/gshare-dev/gshare/test/controlplane/kubernetes/routes"
)

// programs maps names to the functions that run the programs. Only the command that is to run is constructed, since the construction
// registers flags and feature gates, which are global to a process.
var programs = map[string]func(){
	"etcd":                    func() { etcdmain.Main(os.Args) },
	"kube-apiserver":          run(apiserver.NewAPIServerCommand),
	"kube-controller-manager": run(controllermanager.NewControllerManagerCommand),
	"kube-proxy":              run(proxy.NewProxyCommand),
	"kube-scheduler":          run(func() *cobra.Command { return scheduler.NewSchedulerCommand() }),
	"kubeadm":                 func() { kubeadmerrors.HandleError(kubeadm.Run()) },
	"kubectl":                 run(kubectl.NewDefaultKubectlCommand),
	"kubelet":                 run(func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) }),
	"podroutes":               run(routes.Command),
}

func run(command func() *cobra.Command) func() { return func() { os.Exit(cli.Run(command())) } }

func main() {
	program := programs[filepath.Base(os.Args[0])]
	if program == nil {
		fmt.Fprintln(os.Stderr, "kubernetes: link it to the name of one of its programs:", strings.Join(slices.Sorted(maps.Keys(programs)), ", "))
		os.Exit(2)
	}
	program()
}
