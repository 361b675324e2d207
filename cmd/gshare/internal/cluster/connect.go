// Package cluster reads a running cluster with the rights of the user: its nodes, its pods, how its scheduler is
// configured, and from these what the slices hold. It changes nothing.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/pager"
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
	Objects   dynamic.Interface // for kinds that Client does not have
	Namespace string            // of the context
}

// Connect loads the client configuration as kubectl does, or the in-cluster one in a pod without a kubeconfig. It sends no request.
func (f *Flags) Connect() (*Connection, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = f.Kubeconfig
	overrides := &clientcmd.ConfigOverrides{CurrentContext: f.Context}
	loading := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides)
	config, err := loading.ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		return nil, errors.New("no kubeconfig found: pass one with --kubeconfig, or set $KUBECONFIG")
	}
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", plain(err))
	}
	namespace, _, err := loading.Namespace()
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	config.QPS, config.Burst = 50, 100 // one user runs one command, so client-go's lower defaults would only slow it down
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	objects, err := dynamic.NewForConfig(config)
	return &Connection{config, client, objects, namespace}, err
}

// forPacking names the objects that a command must be permitted to list in order to see nodes and pods.
const forPacking = "nodes and on pods of all namespaces"

// Nodes returns all nodes of the cluster.
func Nodes(ctx context.Context, client kubernetes.Interface) ([]*v1.Node, error) {
	return listAll[*v1.Node](ctx, "nodes", forPacking, func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return client.CoreV1().Nodes().List(ctx, o)
	})
}

// Pods returns the pods of all namespaces, as the nodes are shared by all.
func Pods(ctx context.Context, client kubernetes.Interface) ([]*v1.Pod, error) {
	return listAll[*v1.Pod](ctx, "pods", forPacking, func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, o)
	})
}

// forMoving names the objects that a command must be permitted to list in order to see, in addition, which pods may be moved.
const forMoving = "nodes, namespaces and, of all namespaces, pods and poddisruptionbudgets"

// Namespaces returns all namespaces of the cluster.
func Namespaces(ctx context.Context, client kubernetes.Interface) ([]*v1.Namespace, error) {
	return listAll[*v1.Namespace](ctx, "namespaces", forMoving, func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return client.CoreV1().Namespaces().List(ctx, o)
	})
}

// Budgets returns the disruption budgets of all namespaces.
func Budgets(ctx context.Context, client kubernetes.Interface) ([]*policy.PodDisruptionBudget, error) {
	return listAll[*policy.PodDisruptionBudget](ctx, "poddisruptionbudgets", forMoving, func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return client.PolicyV1().PodDisruptionBudgets(metav1.NamespaceAll).List(ctx, o)
	})
}

// listAll lists all objects of a type page by page, so that no single response of the API server is large. needs names everything that the
// command has to list, for the error if permission is denied.
func listAll[T any](ctx context.Context, what, needs string, page pager.ListPageFunc) (all []T, err error) {
	err = pager.New(page).EachListItem(ctx, metav1.ListOptions{}, func(o runtime.Object) error {
		all = append(all, any(o).(T))
		return nil
	})
	if apierrors.IsForbidden(err) {
		return nil, fmt.Errorf("list %s: %w (it takes the verb list on %s, nothing else)", what, err, needs)
	}
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", what, err)
	}
	return all, nil
}

// plain returns an error of loading a kubeconfig without what it says of Go.
func plain(err error) error {
	text, _, cut := strings.Cut(err.Error(), "couldn't get version/kind")
	if text = strings.Replace(text, ": yaml: ", ": ", 1); cut {
		text += "it is not a kubeconfig"
	}
	if text == err.Error() {
		return err
	}
	return errors.New(text)
}
