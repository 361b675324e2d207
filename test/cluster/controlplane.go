package cluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"sigs.k8s.io/yaml"

	"github.com/gshare-dev/gshare/manifests"
	"github.com/gshare-dev/gshare/test/cluster/machine"
	"github.com/gshare-dev/gshare/test/controlplane/access"
)

// startControlPlane returns when all four programs serve.
func (c *Cluster) startControlPlane(ctx context.Context) (err error) {
	if c.Etcd, err = c.startControl(ctx, "etcd", "http://127.0.0.1:2379/health", []string{"--data-dir=" + c.control.Folder() + "/etcd"}); err != nil {
		return err
	}
	if c.APIServer, err = c.startControl(ctx, "kube-apiserver", server+"/readyz", c.apiServerArgs()); err != nil {
		return err
	}
	args, err := c.controllerManagerArgs()
	if err != nil {
		return err
	}
	if c.ControllerManager, err = c.startControl(ctx, "kube-controller-manager", "https://127.0.0.1:10257/healthz", args); err != nil {
		return err
	}
	if args, err = c.schedulerArgs(); err != nil {
		return err
	}
	c.Scheduler, err = c.startControl(ctx, "kube-scheduler", "https://127.0.0.1:10259/readyz", args)
	return err
}

// startControl runs one of hyperkube's programs on the control machine until the health page says ok.
func (c *Cluster) startControl(ctx context.Context, name, health string, args []string) (*machine.Process, error) {
	return c.control.Start(ctx, machine.Program{
		Name: name, Path: c.program("hyperkube"), Args: append([]string{name}, args...),
		Ready: func(ctx context.Context) error { return c.probe(ctx, c.control, health) },
	})
}

func (c *Cluster) apiServerArgs() []string {
	return append([]string{
		"--etcd-servers=http://127.0.0.1:2379",
		"--bind-address=0.0.0.0", // of the control machine, which nobody outside reaches
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
	}, c.options.APIServerArgs...)
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

// schedulerArgs writes the scheduler's configuration, which only lacks the kubeconfig.
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
	return []string{
		"--config=" + path,
		"--authentication-kubeconfig=" + kubeconfig,
		"--authorization-kubeconfig=" + kubeconfig,
		"--bind-address=127.0.0.1",
	}, writeYAML(path, config)
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
