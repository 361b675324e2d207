package cluster

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/gshare-dev/gshare/manifests"
	"github.com/gshare-dev/gshare/plugins/skew"
	"github.com/gshare-dev/gshare/test/cluster/machine"
	"github.com/gshare-dev/gshare/test/controlplane/access"
)

// startControlPlane starts etcd, kube-apiserver, kube-controller-manager and the scheduler, and waits until each is healthy.
func (c *Cluster) startControlPlane(ctx context.Context) (err error) {
	if c.Etcd, err = c.startComponent(ctx, "etcd", "http://127.0.0.1:2379/health", []string{"--data-dir=" + c.control.DataDir() + "/etcd"}); err != nil {
		return err
	}
	if c.APIServer, err = c.startComponent(ctx, "kube-apiserver", server+"/readyz", c.apiServerArgs()); err != nil {
		return err
	}
	args, err := c.controllerManagerArgs()
	if err != nil {
		return err
	}
	if c.ControllerManager, err = c.startComponent(ctx, "kube-controller-manager", "https://127.0.0.1:10257/healthz", args); err != nil {
		return err
	}
	if args, err = c.schedulerArgs(); err != nil {
		return err
	}
	c.Scheduler, err = c.startComponent(ctx, "kube-scheduler", "https://127.0.0.1:10259/readyz", args)
	return err
}

// startComponent starts a program of the control plane and waits until its health endpoint returns 200.
func (c *Cluster) startComponent(ctx context.Context, name, health string, args []string) (*machine.Process, error) {
	return c.control.Start(ctx, machine.Program{
		Name: name, Path: c.kubernetes(name), Args: append([]string{name}, args...),
		Ready: func(ctx context.Context) error { return c.checkHealth(ctx, c.control, health) },
	})
}

func (c *Cluster) apiServerArgs() []string {
	return append([]string{
		"--etcd-servers=http://127.0.0.1:2379",
		"--bind-address=0.0.0.0", // all addresses of the control machine, which cannot be reached from outside
		"--advertise-address=" + controlAddress,
		"--secure-port=6443",
		"--service-cluster-ip-range=10.96.0.0/16",
		"--tls-cert-file=" + c.secret(access.ServingCert),
		"--tls-private-key-file=" + c.secret(access.ServingKey),
		"--token-auth-file=" + c.secret(access.TokenFile),
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + c.secret(access.AccountKey),
		"--service-account-signing-key-file=" + c.secret(access.AccountKey),
		"--kubelet-preferred-address-types=InternalIP",
		"--allow-privileged=true",
		"--shutdown-delay-duration=0",
	}, slices.Concat(strings.Fields(os.Getenv(ServerFlags)), c.options.APIServerArgs)...)
}

func (c *Cluster) controllerManagerArgs() ([]string, error) {
	kubeconfig, err := c.writeKubeconfig(access.ControllerManager)
	return []string{
		"--kubeconfig=" + kubeconfig,
		"--authentication-kubeconfig=" + kubeconfig,
		"--authorization-kubeconfig=" + kubeconfig,
		"--bind-address=127.0.0.1",
		"--leader-elect=false",
		"--use-service-account-credentials=true",
		"--service-account-private-key-file=" + c.secret(access.AccountKey),
		"--root-ca-file=" + c.secret(access.ServingCert),
	}, err
}

// schedulerArgs writes the scheduler's configuration file, with the kubeconfig added, and returns its command-line flags.
func (c *Cluster) schedulerArgs() ([]string, error) {
	kubeconfig, err := c.writeKubeconfig(access.Scheduler)
	if err != nil {
		return nil, err
	}
	given := c.options.SchedulerConfig
	if given == nil {
		given = manifests.SchedulerConfig
	}
	var config map[string]any
	if err := yaml.Unmarshal(given, &config); err != nil {
		return nil, fmt.Errorf("read scheduler configuration: %w", err)
	}
	config["clientConnection"] = map[string]any{"kubeconfig": kubeconfig, "qps": 1000, "burst": 2000}
	config["leaderElection"] = map[string]any{"leaderElect": false}
	path := c.file("kubernetes/scheduler.yaml")
	args := []string{
		"--config=" + path,
		"--authentication-kubeconfig=" + kubeconfig,
		"--authorization-kubeconfig=" + kubeconfig,
		"--bind-address=127.0.0.1",
	}
	if c.options.SchedulerConfig == nil { // in a pod, gshare-scheduler adds this flag itself
		version, err := c.Client().Discovery().ServerVersion()
		if err != nil {
			return nil, fmt.Errorf("read the API server's version: %w", err)
		}
		if flag := skew.Flag(*version); flag != "" {
			args = append(args, flag)
		}
	}
	return args, writeYAML(path, config)
}

func (c *Cluster) file(name string) string { return filepath.Join(c.Dir, name) }

func (c *Cluster) secret(name string) string { return c.file(filepath.Join("kubernetes", name)) }

func writeYAML(path string, value any) error {
	content, err := yaml.Marshal(value)
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return os.WriteFile(path, content, 0o600)
}

// checkHealth returns an error unless a health endpoint, requested as Admin from within a machine's network, returns 200.
func (c *Cluster) checkHealth(ctx context.Context, m *machine.Machine, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+c.Token(access.Admin))
	transport := &http.Transport{
		DialContext:       m.Dial,
		DisableKeepAlives: true,
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, // each program creates its own certificate
	}
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return err
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, response.Status)
	}
	return nil
}

// waitServiceAccount blocks until the controller manager has created a service account in the default namespace, which pods need.
func (c *Cluster) waitServiceAccount(ctx context.Context, name string) error {
	found := func(ctx context.Context) (bool, error) {
		_, err := c.client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, name, metav1.GetOptions{})
		return err == nil, nil
	}
	if err := wait.PollUntilContextCancel(ctx, pollInterval, true, found); err != nil {
		return fmt.Errorf("wait for service account %s: %w", name, err)
	}
	return nil
}

// Token returns the bearer token of a user.
func (c *Cluster) Token(user access.User) string { return c.credentials.Token(user) }

// Config returns a new client configuration for a user, without a rate limit. The caller may change it.
func (c *Cluster) Config(user access.User) *rest.Config { return c.ConfigFor(c.Token(user)) }

// ConfigFor returns a new client configuration for any bearer token, such as a service account's, without a rate limit.
func (c *Cluster) ConfigFor(token string) *rest.Config {
	config := c.credentials.Config(server, token)
	config.Dial = c.dial
	return config
}

func (c *Cluster) dial(ctx context.Context, network, address string) (net.Conn, error) {
	return c.control.Dial(ctx, network, address)
}

// Kubeconfig returns the content of a kubeconfig file with a bearer token, for programs that run on a machine of the cluster.
func (c *Cluster) Kubeconfig(token string) ([]byte, error) {
	return c.credentials.Kubeconfig(server, token)
}

// writeKubeconfig writes a user's kubeconfig file to the directory of the cluster and returns its path.
func (c *Cluster) writeKubeconfig(user access.User) (string, error) {
	path := filepath.Join(c.Dir, "kubernetes", strings.ReplaceAll(string(user), ":", "-")+".kubeconfig")
	return path, c.credentials.WriteKubeconfig(path, server, user)
}
