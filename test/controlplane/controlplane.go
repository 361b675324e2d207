// Package controlplane runs a real Kubernetes control plane on this machine, for experiments and tests: etcd with kube-apiserver in one
// child process, and any number of kube-schedulers in others. They are separate processes, since their feature gates and metrics are global
// to a process: the calling binary, run again, if it calls program.RunIfChild, and otherwise hyperkube. It needs no root and no network.
//
// There is no kubelet and no controller manager. Nodes are objects that a client creates; a bound pod never runs, and disappears only when
// deleted with a grace period of zero; a deleted namespace stays Terminating; deployments create no pods.
package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/gshare-dev/gshare/test/controlplane/access"
)

// startTimeout is for a program that hangs: one that ends fails the start at once. On a busy machine an API server has taken more than a minute.
const startTimeout = 5 * time.Minute

// Options configures a control plane. The zero value is a temporary one with default flags.
type Options struct {
	// Dir holds state, secrets and logs (in logs/); a later start there finds the same objects.
	// Empty means a temporary directory, which Stop removes.
	Dir           string
	Verbosity     int      // of the API server's log
	APIServerArgs []string // more kube-apiserver flags, such as --feature-gates or --runtime-config
}

// ControlPlane is a running control plane. Its methods may be called from any goroutine.
type ControlPlane struct {
	APIServer *Process // etcd is in the same process

	dir         string
	temporary   bool
	lock        *os.File // held while anything runs in dir
	credentials *access.Credentials

	mu         sync.Mutex // guards schedulers, and is held while one starts
	schedulers []*Process
}

// Start runs etcd and the API server, and returns once they serve and the namespaces default and kube-system exist. ctx limits only the
// start; call Stop to end the control plane.
func Start(ctx context.Context, o Options) (*ControlPlane, error) {
	c := &ControlPlane{dir: o.Dir, temporary: o.Dir == ""}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	err := c.prepare()
	if err == nil {
		err = c.startServer(ctx, o)
	}
	if err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return c, nil
}

func (c *ControlPlane) startServer(ctx context.Context, o Options) (err error) {
	c.APIServer, err = c.startChild(ctx, childSpec{"kube-apiserver", RoleServer, func(port int) []string {
		return apiServerArguments(port, o)
	}})
	if err != nil {
		return err
	}
	for _, user := range []access.User{access.Admin, access.Scheduler} {
		if err := c.credentials.WriteKubeconfig(c.Kubeconfig(user), c.APIServer.URL, user); err != nil {
			return err
		}
	}
	return c.waitNamespaces(ctx)
}

// waitNamespaces blocks until the namespaces default and kube-system exist, which a ready API server may not have created yet.
func (c *ControlPlane) waitNamespaces(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(c.Config(access.Admin))
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	for _, name := range []string{metav1.NamespaceDefault, metav1.NamespaceSystem} {
		err := wait.PollUntilContextCancel(ctx, readyInterval, true, func(ctx context.Context) (bool, error) {
			_, err := client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
			return err == nil, c.APIServer.Err()
		})
		if err != nil {
			return fmt.Errorf("wait for namespace %s: %w", name, err)
		}
	}
	return nil
}

// Config returns a new client configuration for the user, without a rate limit. The caller may change it.
func (c *ControlPlane) Config(user access.User) *rest.Config {
	return c.credentials.Config(c.APIServer.URL, c.credentials.Token(user))
}

// Kubeconfig returns the path of the user's kubeconfig file, for kubectl and other programs.
func (c *ControlPlane) Kubeconfig(user access.User) string {
	return filepath.Join(c.dir, strings.ReplaceAll(string(user), ":", "-")+".kubeconfig")
}

// Dir returns the directory of the control plane's state, secrets and logs.
func (c *ControlPlane) Dir() string { return c.dir }

// Stop ends the schedulers, then the API server and etcd, and removes a temporary directory. It returns an error if the API server had
// already ended unexpectedly. A second call does nothing.
func (c *ControlPlane) Stop() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var stopping sync.WaitGroup
	for _, p := range c.schedulers {
		stopping.Go(p.Stop)
	}
	stopping.Wait()
	c.schedulers = nil
	var err error
	if c.APIServer != nil {
		c.APIServer.Stop()
		err = c.APIServer.Err()
	}
	if c.lock != nil {
		_ = c.lock.Close()
	}
	if c.temporary && c.dir != "" {
		err = errors.Join(err, os.RemoveAll(c.dir))
	}
	return err
}

// RunWith starts a control plane, calls run with it, and stops it, for use in a TestMain that then calls os.Exit. It returns the status of
// run, or 1 if the control plane did not start or ended unexpectedly.
func RunWith(run func(*ControlPlane) int) (status int) {
	c, err := Start(context.Background(), Options{})
	if err != nil {
		fmt.Fprintln(os.Stderr, "start control plane:", err)
		return 1
	}
	defer func() {
		if err := c.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, "stop control plane:", err)
			status = 1
		}
	}()
	return run(c)
}
