// Package cluster runs a real Kubernetes cluster on this machine, for tests: etcd, kube-apiserver,
// kube-controller-manager and gshare-scheduler on one machine of namespaces, and containerd, runc and a kubelet on one
// more for each node, all at their usual paths and ports. It needs root and a few programs of the distribution, and
// no network, registry or image from elsewhere.
//
// Every program can be killed and started again, and a node rebooted. Nothing is left when a test ends; if its process
// is killed, the machines end with it, and the next Start removes the folder and the cgroups that remain.
package cluster

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"

	"github.com/gshare-dev/gshare/test/cluster/machine"
	"github.com/gshare-dev/gshare/test/controlplane/access"
	"github.com/gshare-dev/gshare/test/executable"
)

// startTimeout is for a machine that does much else: a start takes some 15 seconds.
const startTimeout = 5 * time.Minute

// Options describe a cluster. The zero value is useful.
type Options struct {
	Nodes           int            // 2 if zero; their names are node-0, node-1 and so on
	SchedulerConfig []byte         // a KubeSchedulerConfiguration; manifests/scheduler if nil
	APIServerArgs   []string       // more flags of kube-apiserver
	KubeletConfig   map[string]any // fields of the KubeletConfiguration that replace the cluster's own
	Images          []Image        // besides BusyboxImage
}

// Cluster is a running cluster. Its many methods start and reach the programs of one control plane; tests use it as their only handle.
type Cluster struct {
	Nodes []*Node
	// The control plane's processes, all on one machine.
	Etcd, APIServer, ControllerManager, Scheduler *machine.Process
	// Dir has the cluster's files, and is seen under the same path on every machine.
	Dir string

	options     Options
	programs    string   // folder of the programs that hack/cluster.sh builds
	images      []string // archives
	lock        *os.File
	control     *machine.Machine
	credentials *access.Credentials
	client      *kubernetes.Clientset
}

// Start runs a cluster until the end of the test, and returns when all nodes are ready. It skips the test where a
// cluster cannot run. When the test has failed, the ends of all logs are written.
func Start(t testing.TB, o Options) *Cluster {
	t.Helper()
	if err := missing(); err != nil {
		t.Skip(err)
	}
	if o.Nodes == 0 {
		o.Nodes = 2
	}
	programs, err := executable.Build("build")
	if err != nil {
		t.Fatal(err)
	}
	c := &Cluster{options: o, programs: programs}
	t.Cleanup(func() { c.end(t) })
	began := time.Now()
	err = c.start(t.Context())
	if errors.Is(err, machine.ErrNotSupported) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatalf("start cluster: %v", err)
	}
	t.Logf("cluster of %d nodes started in %.1f s", o.Nodes, time.Since(began).Seconds())
	return c
}

func (c *Cluster) start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := c.prepare(ctx); err != nil {
		return err
	}
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() error { return c.startControlPlane(groupCtx) })
	for _, node := range c.Nodes {
		group.Go(func() error { return node.startContainerd(groupCtx) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	group, groupCtx = errgroup.WithContext(ctx)
	for _, node := range c.Nodes {
		group.Go(func() error { return node.startKubelet(groupCtx) })
	}
	group.Go(func() error { return c.waitServiceAccount(groupCtx, "default") })
	return group.Wait()
}

// program returns the path of a program that hack/cluster.sh has built.
func (c *Cluster) program(name string) string { return filepath.Join(c.programs, name) }

// Client returns an administrator's client without a rate limit.
func (c *Cluster) Client() *kubernetes.Clientset { return c.client }

// end stops the cluster. After a failed test it logs the ends of the programs' logs first.
func (c *Cluster) end(t testing.TB) {
	for _, p := range c.processes() {
		if err := p.Err(); err != nil {
			t.Errorf("%s ended by itself: %v", p, err)
		}
	}
	if t.Failed() {
		c.showLogs(t)
	}
	if err := errors.Join(c.keepLogs(t.Name()), c.stop()); err != nil {
		t.Error(err)
	}
}

// processes returns those of the cluster itself that have been started.
func (c *Cluster) processes() []*machine.Process {
	all := []*machine.Process{c.Etcd, c.APIServer, c.ControllerManager, c.Scheduler}
	for _, node := range c.Nodes {
		all = append(all, node.Containerd, node.Kubelet)
	}
	return slices.DeleteFunc(all, func(p *machine.Process) bool { return p == nil })
}

// stop ends everything and removes the files. It needs no order: the machines' programs are killed.
func (c *Cluster) stop() error {
	for _, node := range c.Nodes {
		if node.Machine != nil {
			node.Machine.Halt()
		}
	}
	if c.control != nil {
		c.control.Halt()
	}
	if c.lock == nil {
		return nil
	}
	return errors.Join(removeState(c.Dir), c.lock.Close())
}
