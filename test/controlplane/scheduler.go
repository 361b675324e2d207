package controlplane

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/gshare-dev/gshare/test/controlplane/access"
)

// SchedulerOptions configures a scheduler. The zero value means no leader election.
type SchedulerOptions struct {
	// Server is a URL to use instead of the API server's, such as a test's proxy. client-go sends no
	// token over plain HTTP, so the proxy has to add it, as a transport made from Config(Scheduler) does.
	Server      string
	LeaderElect bool     // acquire the lease kube-system/kube-scheduler first; a standby counts as started
	Verbosity   int      // of the log
	Args        []string // more kube-scheduler flags, such as --feature-gates

	// Timing of the leader election; zero means the defaults of Kubernetes (15 s, 10 s, 2 s).
	LeaseDuration, RenewDeadline, RetryPeriod time.Duration
}

// StartScheduler runs a scheduler with the KubeSchedulerConfiguration and gshare's plugins in a child process, and returns once it has
// filled its caches. ctx limits only the start. The Process and its files have the given name, which can be reused once the process has
// ended.
func (c *ControlPlane) StartScheduler(ctx context.Context, name string, config []byte, o SchedulerOptions) (*Process, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forgetEnded()
	if slices.ContainsFunc(c.schedulers, func(p *Process) bool { return p.Name == name }) {
		return nil, fmt.Errorf("start scheduler: %s is already running", name)
	}
	configFile, err := c.writeSchedulerConfig(name, config, o)
	if err != nil {
		return nil, fmt.Errorf("start scheduler: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	p, err := c.startChild(ctx, childSpec{name, RoleScheduler, func(port int) []string {
		return c.schedulerArguments(port, configFile, o)
	}})
	if err != nil {
		return nil, err
	}
	c.schedulers = append(c.schedulers, p)
	return p, nil
}

func (c *ControlPlane) forgetEnded() {
	c.schedulers = slices.DeleteFunc(c.schedulers, func(p *Process) bool {
		select {
		case <-p.Done():
			return true
		default:
			return false
		}
	})
}

// writeSchedulerConfig writes the scheduler's configuration and kubeconfig, and returns the path of the configuration.
func (c *ControlPlane) writeSchedulerConfig(name string, config []byte, o SchedulerOptions) (string, error) {
	server := c.APIServer.URL
	if o.Server != "" {
		server = o.Server
	}
	kubeconfig := filepath.Join(c.dir, name+".scheduler.kubeconfig")
	if err := c.credentials.WriteKubeconfig(kubeconfig, server, access.Scheduler); err != nil {
		return "", err
	}
	merged, err := mergeSchedulerConfig(config, kubeconfig, o)
	if err != nil {
		return "", err
	}
	path := filepath.Join(c.dir, name+".scheduler.yaml")
	if err := os.WriteFile(path, merged, 0o600); err != nil {
		return "", fmt.Errorf("write configuration: %w", err)
	}
	return path, nil
}

// schedulerArguments returns the command-line flags of a scheduler. Requests for its metrics or profiles are authorized by the API server
// directly, even if the scheduler's own requests go through a proxy.
func (c *ControlPlane) schedulerArguments(port int, configFile string, o SchedulerOptions) []string {
	return append([]string{
		"--config=" + configFile,
		fmt.Sprintf("--secure-port=%d", port),
		"--bind-address=" + loopback,
		"--tls-cert-file=" + access.ServingCert,
		"--tls-private-key-file=" + access.ServingKey,
		"--authentication-kubeconfig=" + c.Kubeconfig(access.Scheduler),
		"--authorization-kubeconfig=" + c.Kubeconfig(access.Scheduler),
		"--authentication-skip-lookup=true",
		"--authorization-always-allow-paths=/healthz,/livez,/readyz,/metrics",
		fmt.Sprintf("--v=%d", o.Verbosity),
	}, o.Args...)
}

// mergeSchedulerConfig adds the kubeconfig and the leader election options to a KubeSchedulerConfiguration. It raises the limits of client
// requests if the caller set none.
func mergeSchedulerConfig(config []byte, kubeconfig string, o SchedulerOptions) ([]byte, error) {
	var root map[string]any
	if err := yaml.Unmarshal(config, &root); err != nil {
		return nil, fmt.Errorf("read scheduler configuration: %w", err)
	}
	if root == nil {
		root = map[string]any{}
	}
	setDefault(root, "apiVersion", "kubescheduler.config.k8s.io/v1")
	setDefault(root, "kind", "KubeSchedulerConfiguration")

	client := section(root, "clientConnection")
	client["kubeconfig"] = kubeconfig
	setDefault(client, "qps", 5000)
	setDefault(client, "burst", 10000)

	election := section(root, "leaderElection")
	election["leaderElect"] = o.LeaderElect
	setDuration(election, "leaseDuration", o.LeaseDuration)
	setDuration(election, "renewDeadline", o.RenewDeadline)
	setDuration(election, "retryPeriod", o.RetryPeriod)

	merged, err := yaml.Marshal(root)
	if err != nil {
		return nil, fmt.Errorf("write scheduler configuration: %w", err)
	}
	return merged, nil
}

// section returns the map under the key of a configuration, and adds an empty one if there is none.
func section(root map[string]any, key string) map[string]any {
	found, ok := root[key].(map[string]any)
	if !ok {
		found = map[string]any{}
		root[key] = found
	}
	return found
}

func setDefault(section map[string]any, key string, value any) {
	if _, found := section[key]; !found {
		section[key] = value
	}
}

func setDuration(section map[string]any, key string, d time.Duration) {
	if d != 0 {
		section[key] = d.String()
	}
}
