// Command gshare-node is the agent of a node: it finds the GPUs, admits shares and runs their token servers.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	config "github.com/gshare-dev/gshare/vgpu/api/config/node"
	"github.com/gshare-dev/gshare/vgpu/node/gpu"
	"github.com/gshare-dev/gshare/vgpu/node/gpu/nvml"
	"github.com/gshare-dev/gshare/vgpu/node/mps"
	"github.com/gshare-dev/gshare/vgpu/node/standalone"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := command().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "gshare-node:", err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	var alone bool
	var file string
	cmd := &cobra.Command{
		Use:   "gshare-node --standalone [--config FILE]",
		Short: "Share the GPUs of this machine",
		Long: "gshare-node --standalone shares the GPUs of a machine without Kubernetes; gshare run asks it for shares.\n" +
			"As root it tells processes apart by cgroup and serves all users; otherwise it serves the user who started it.",
		Example: "  gshare-node --standalone\n" +
			"  gshare-node --standalone --config /etc/gshare/node.yaml",
		Args: cobra.NoArgs, SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !alone {
				return errors.New("--standalone: the only mode so far")
			}
			c, err := readConfig(file)
			if err != nil {
				return err
			}
			return serve(cmd.Context(), c)
		},
	}
	cmd.Flags().BoolVar(&alone, "standalone", false, "without Kubernetes")
	cmd.Flags().StringVar(&file, "config", "", "configuration file (kind NodeConfiguration)")
	return cmd
}

func readConfig(file string) (c config.Configuration, err error) {
	c = config.Configuration{}.WithDefaults()
	if file != "" {
		text, err := os.ReadFile(file)
		if err != nil {
			return c, err
		}
		if c, err = config.Decode(text); err != nil {
			return c, fmt.Errorf("%s: %w", file, err)
		}
	}
	if c.Directory == "" {
		c.Directory, err = config.DefaultDirectory(os.Geteuid(), os.Getenv("XDG_RUNTIME_DIR"))
	}
	return c, err
}

// serve runs the agent until the context ends.
func serve(ctx context.Context, c config.Configuration) error {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	listener, err := listen(filepath.Join(c.Directory, config.ControlSocket))
	if err != nil {
		return err
	}
	defer listener.Close()
	node, err := newNode(c, log)
	if err != nil {
		return err
	}
	defer node.Close()
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

func newNode(c config.Configuration, log *slog.Logger) (*standalone.Node, error) {
	var source gpu.Source = nvml.Source{}
	if c.SimulatedDevices != "" {
		source = gpu.Simulated{File: c.SimulatedDevices}
	}
	devices, err := source.Devices()
	if err != nil {
		return nil, err
	}
	daemons := mps.Daemons{Dir: filepath.Join(c.Directory, "mps"), Simulated: c.SimulatedDevices != ""}
	if err := daemons.Available(); err != nil {
		log.Warn("devices cannot be shared, only given out whole", "err", err)
	}
	return standalone.New(standalone.Options{Config: c, Devices: devices, MPS: daemons, Groups: groups(log), Log: log})
}

// groups are for root only; without, processes are known by their user.
func groups(log *slog.Logger) *standalone.Groups {
	if os.Geteuid() != 0 {
		log.Info("identity is cooperative: as root, each run would get a cgroup of its own")
		return nil
	}
	g, err := standalone.FindGroups()
	if err != nil {
		log.Warn("identity is cooperative: no cgroup can be made", "err", err)
		return nil
	}
	return g
}

// listen opens the control socket, unless another agent answers there. As root everybody may ask for shares: who may use
// the devices themselves is for their permissions to say.
func listen(name string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return nil, err
	}
	if conn, err := net.DialTimeout("unix", name, time.Second); err == nil {
		conn.Close()
		return nil, fmt.Errorf("another agent listens at %s", name)
	}
	if err := os.Remove(name); err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	listener, err := net.Listen("unix", name)
	if err != nil {
		return nil, err
	}
	mode := os.FileMode(0o600)
	if os.Geteuid() == 0 {
		mode = 0o666
	}
	return listener, os.Chmod(name, mode)
}
