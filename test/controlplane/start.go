package controlplane

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"github.com/gshare-dev/gshare/test/controlplane/access"
	"github.com/gshare-dev/gshare/test/executable"
)

const (
	loopback      = "127.0.0.1"
	readyInterval = 50 * time.Millisecond
	portAttempts  = 3
)

// childSpec describes a child process to start. args returns its command-line arguments for the port on which it is to serve.
type childSpec struct {
	name, role string
	args       func(port int) []string
}

// startChild runs the child process and blocks until its /readyz succeeds. If the port, which was free when it was chosen, is taken
// before the child listens on it, another one is tried.
func (c *ControlPlane) startChild(ctx context.Context, what childSpec) (*Process, error) {
	var p *Process
	var err error
	for range portAttempts {
		if p, err = c.startChildOnce(ctx, what); err == nil || !strings.Contains(err.Error(), "address already in use") {
			break
		}
	}
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", what.name, err)
	}
	return p, nil
}

func (c *ControlPlane) startChildOnce(ctx context.Context, what childSpec) (*Process, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	p := &Process{
		Name:    what.name,
		URL:     fmt.Sprintf("https://%s:%d", loopback, port),
		LogFile: filepath.Join(c.dir, LogFolder, what.name+".log"),
	}
	if p.client, err = rest.HTTPClientFor(c.credentials.Config(p.URL, c.credentials.Token(access.Admin))); err != nil {
		return nil, err
	}
	if err := p.launch(c.dir, what.role, what.args(port)); err != nil {
		return nil, err
	}
	if err := p.waitReady(ctx); err != nil {
		p.Kill()
		return nil, err
	}
	return p, nil
}

func (p *Process) waitReady(ctx context.Context) error {
	var last error
	err := wait.PollUntilContextCancel(ctx, readyInterval, true, func(ctx context.Context) (bool, error) {
		_, last = p.Get(ctx, "/readyz")
		return last == nil, p.Err()
	})
	if err == nil || p.Err() != nil {
		return err
	}
	return fmt.Errorf("%w; %w; end of %s:\n%s", err, last, p.LogFile, executable.LogTail(p.LogFile))
}

func freePort() (int, error) {
	listener, err := net.Listen("tcp", net.JoinHostPort(loopback, "0"))
	if err != nil {
		return 0, fmt.Errorf("find free port: %w", err)
	}
	port := listener.Addr().(*net.TCPAddr).Port
	return port, listener.Close()
}

// prepare creates the control plane's directory and credentials, and locks the directory.
func (c *ControlPlane) prepare() (err error) {
	if c.temporary {
		c.dir, err = os.MkdirTemp("", "gshare-lab-")
	} else {
		c.dir, err = filepath.Abs(c.dir)
	}
	if err != nil {
		return fmt.Errorf("make directory: %w", err)
	}
	if err := os.MkdirAll(filepath.Join(c.dir, LogFolder), 0o700); err != nil {
		return fmt.Errorf("make directory: %w", err)
	}
	if c.lock, err = lockFolder(c.dir); err != nil {
		return err
	}
	c.credentials, err = access.New(c.dir, []access.User{access.Admin, access.Scheduler}, loopback)
	return err
}

// lockFolder locks a directory, or returns an error if the directory is in use: a second etcd would take over the first one's socket.
// The lock is released when the file is closed or the process ends.
func lockFolder(folder string) (*os.File, error) {
	file, err := os.OpenFile(filepath.Join(folder, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock directory: %w", err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("lock directory %s: %w", folder, err)
	}
	return file, nil
}

// disabledAdmissionPlugins lists the admission plugins that rely on a controller manager, which does not run here. They would refuse
// pods without a service account, keep new nodes tainted, or add finalizers that nobody removes.
var disabledAdmissionPlugins = []string{
	"ServiceAccount",
	"TaintNodesByCondition",
	"StorageObjectInUseProtection",
	"PodGroupProtection",
}

// apiServerArguments returns the command-line flags of the API server. Paths are relative to the state directory.
func apiServerArguments(port int, o Options) []string {
	return append([]string{
		"--etcd-servers=" + EtcdURL,
		"--etcd-count-metric-poll-period=0",
		"--etcd-db-metric-poll-interval=0",
		fmt.Sprintf("--secure-port=%d", port),
		"--bind-address=" + loopback,
		"--advertise-address=" + loopback, // otherwise the machine needs a route to the outside
		"--endpoint-reconciler-type=none", // endpoints must not be loopback addresses
		"--service-cluster-ip-range=10.0.0.0/16",
		"--tls-cert-file=" + access.ServingCert,
		"--tls-private-key-file=" + access.ServingKey,
		"--token-auth-file=" + access.TokenFile,
		"--anonymous-auth=false",
		"--authorization-mode=RBAC",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + access.AccountKey,
		"--service-account-signing-key-file=" + access.AccountKey,
		"--disable-admission-plugins=" + strings.Join(disabledAdmissionPlugins, ","),
		"--allow-privileged=true",
		// A local benchmark measures the scheduler, not a queue in front of the API server.
		"--enable-priority-and-fairness=false",
		"--max-requests-inflight=0",
		"--max-mutating-requests-inflight=0",
		"--http2-max-streams-per-connection=1000",
		"--event-ttl=10m",
		"--shutdown-delay-duration=0",
		fmt.Sprintf("--v=%d", o.Verbosity),
	}, o.APIServerArgs...)
}
