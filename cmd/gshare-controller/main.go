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
	"github.com/gshare-dev/gshare/cmd/internal/features"
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
	gates                                                                                     *features.Gates
	log                                                                                       *slog.Logger
}

func command() *cobra.Command {
	o := options{gates: features.New("gshare-controller")}
	cmd := cli.Root(&cobra.Command{
		Use:   "gshare-controller [--kubeconfig FILE]",
		Short: "Run as many pods of each GPUFunction as its load needs",
		Long: "gshare-controller runs the pods of the GPUFunctions and FaSTPods of a cluster. It reads the load of the functions from the gateways, and\n" +
			"creates and deletes pods accordingly. It also runs the measurements that GPUProfiles ask for. If there are several controllers, one\n" +
			"leads, and another takes over within 6 seconds after the leader ends.",
		Example: "  gshare-controller\n  gshare-controller --kubeconfig ~/.kube/config --leader-elect=false",
		Args:    cli.NoArgs,
		Version: release.Version(),
		RunE:    func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), o) },
	})
	f := cmd.Flags()
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig file (default: the in-cluster configuration)")
	f.StringVar(&o.namespace, "namespace", "gshare-system", "namespace of the gateways' services, the lease, and the Secrets with certificates")
	f.StringVar(&o.service, "gateways", "gshare-gateway-reports", "headless service of the ports on which gateways report the load")
	f.StringVar(&o.token, "token", "/var/run/secrets/gshare/token", "file with the token for reading the gateways' reports; the file may change while the controller runs")
	f.StringVar(&o.domain, "cluster-domain", "cluster.local", "DNS domain of the cluster")
	f.StringVar(&o.metrics, "metrics", ":9090", "address to serve Prometheus metrics on; 0 for none")
	f.StringVar(&o.health, "health", ":8081", "address to serve /healthz and /readyz on; 0 for none")
	f.StringVar(&o.keda, "keda", ":9091", "address to serve KEDA triggers of type external-push on, while leading (gRPC without TLS); 0 for none")
	f.StringVar(&o.pprof, "pprof", "0", "address to serve /debug/pprof on, which shows what the process does to anyone who can reach it; 0 for none")
	f.StringVar(&o.profileImage, "profile-image", "", "gshare-controller image for the pods that send the requests of GPUProfiles (default: the image of the controller's own pod)")
	f.BoolVar(&o.profileFunctions, "profile-functions", true, "measure functions with protocol OIP that set no share, rate or profileRef, by creating a GPUProfile of the same name")
	f.BoolVar(&o.elect, "leader-elect", true, "act only while leading")
	o.gates.AddFlag(f)
	o.log = cli.NewLog(os.Stderr, cli.AddLogLevel(f))
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
	log := o.log
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
		Advise: advise.run, ProfileFunctions: o.profileFunctions, Admit: admit(o.gates), NotApplied: o.gates.Refuse(features.PlanApply, "spec.mode"),
	}); err != nil {
		return err
	}
	image := &ownImage{clients: clients, namespace: os.Getenv("POD_NAMESPACE"), name: os.Getenv("POD_NAME"), known: o.profileImage}
	if err := profiles.AddTo(m, profiles.Options{Log: log, Quotas: quotas, Version: release.Version(), Image: image.get}); err != nil {
		return err
	}
	return m.Start(ctx)
}
