package program

import (
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"time"

	"go.etcd.io/etcd/server/v3/embed"

	"github.com/gshare-dev/gshare/test/controlplane"
)

const (
	etcdQuota        = 8 << 30 // bytes
	etcdStartTimeout = 30 * time.Second
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

// EtcdConfig returns the configuration of a single etcd member without fsync: a killed process loses nothing by that, only a machine that
// loses power does. client is the URL to serve; log is a file or stderr. The snapshot count keeps etcd's default, as a higher one only holds
// more of the log in memory.
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
