// Command gshare-controller serves the GPUFunctions and FaSTPods of a cluster: it keeps as many pods as their load needs, and measures
// GPUProfiles.
package main

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/gshare-dev/gshare/cmd/internal/cli"
	"github.com/gshare-dev/gshare/cmd/internal/release"
	"github.com/gshare-dev/gshare/serving/controller"
	"github.com/gshare-dev/gshare/serving/identity"
	"github.com/gshare-dev/gshare/serving/profiles"
)

func main() { cli.Main(command()) }

// options are the flags.
type options struct {
	kubeconfig, namespace, service, token, domain, metrics, health, keda, pprof, profileImage string
	elect, profileFunctions                                                                   bool
}

func command() *cobra.Command {
	var o options
	cmd := cli.Root(&cobra.Command{
		Use:   "gshare-controller [--kubeconfig FILE]",
		Short: "Run as many pods of each GPUFunction as its load needs",
		Long: "gshare-controller makes the GPUFunctions and FaSTPods of a cluster serve. It reads the load of functions from the gateways, and creates\n" +
			"and deletes pods. It also measures what GPUProfiles ask for. Of several controllers one leads; another takes over within 6 seconds of its end.",
		Example: "  gshare-controller\n  gshare-controller --kubeconfig ~/.kube/config --leader-elect=false",
		Args:    cli.NoArgs,
		Version: release.Version(),
		RunE:    func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), o) },
	})
	f := cmd.Flags()
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "how to reach the API server; by default as the pod that this is")
	f.StringVar(&o.namespace, "namespace", "gshare-system", "namespace of the gateways' services, of the lease and of the Secrets with certificates")
	f.StringVar(&o.service, "gateways", "gshare-gateway-reports", "headless service of the gateways' ports of reports")
	f.StringVar(&o.token, "token", "/var/run/secrets/gshare/token", "file of the token with which the gateways' reports are read; it may change")
	f.StringVar(&o.domain, "cluster-domain", "cluster.local", "domain of the cluster's DNS")
	f.StringVar(&o.metrics, "metrics", ":9090", "address of the metrics (Prometheus), 0 for none")
	f.StringVar(&o.health, "health", ":8081", "address of /healthz and /readyz, 0 for none")
	f.StringVar(&o.keda, "keda", ":9091", "address for KEDA's triggers of type external-push (gRPC, without TLS), while it leads; 0 for none")
	f.StringVar(&o.pprof, "pprof", "0", "address of /debug/pprof, which shows to everybody who reaches it what the process does; 0 for none")
	f.StringVar(&o.profileImage, "profile-image", "", "image with gshare-controller for the pods that send the requests of GPUProfiles; by default its own")
	f.BoolVar(&o.profileFunctions, "profile-functions", true, "measure functions of protocol OIP that say neither a share nor a rate nor profileRef, by a GPUProfile of their name")
	f.BoolVar(&o.elect, "leader-elect", true, "act only as the leader")
	cmd.AddCommand(measureCommand())
	return cmd
}

// configOf returns the client configuration for the API server: that of the kubeconfig or, without one, of the pod.
func configOf(kubeconfig string) (*rest.Config, error) {
	if kubeconfig == "" {
		return rest.InClusterConfig()
	}
	return clientcmd.BuildConfigFromFlags("", kubeconfig)
}

// Times of the leader lease. Another controller reads the lease every retryPeriod and up to a fifth of that later. So it sees the last renewal
// up to 0.6 s late, and notices up to 0.6 s late that leaseDuration has passed since: it leads at most 5.2 s after the renewal.
const (
	leaseDuration = 4 * time.Second
	retryPeriod   = 500 * time.Millisecond
)

func run(ctx context.Context, o options) error {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	ctrl.SetLogger(logr.FromSlogHandler(log.Handler()))
	config, err := configOf(o.kubeconfig)
	if err != nil {
		return cli.Usage(err)
	}
	config.QPS = -1 // no limit: client-go's would count reads, too, and delay creations
	limitWrites(config)
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	answers := func(ctx context.Context) error {
		return clients.Discovery().RESTClient().Get().AbsPath("/version").Do(ctx).Error()
	}
	if err := waitForServer(ctx, o.health, answers, log); ctx.Err() != nil {
		return nil
	} else if err != nil {
		return cli.Usage(err)
	}
	go func() {
		if err := release.Announce(ctx, clients); err != nil && !errors.Is(err, context.Canceled) {
			log.Warn("failed to announce version", "error", err)
		}
	}()
	service := client.ObjectKey{Namespace: o.namespace, Name: o.service}
	scheme, err := controller.Scheme()
	if err != nil {
		return err
	}
	cached, err := controller.CacheOptions(service)
	if err != nil {
		return err
	}
	m, err := ctrl.NewManager(config, manager.Options{
		Scheme: scheme, Cache: cached, Metrics: server.Options{BindAddress: o.metrics}, HealthProbeBindAddress: o.health, PprofBindAddress: o.pprof,
		LeaderElection: o.elect, LeaderElectionID: "gshare-controller", LeaderElectionNamespace: o.namespace, LeaderElectionReleaseOnCancel: true,
		LeaseDuration: new(leaseDuration), RenewDeadline: new(3 * time.Second), RetryPeriod: new(retryPeriod),
	})
	if err != nil {
		return err
	}
	ready := func(*http.Request) error { return nil } // regardless of caches: a controller that waits to lead is ready
	if err := errors.Join(m.AddHealthzCheck("ping", healthz.Ping), m.AddReadyzCheck("started", ready)); err != nil {
		return err
	}
	reports := &reader{token: identity.TokenFile(o.token), keeper: &identity.Keeper{
		Reader: m.GetAPIReader(), Writer: m.GetClient(), Namespace: o.namespace, Name: o.service + "." + o.namespace + ".svc", Log: log,
	}}
	if err := m.Add(manager.RunnableFunc(func(ctx context.Context) error { reports.keeper.Run(ctx); return nil })); err != nil {
		return err
	}
	advise := adviser{address: o.keda, clients: clients, namespace: os.Getenv("POD_NAMESPACE"), name: os.Getenv("POD_NAME"), log: log}
	quotas := controller.NewQuotas(m.GetClient(), m.GetAPIReader())
	if err := controller.AddTo(m, controller.Options{
		Service: service, Quotas: quotas, Gateway: "gshare-gateway." + o.namespace + ".svc." + o.domain, Log: log, Metrics: metrics.Registry, Watch: reports.watch,
		Advise: advise.run, ProfileFunctions: o.profileFunctions,
	}); err != nil {
		return err
	}
	image := &ownImage{clients: clients, namespace: os.Getenv("POD_NAMESPACE"), name: os.Getenv("POD_NAME"), known: o.profileImage}
	if err := profiles.AddTo(m, profiles.Options{Log: log, Quotas: quotas, Version: release.Version(), Image: image.get}); err != nil {
		return err
	}
	return m.Start(ctx)
}
