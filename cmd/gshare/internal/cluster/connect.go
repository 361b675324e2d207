// Package cluster reads a running cluster with the rights of the user: its nodes, its pods, how its scheduler is
// configured, and from these what the slices hold. It changes nothing.
package cluster

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Flags are the command-line flags that select the cluster: kubeconfig, context and the like, as in kubectl.
type Flags struct{ Kubeconfig, Context string }

// AddTo adds the flags to a command.
func (f *Flags) AddTo(cmd *cobra.Command) {
	set := cmd.Flags()
	set.StringVar(&f.Kubeconfig, "kubeconfig", "", "kubeconfig file (default: $KUBECONFIG, else ~/.kube/config)")
	set.StringVar(&f.Context, "context", "", "context of the kubeconfig (default: its current one)")
}

// Connection holds the clients for a cluster, with the permissions of the user.
type Connection struct {
	Config    *rest.Config
	Client    kubernetes.Interface
	Namespace string // of the context
}

// Connect loads the client configuration as kubectl does, or the in-cluster one in a pod without a kubeconfig. It sends no request.
func (f *Flags) Connect() (*Connection, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = f.Kubeconfig
	overrides := &clientcmd.ConfigOverrides{CurrentContext: f.Context}
	loading := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides)
	config, err := loading.ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		return nil, errors.New("no kubeconfig: name one by --kubeconfig or $KUBECONFIG")
	}
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	namespace, _, err := loading.Namespace()
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	config.QPS, config.Burst = 50, 100 // one person asks, and then no more
	client, err := kubernetes.NewForConfig(config)
	return &Connection{config, client, namespace}, err
}
