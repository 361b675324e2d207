// Command kubernetes is every program of a node of kind in one binary, that of its name: kubeadm, kubelet and kubectl on the node, and what
// runs in the pods of its system. Linking once instead of nine times saves minutes and a gigabyte, and one image serves all of those pods.
//
// The C library is linked in, so that the image needs none; names are therefore looked up by Go itself.
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

// programs holds what runs each program, by its name. A command is constructed only when it is to run, since that registers flags and
// feature gates, which are global to a process.
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
