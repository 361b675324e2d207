package controlplane

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/gshare-dev/gshare/test/controlplane/access"
)

// SchedulerOptions configures a scheduler. The zero value is a scheduler without leader election.
type SchedulerOptions struct {
	// Server is a URL to use instead of the API server's, such as a test's proxy. client-go sends no
	// token over plain HTTP, so the proxy has to add it, as a transport made from Config(Scheduler) does.
	Server      string
	LeaderElect bool     // acquire the lease kube-system/kube-scheduler first; a standby counts as started
	Verbosity   int      // of the log
	Args        []string // more kube-scheduler flags, such as --feature-gates

	// Times of the leader election; zero means the defaults of Kubernetes (15 s, 10 s, 2 s).
	LeaseDuration, RenewDeadline, RetryPeriod time.Duration
}

// StartScheduler runs a scheduler with the KubeSchedulerConfiguration and gshare's plugins in a child process, and returns when it has
// filled its caches. ctx limits the start only. The name, which the Process and its files have, can be used again when the process is done.
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
