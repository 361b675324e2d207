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
	etcdPeerURL = "unix://etcd-peer.sock" // relative to the state directory, as controlplane.EtcdURL

	etcdQuota        = 8 << 30 // bytes
	etcdStartTimeout = 30 * time.Second
)

// startEtcd runs etcd in this process, with its data in the working directory, and blocks until it serves.
func startEtcd() (*embed.Etcd, error) {
	config, err := etcdConfig()
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

// etcdConfig returns the configuration of a single etcd member whose data need not survive a power failure. The snapshot count keeps etcd's
// default, as a higher one only holds more of the log in memory.
func etcdConfig() (*embed.Config, error) {
	client, err := url.Parse(controlplane.EtcdURL)
	if err != nil {
		return nil, err
	}
	peer, err := url.Parse(etcdPeerURL)
	if err != nil {
		return nil, err
	}
	c := embed.NewConfig()
	c.Name, c.Dir = "sandbox", "etcd"
	c.ListenClientUrls, c.AdvertiseClientUrls = []url.URL{*client}, []url.URL{*client}
	c.ListenPeerUrls, c.AdvertisePeerUrls = []url.URL{*peer}, []url.URL{*peer}
	c.InitialCluster = c.InitialClusterFromName(c.Name)
	c.UnsafeNoFsync = true
	c.QuotaBackendBytes = etcdQuota
	c.EnableGRPCGateway = false
	c.WarningApplyDuration = time.Second
	c.LogLevel = "warn"
	c.LogOutputs = []string{filepath.Join(controlplane.LogFolder, "etcd.log")}
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
