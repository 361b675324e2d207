// Package program contains the programs that the child processes of package controlplane run: etcd with kube-apiserver, and
// gshare-scheduler. It is separate from controlplane because it links Kubernetes, which a test that only starts a control plane does not
// need.
package program

import (
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // rest_client_* metrics, as in the real binaries
	_ "k8s.io/component-base/metrics/prometheus/version"
	serverapp "k8s.io/kubernetes/cmd/kube-apiserver/app"
	schedulerapp "k8s.io/kubernetes/cmd/kube-scheduler/app"

	"github.com/gshare-dev/gshare/plugins"
	"github.com/gshare-dev/gshare/test/controlplane"
)

// RunIfChild runs the program of a control plane's child process and does not return, if the command line says that this process is such a
// child. A main function that calls it must do so before anything else; control planes that the process starts then run its own binary in
// their children.
func RunIfChild() {
	if len(os.Args) < 3 || os.Args[1] != controlplane.ChildArgument {
		controlplane.UseOwnProgram()
		return
	}
	go exitWithParent()
	os.Exit(run(os.Args[2], os.Args[3:]))
}

func run(role string, args []string) int {
	switch role {
	case controlplane.RoleServer:
		return runServer(args)
	case controlplane.RoleScheduler:
		command := schedulerapp.NewSchedulerCommand(SchedulerOptions()...)
		command.SetArgs(args)
		return cli.Run(command)
	}
	fmt.Fprintf(os.Stderr, "unknown child role %q\n", role)
	return 2
}

// SchedulerOptions returns the options that add gshare's plugins to the kube-scheduler command.
func SchedulerOptions() []schedulerapp.Option {
	var options []schedulerapp.Option
	for name, factory := range plugins.All() {
		options = append(options, schedulerapp.WithPlugin(name, factory))
	}
	return options
}

// exitWithParent ends the process when its standard input ends. The parent holds the other end of that pipe and never writes to it, so the
// pipe closes when the parent ends in any way. (Linux's parent death signal is tied to the parent's thread, not to its process.)
func exitWithParent() {
	_, _ = io.Copy(io.Discard, os.Stdin)
	os.Exit(1)
}

// runServer runs etcd and the API server in this process, and closes etcd last.
func runServer(args []string) int {
	etcd, err := startEtcd()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer etcd.Close()
	command := serverapp.NewAPIServerCommand()
	command.SetArgs(args)
	return cli.Run(command)
}

const (
	etcdQuota        = 8 << 30         // bytes
	etcdStartTimeout = 4 * time.Minute // less than the API server has in all
)

// startEtcd runs etcd in this process, with its data in the working directory, and blocks until it serves.
func startEtcd() (*embed.Etcd, error) {
	config, err := EtcdConfig("sandbox", "etcd", controlplane.EtcdURL, filepath.Join(controlplane.LogFolder, "etcd.log"))
	if err != nil {
		return nil, fmt.Errorf("configure etcd: %w", err)
	}
	etcd, err := embed.StartEtcd(config)
	if err != nil {
		return nil, fmt.Errorf("start etcd: %w", err)
	}
	if err := waitForEtcd(etcd); err != nil {
		etcd.Close()
		return nil, fmt.Errorf("start etcd: %w", err)
	}
	return etcd, nil
}

// EtcdConfig returns the configuration of a single etcd member without fsync: killing the process loses nothing, only a power failure of the
// machine does. client is the URL to serve; log is a file or stderr. The snapshot count keeps etcd's default, since a higher one would only
// keep more of the log in memory.
func EtcdConfig(name, dir, client, log string) (*embed.Config, error) {
	clientURL, err := url.Parse(client)
	if err != nil {
		return nil, err
	}
	peer := url.URL{Scheme: "unix", Host: "etcd-peer.sock"} // relative to the working directory, as controlplane.EtcdURL
	c := embed.NewConfig()
	c.Name, c.Dir = name, dir
	c.ListenClientUrls, c.AdvertiseClientUrls = []url.URL{*clientURL}, []url.URL{*clientURL}
	c.ListenPeerUrls, c.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	c.InitialCluster = c.InitialClusterFromName(c.Name)
	c.UnsafeNoFsync = true
	c.QuotaBackendBytes = etcdQuota
	c.EnableGRPCGateway = false
	c.WarningApplyDuration = time.Second
	c.LogLevel = "warn"
	c.LogOutputs = []string{log}
	return c, nil
}

func waitForEtcd(etcd *embed.Etcd) error {
	select {
	case <-etcd.Server.ReadyNotify():
		return nil
	case err := <-etcd.Err():
		return err
	case <-time.After(etcdStartTimeout):
		return errors.New("not ready in time")
	}
}
