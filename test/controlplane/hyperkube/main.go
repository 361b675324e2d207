// Command hyperkube is every Kubernetes program of the test cluster in one binary: "hyperkube kubelet --config F" is
// the kubelet. Linking once instead of five times saves minutes and half a gigabyte; what the programs have in common
// is compiled and stored once. etcd is embedded the same way, and the scheduler is gshare's. Under the name of one of its
// programs it is that program, as in an image.
package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // rest_client_* metrics, as in the real binaries
	_ "k8s.io/component-base/metrics/prometheus/version"

	"github.com/gshare-dev/gshare/test/controlplane/program"
)

// programs holds the constructor of each program's command by the program's name. A command is constructed only when it is to run, since
// that registers flags and feature gates, which are global to a process.
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
		os.Exit(cli.Run(programs[name]()))
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
