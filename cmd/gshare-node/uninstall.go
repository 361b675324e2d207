package main

import (
	"context"
	"log/slog"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	library "github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/spf13/cobra"

	"github.com/gshare-dev/gshare/cmd/internal/cli"
	config "github.com/gshare-dev/gshare/vgpu/api/config/node"
	"github.com/gshare-dev/gshare/vgpu/node/uninstall"
)

// lookForLeft is how often what is left is looked for.
const lookForLeft = 2 * time.Second

func uninstallCommand() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "uninstall [--config FILE]",
		Short: "Take back what the agent has left on this node, and stay",
		Long: "gshare-node uninstall runs in the place of the agent, with its configuration. It waits until no pod of the node has a share,\n" +
			"then removes files and sockets, MIG instances that the agent made, the inventory and the capacity of the node. It goes on until\n" +
			"it is stopped, since a DaemonSet would start it again; /readyz says ok when nothing is left, which takes five minutes: so long the\n" +
			"kubelet remembers a plugin.",
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := readConfig(file)
			if err != nil {
				return cli.Usage(err)
			}
			return serveUninstall(cmd.Context(), c)
		},
	}
	cmd.Flags().StringVar(&file, "config", "", "configuration file of the agent")
	return cmd
}

func serveUninstall(ctx context.Context, c config.Configuration) error {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	at, err := connect(&c)
	if err != nil {
		return err
	}
	defer at.pods.Close()
	lock, err := occupy(c.Directory)
	if err != nil {
		return err
	}
	defer lock.Close()
	var clean atomic.Bool
	stop, err := listenHTTP(c.Kubernetes.Listen, cleanHandler(&clean))
	if err != nil {
		return err
	}
	defer stop()
	node := uninstall.Node{
		Config: c, Name: at.name, Client: at.client, Pods: at.pods.List,
		MPS: clusterDaemonsOf(c), Clear: func(uuid string) error { return clearGPU(library.New(), c.Directory, uuid) },
	}
	for said := "nothing yet"; ctx.Err() == nil; {
		is := "nothing is left"
		if err := node.Step(ctx); err != nil {
			is = err.Error()
			clean.Store(false)
		} else {
			clean.Store(true)
		}
		if is != said {
			log.Info("uninstall", "node", at.name, "state", is)
			said = is
		}
		pause(ctx, lookForLeft)
	}
	return nil
}

// cleanHandler serves the probes of the DaemonSet.
func cleanHandler(clean *atomic.Bool) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !clean.Load() {
			http.Error(w, "something is left: see the log", http.StatusServiceUnavailable)
		}
	})
	return mux
}
