package main

import (
	"context"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	library "github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/spf13/cobra"

	"github.com/gshare-dev/gshare/cmd/internal/cli"
	"github.com/gshare-dev/gshare/node/uninstall"
	config "github.com/gshare-dev/gshare/vgpu/api/config/node"
)

// retryPeriod is the pause between two attempts to remove what the agent left on the node.
const retryPeriod = 2 * time.Second

func uninstallCommand(log *slog.Logger) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "uninstall [--config FILE]",
		Short: "Remove what the agent left on this node, and keep running",
		Long: "gshare-node uninstall runs in place of the agent, with the same configuration. It waits until no pod of the node has a share. Then it\n" +
			"removes files and sockets, MIG instances that the agent created, and the inventory and capacity of the node. It keeps running,\n" +
			"because a DaemonSet would restart it. /readyz returns 200 when nothing is left. That takes five minutes, the time for which the\n" +
			"kubelet remembers a device plugin.",
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := readConfig(file)
			if err != nil {
				return cli.Usage(err)
			}
			return serveUninstall(cmd.Context(), c, log)
		},
	}
	cmd.Flags().StringVar(&file, "config", "", "configuration file of the agent")
	return cmd
}

func serveUninstall(ctx context.Context, c config.Configuration, log *slog.Logger) error {
	at, err := connect(&c, log)
	if err != nil {
		return err
	}
	defer at.pods.Close()
	lock, err := lockDirectory(c.Directory)
	if err != nil {
		return err
	}
	defer lock.Close()
	var clean atomic.Bool
	stop, err := listenHTTP(c.Kubernetes.Listen, readinessHandler(&clean))
	if err != nil {
		return err
	}
	defer stop()
	node := uninstall.Node{
		Config: c, Name: at.name, Client: at.client, Pods: at.pods.List,
		MPS: clusterDaemonsOf(c), Stores: storesOf(c, log), Clear: func(uuid string) error { return clearGPU(library.New(), c.Directory, uuid) },
	}
	for logged := ""; ctx.Err() == nil; {
		state := "nothing is left"
		err := node.Step(ctx)
		if err != nil {
			state = err.Error()
		}
		clean.Store(err == nil)
		if state != logged {
			log.Info("uninstall", "node", at.name, "state", state)
			logged = state
		}
		pause(ctx, retryPeriod)
	}
	return nil
}

// readinessHandler serves the readiness probe of the uninstalling DaemonSet: ready once nothing is left to remove from the node.
func readinessHandler(clean *atomic.Bool) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !clean.Load() {
			http.Error(w, "not everything is removed yet: see the log", http.StatusServiceUnavailable)
		}
	})
	return mux
}
