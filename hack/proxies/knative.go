package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	metrics "go.opentelemetry.io/otel/metric/noop"
	traces "go.opentelemetry.io/otel/trace/noop"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	netcfg "knative.dev/networking/pkg/config"
	netprobe "knative.dev/networking/pkg/http/probe"
	kubeclient "knative.dev/pkg/client/injection/kube/client/fake"
	_ "knative.dev/pkg/client/injection/kube/informers/core/v1/endpoints/fake" // which the throttler takes from the context
	_ "knative.dev/pkg/client/injection/kube/informers/core/v1/service/fake"
	"knative.dev/pkg/controller"
	"knative.dev/pkg/injection"
	"knative.dev/pkg/logging"
	pkgnet "knative.dev/pkg/network"
	activatorconfig "knative.dev/serving/pkg/activator/config"
	activatorhandler "knative.dev/serving/pkg/activator/handler"
	activatornet "knative.dev/serving/pkg/activator/net"
	"knative.dev/serving/pkg/apis/serving"
	v1 "knative.dev/serving/pkg/apis/serving/v1"
	asmetrics "knative.dev/serving/pkg/autoscaler/metrics"
	servingclient "knative.dev/serving/pkg/client/injection/client/fake"
	_ "knative.dev/serving/pkg/client/injection/informers/serving/v1/revision/fake"
	pkghttp "knative.dev/serving/pkg/http"
	"knative.dev/serving/pkg/http/handler"
	"knative.dev/serving/pkg/networking"
	"knative.dev/serving/pkg/queue/sharedmain"
)

// The revision that the proxies serve. It accepts as many concurrent requests as serving/gateway's replica has credits in the comparison.
const (
	namespace   = "default"
	revision    = "plain"
	concurrency = 64
	timeout     = 300 // seconds
)

// newActivator returns the chain of handlers of Knative's cmd/activator, in the same order, for a revision whose queue-proxy listens at the
// target.
func newActivator(target string) (http.Handler, error) {
	logger := zap.NewNop().Sugar()
	ctx := injection.WithConfig(logging.WithLogger(context.Background(), logger), &rest.Config{})
	ctx, informers := injection.Fake.SetupInformers(ctx, injection.GetConfig(ctx))
	if err := createRevision(ctx, target); err != nil {
		return nil, err
	}
	if err := controller.StartInformers(ctx.Done(), informers...); err != nil {
		return nil, err
	}
	transport := pkgnet.NewProxyAutoTransport(1000, 100)
	throttler := activatornet.NewThrottler(ctx, "127.0.0.1")
	go throttler.Run(ctx, transport, false, netcfg.MeshCompatibilityModeDisabled)

	tracing, metering := traces.NewTracerProvider(), metrics.NewMeterProvider()
	statistics := make(chan []asmetrics.StatMessage)
	go func() {
		for range statistics { //nolint:revive // dropped
		}
	}()
	reporter := activatorhandler.NewConcurrencyReporter(ctx, "activator", statistics, metering)
	go reporter.Run(ctx.Done())

	h := activatorhandler.New(ctx, throttler, transport, false, logger, false, tracing)
	h = handler.NewTimeoutHandler(h, "activator request timeout", func(r *http.Request) (time.Duration, time.Duration, time.Duration) {
		return time.Duration(*activatorhandler.RevisionFrom(r.Context()).Spec.TimeoutSeconds) * time.Second, 0, 0
	}, logger)
	h = reporter.Handler(h)
	h = activatorhandler.NewTracingAttributeHandler(tracing, h)
	h, err := pkghttp.NewRequestLogHandler(h, io.Discard, "", nil, false)
	if err != nil {
		return nil, err
	}
	var all http.Handler = activatorhandler.NewMetricAttributeHandler("activator", h)
	all = activatorhandler.WrapActivatorHandlerWithFullDuplex(all, logger)
	all = activatorhandler.NewContextHandler(ctx, all, activatorconfig.NewStore(logger))
	all = otelhttp.NewHandler(all, "handle", otelhttp.WithTracerProvider(tracing), otelhttp.WithMeterProvider(metering))
	all = &activatorhandler.ProbeHandler{NextHandler: all}
	all = netprobe.NewHandler(all)
	return &activatorhandler.HealthHandler{HealthCheck: func() error { return nil }, NextHandler: all, Logger: logger}, nil
}

// createRevision creates the revision, and the endpoints of its private service.
func createRevision(ctx context.Context, target string) error {
	host, text, err := net.SplitHostPort(target)
	if err != nil {
		return err
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		return err
	}
	_, err = servingclient.Get(ctx).ServingV1().Revisions(namespace).Create(ctx, &v1.Revision{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: revision},
		Spec: v1.RevisionSpec{
			ContainerConcurrency: new(int64(concurrency)), TimeoutSeconds: new(int64(timeout)),
			PodSpec: corev1.PodSpec{Containers: []corev1.Container{{Name: "server", Image: "example.com/server"}}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	_, err = kubeclient.Get(ctx).CoreV1().Endpoints(namespace).Create(ctx, &corev1.Endpoints{ //nolint:staticcheck // what Knative reads
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: revision + "-private", Labels: map[string]string{
			serving.RevisionUID: "revision", serving.RevisionLabelKey: revision, networking.ServiceTypeKey: string(networking.ServiceTypePrivate),
		}},
		Subsets: []corev1.EndpointSubset{{
			Addresses: []corev1.EndpointAddress{{IP: host}},
			Ports:     []corev1.EndpointPort{{Name: "http", Port: int32(port)}}, //nolint:gosec // a port
		}},
	}, metav1.CreateOptions{})
	return err
}

// startQueueProxy runs Knative's queue-proxy in front of a server. In addition to its own port, it needs the ports 8022, 9090 and 9091.
func startQueueProxy(target string) (address string, err error) {
	_, port, err := net.SplitHostPort(target)
	if err != nil {
		return "", err
	}
	own, err := freePort()
	if err != nil {
		return "", err
	}
	for name, value := range map[string]string{
		"CONTAINER_CONCURRENCY": strconv.Itoa(concurrency), "QUEUE_SERVING_PORT": own, "QUEUE_SERVING_TLS_PORT": "0", "USER_PORT": port,
		"REVISION_TIMEOUT_SECONDS": strconv.Itoa(timeout), "SERVING_LOGGING_CONFIG": "", "SERVING_LOGGING_LEVEL": "error",
		"SERVING_NAMESPACE": namespace, "SERVING_CONFIGURATION": revision, "SERVING_REVISION": revision, "SERVING_POD": revision, "SERVING_POD_IP": "127.0.0.1",
	} {
		if err := os.Setenv(name, value); err != nil {
			return "", err
		}
	}
	go func() {
		if err := sharedmain.Main(); err != nil {
			os.Exit(1) // it has logged the reason
		}
	}()
	address = net.JoinHostPort("127.0.0.1", own)
	return address, await(address)
}

// freePort returns a port on which nothing listens.
func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, err
}
