// Command gshare-node is the agent of a node: it finds the GPUs, admits shares and runs their token servers.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/gshare-dev/gshare/cmd/internal/cli"
	"github.com/gshare-dev/gshare/cmd/internal/features"
	"github.com/gshare-dev/gshare/cmd/internal/release"
	"github.com/gshare-dev/gshare/node/gpu"
	"github.com/gshare-dev/gshare/node/standalone"
	config "github.com/gshare-dev/gshare/vgpu/api/config/node"
)

func main() { cli.Main(command()) }

func command() *cobra.Command {
	var alone bool
	var file string
	gates := features.New("gshare-node")
	var log *slog.Logger
	cmd := cli.Root(&cobra.Command{
		Use:   "gshare-node [--standalone] [--config FILE]",
		Short: "Share the GPUs of this machine",
		Long: "gshare-node runs on a node of a cluster and gives containers the GPU shares that gshare-scheduler has placed.\n\n" +
			"gshare-node --standalone shares the GPUs of a machine without Kubernetes, for programs that gshare run starts.\n" +
			"As root, it identifies processes by cgroup and serves all users. Otherwise it serves only the user who started it.",
		Example: "  gshare-node --config /etc/gshare/node.yaml\n" +
			"  gshare-node --standalone\n" +
			"  gshare-node --standalone --config /etc/gshare/node.yaml",
		Args:    cli.NoArgs,
		Version: release.Version(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := readConfig(file)
			if err != nil {
				return cli.Usage(err)
			}
			if !alone && c.SimulatedKernels {
				return cli.Usage(errors.New("simulatedKernels: only with --standalone"))
			}
			if alone {
				return serve(cmd.Context(), c, log)
			}
			if err := refuse(gates, c.Kubernetes); err != nil {
				return cli.Usage(err)
			}
			return serveNode(cmd.Context(), c, log)
		},
	})
	cmd.Flags().BoolVar(&alone, "standalone", false, "run on a machine without Kubernetes")
	cmd.Flags().StringVar(&file, "config", "", "configuration file (kind NodeConfiguration)")
	gates.AddFlag(cmd.Flags())
	log = cli.NewLog(os.Stderr, cli.AddLogLevel(cmd.PersistentFlags()))
	cmd.AddCommand(uninstallCommand(log), proxyCommand(log), storeCommand())
	return cmd
}

func readConfig(file string) (c config.Configuration, err error) {
	c = config.Configuration{}.WithDefaults()
	if file != "" {
		text, err := os.ReadFile(file)
		if err != nil {
			return c, fmt.Errorf("--config: %w", err)
		}
		if c, err = config.Decode(text); err != nil {
			return c, fmt.Errorf("--config %s: %w", file, err)
		}
	}
	if c.Directory == "" {
		c.Directory, err = config.DefaultDirectory(os.Geteuid(), os.Getenv("XDG_RUNTIME_DIR"))
	}
	if len(c.Directory) > config.MaxDirectory {
		err = fmt.Errorf("directory: %s has %d bytes, and can have %d: paths of sockets in it would be too long", c.Directory, len(c.Directory), config.MaxDirectory)
	}
	return c, err
}

// serve runs the standalone agent, for machines without Kubernetes, until the context is cancelled.
func serve(ctx context.Context, c config.Configuration, log *slog.Logger) error {
	lock, err := lockDirectory(c.Directory)
	if err != nil {
		return err
	}
	defer lock.Close()
	listener, err := listen(filepath.Join(c.Directory, config.ControlSocket))
	if err != nil {
		return err
	}
	defer listener.Close()
	kernels, err := simulateKernels(c)
	if err != nil {
		return err
	}
	defer kernels.stop()
	node, err := newNode(c, kernels, log)
	if err != nil {
		return err
	}
	defer node.Close()
	stop, err := serveDebug(c.DebugAddress, node.NewDebugServer())
	if err != nil {
		return err
	}
	defer stop()
	server := node.NewHTTPServer()
	go func() {
		<-ctx.Done()
		server.Close()
	}()
	log.Info("ready", "socket", listener.Addr().String(), "devices", len(node.Status().Devices))
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func newNode(c config.Configuration, kernels simulatedKernels, log *slog.Logger) (*standalone.Node, error) {
	source := sourceOf(c)
	devices, err := source.Devices()
	if err != nil && c.SimulatedDevices != "" {
		return nil, cli.Usage(fmt.Errorf("simulatedDevices: %w", err))
	}
	if err != nil {
		return nil, err
	}
	daemons := daemonsOf(c)
	if err := daemons.Available(); err != nil {
		log.Warn("MPS is not available, devices are exclusive only", "error", err)
	}
	return standalone.New(standalone.Options{
		Config: c, Devices: gpu.Usable(devices), MPS: daemons, Source: source, Groups: runCgroups(log), Memory: memoryLimiter(c),
		Environment: kernels.environment, Metrics: kernels.metrics, Log: log,
	})
}

// runCgroups returns the manager of the cgroups in which gshare run puts programs, or nil if the agent may not create cgroups; processes are
// then identified by their user.
func runCgroups(log *slog.Logger) *standalone.Groups {
	if os.Geteuid() != 0 {
		log.Info("no cgroups without root, processes are identified by user")
		return nil
	}
	g, err := standalone.FindGroups()
	if err != nil {
		log.Warn("failed to find cgroups, processes are identified by user", "error", err)
		return nil
	}
	return g
}
