package main

import (
	"fmt"
	"log/slog"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/gshare-dev/gshare/cmd/internal/cli"
	"github.com/gshare-dev/gshare/deviceplugin"
	"github.com/gshare-dev/gshare/node/cdi"
	config "github.com/gshare-dev/gshare/vgpu/api/config/node"
	"github.com/gshare-dev/gshare/vgpu/kube"
)

func proxyCommand(log *slog.Logger) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "proxy [--config FILE]",
		Short: "Hold the kubelet's connection while the agent is away",
		Long: "gshare-node proxy runs next to the agent, with the same configuration, and registers the device plugin with the kubelet. While the\n" +
			"agent is away, pods are still admitted, and their containers wait for the agent. Without a proxy, the agent registers itself.",
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := readConfig(file)
			if err != nil {
				return cli.Usage(err)
			}
			proxy := deviceplugin.NewProxy(deviceplugin.ProxyOptions{
				Directory: filepath.Join(c.Directory, config.ProxyDirectory), Plugins: c.Kubernetes.DevicePlugins, Resource: string(kube.ResourceVGPU),
				CDI: cdi.Directory(c.Kubernetes.CDI), Log: log,
			})
			stop, err := listenHTTP(c.Kubernetes.ProxyListen, proxy.Handler())
			if err != nil {
				return fmt.Errorf("kubernetes.proxyListen: %w", err)
			}
			defer stop()
			return proxy.Run(cmd.Context())
		},
	}
	cmd.Flags().StringVar(&file, "config", "", "configuration file of the agent")
	return cmd
}
