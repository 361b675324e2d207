package main

import (
	"fmt"
	"net/url"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/embed"
)

// etcdCommand returns a command that runs one etcd member until SIGTERM.
func etcdCommand() *cobra.Command {
	var dir, listen string
	command := &cobra.Command{
		Use:   "etcd",
		Args:  cobra.NoArgs,
		RunE:  func(*cobra.Command, []string) error { return runEtcd(dir, listen) },
		Short: "Run one etcd member until SIGTERM",
	}
	command.Flags().StringVar(&dir, "data-dir", "", "folder of the data")
	command.Flags().StringVar(&listen, "listen-client-url", "http://127.0.0.1:2379", "where to serve")
	return command
}

func runEtcd(dir, listen string) error {
	config, err := etcdConfig(dir, listen)
	if err != nil {
		return fmt.Errorf("configure etcd: %w", err)
	}
	etcd, err := embed.StartEtcd(config)
	if err != nil {
		return fmt.Errorf("start etcd: %w", err)
	}
	defer etcd.Close()
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	select {
	case <-stop:
		return nil
	case err := <-etcd.Err():
		return err
	}
}

// etcdConfig returns the configuration of a single etcd member without fsync: a killed process loses nothing by that, only a machine that
// loses power does.
func etcdConfig(dir, listen string) (*embed.Config, error) {
	client, err := url.Parse(listen)
	if err != nil {
		return nil, err
	}
	peer := url.URL{Scheme: "unix", Host: "etcd-peer.sock"}
	c := embed.NewConfig()
	c.Name, c.Dir = "cluster", dir
	c.ListenClientUrls, c.AdvertiseClientUrls = []url.URL{*client}, []url.URL{*client}
	c.ListenPeerUrls, c.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	c.InitialCluster = c.InitialClusterFromName(c.Name)
	c.UnsafeNoFsync = true
	c.EnableGRPCGateway = false
	c.LogLevel = "warn"
	c.LogOutputs = []string{"stderr"}
	return c, nil
}
