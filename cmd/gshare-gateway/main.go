// Command gshare-gateway passes requests to the replicas of the GPUFunctions of a Kubernetes cluster.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/gshare-dev/gshare/cmd/internal/cli"
	"github.com/gshare-dev/gshare/cmd/internal/features"
	"github.com/gshare-dev/gshare/cmd/internal/release"
	"github.com/gshare-dev/gshare/serving/gateway"
	"github.com/gshare-dev/gshare/serving/gateway/kubernetes"
	"github.com/gshare-dev/gshare/serving/report"
)

func main() { cli.Main(command()) }

// options holds the flags.
type options struct {
	listen, report, metrics string
	tls, controller         string
	peers, peerSelector     string
	kubeconfig              string
	grace                   time.Duration
	log                     *slog.Logger
}

func command() *cobra.Command {
	var o options
	cmd := cli.Root(&cobra.Command{
		Use:   "gshare-gateway",
		Short: "Pass requests to the replicas of the functions in a cluster",
		Long: "gshare-gateway passes HTTP and gRPC requests to the replicas of the GPUFunctions in a cluster. A request names its function by its\n" +
			"host: FUNCTION.NAMESPACE. It must be answered within the objective of the function. The gateway reports the load to\n" +
			"gshare-controller. Requests to a function without replicas wait until gshare-controller has started one.\n\n" +
			"If there are several gateways, each function is owned by one of them, which has its queue. The others forward requests to the owner.\n" +
			"The gateways are the pods that match --peer-selector in the namespace $POD_NAMESPACE; without the variable, there is only this one.\n" +
			"Gateways identify themselves to each other by the certificate in --tls; without it, a gateway serves alone.\n\n" +
			"On SIGTERM, a gateway stops being ready, but accepts requests for some more seconds, until clients have noticed. It ends when it has\n" +
			"answered the requests that it accepted, or after --termination-grace.",
		Args:    cli.NoArgs,
		Version: release.Version(),
		RunE:    func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context()) },
	})
	f := cmd.Flags()
	f.StringVar(&o.listen, "listen", ":8080", "address to accept requests on: HTTP/1.1, and HTTP/2 without TLS")
	f.StringVar(&o.report, "report", ":8081", "address to report the load to gshare-controller on; none if --tls is empty")
	f.StringVar(&o.tls, "tls", "/etc/gshare/tls", "directory with tls.crt, tls.key and ca.crt, for --report and --peers; the files may change while the gateway runs")
	f.StringVar(&o.controller, "controller", "gshare-system/gshare-controller", "service account that may read the load, as NAMESPACE/NAME")
	f.StringVar(&o.metrics, "metrics", ":9090", "address to serve /metrics, /healthz and /readyz on")
	f.StringVar(&o.peers, "peers", ":8082", "address on which other gateways forward requests and ping, with the same port for all gateways; none if --tls is empty")
	f.StringVar(&o.peerSelector, "peer-selector", "app=gshare-gateway", "label selector of the gateway pods")
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig file (default: the in-cluster configuration)")
	f.DurationVar(&o.grace, "termination-grace", 30*time.Second, "time after SIGTERM until open requests are aborted")
	o.log = cli.NewLog(os.Stderr, cli.AddLogLevel(f))
	features.New("gshare-gateway").AddFlag(f) // none is for gateways, but all programs accept the same list
	return cmd
}

// run sets up the parts of the gateway, and serves until ctx ends.
func (o *options) run(ctx context.Context) error {
	log := o.log
	klog.SetSlogLogger(log) // Kubernetes' client libraries log to it, too
	ctrl.SetLogger(logr.FromSlogHandler(log.Handler()))
	config, err := o.config()
	if err != nil {
		return cli.Usage(err)
	}
	listeners, err := listen(ctx, "--listen", o.listen, "--metrics", o.metrics)
	if err != nil {
		return cli.Usage(err)
	}
	gateways, err := o.newGateways(ctx, config, log)
	if err != nil {
		return err
	}
	reporting, err := o.newReporting(ctx, config, log)
	if err != nil {
		return cli.Usage(err)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	callers, err := newCallers(config, gateways.peers)
	if err != nil {
		return err
	}
	g := gateway.New(gateway.Config{Metrics: registry, Log: log, Callers: callers, Peers: gateways.peers, PeerTLS: gateways.tls()})
	reports := report.New(g, podName())
	cache, err := kubernetes.NewCache(config, kubernetes.NewFunctions(g, reports, log), log)
	if err != nil {
		return err
	}
	server := newServer(g.Server(), o.grace, log)

	running, stop := context.WithCancel(context.WithoutCancel(ctx)) // outlives ctx, until the last request is answered
	defer stop()
	defer serveMetrics(listeners[1], registry, func() bool { return cache.Synced() && callers.Addresses.Synced() && !server.ending.Load() })()
	defer reporting.serve(running, reports)()
	go cache.Run(running) // fails if it is called twice
	go gateways.watch.Run(running)
	log.Info("waiting for the API server", "server", config.Host)
	go callers.Addresses.Run(running, callers.pods, log)
	if !cache.WaitForSync(ctx) || !callers.Addresses.WaitForSync(ctx) || !gateways.watch.WaitForSync(ctx) {
		return nil
	}
	go g.RunPeers(running)
	defer context.AfterFunc(ctx, gateways.leave)()
	log.Info("serving", "address", listeners[0].Addr().String(), "functions", len(g.Functions()))
	var both errgroup.Group
	both.Go(func() error { return server.serve(ctx, listeners[0]) })
	both.Go(func() error { return gateways.serve(ctx, g, o.grace, log.With("port", "peers")) })
	return both.Wait()
}

// config returns the client configuration for the API server.
func (o *options) config() (*rest.Config, error) {
	if o.kubeconfig == "" {
		return rest.InClusterConfig()
	}
	config, err := clientcmd.BuildConfigFromFlags("", o.kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig: %w", err)
	}
	return config, nil
}

// listen listens on addresses. Each argument is preceded by the flag that sets it, for error messages.
func listen(ctx context.Context, flagsAndAddresses ...string) (all []net.Listener, err error) {
	for i := 0; i < len(flagsAndAddresses); i += 2 {
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", flagsAndAddresses[i+1])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", flagsAndAddresses[i], err)
		}
		all = append(all, l)
	}
	return all, nil
}

// podName returns the name of the pod that this program runs in.
func podName() string {
	if name := os.Getenv("POD_NAME"); name != "" {
		return name
	}
	if name, err := os.Hostname(); err == nil {
		return name
	}
	return "gshare-gateway"
}
