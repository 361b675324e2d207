package cluster_test

import (
	"context"
	"encoding/base64"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authentication "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/serving/identity"
	"github.com/gshare-dev/gshare/test/cluster/machine"
	"github.com/gshare-dev/gshare/test/controlplane/access"
	"github.com/gshare-dev/gshare/test/executable"
	"github.com/gshare-dev/gshare/test/install/document"
)

var ecosystem = flag.Bool("ecosystem", false, "run KEDA, prometheus-adapter and Prometheus, which come from the network; make ecosystem does")

// autoscaled is a cluster whose API server forwards requests for external metrics to servers that run on a node.
type autoscaled struct {
	*served
	folder string // folder of the certificate that all of these servers use
}

// metricsHost is the host name in the certificate: the Service to which the API server forwards requests for external metrics.
const metricsHost = "metrics.keda.svc"

// Ports on the node.
const (
	kedaMetricsPort   = 6444
	promMetricsPort   = 6445
	operatorHealth    = "127.0.0.1:18081"
	operatorMetrics   = "127.0.0.1:18080"
	operatorGRPC      = "127.0.0.1:9666"
	prometheusAddress = "127.0.0.1:9190"
)

// small omits debugging information, which makes KEDA's programs link a minute faster.
const small = "-ldflags=-s -w"

// TestServingAutoscalers follows docs/autoscalers.md with the published programs of other projects: KEDA's operator and metrics server, Prometheus,
// prometheus-adapter, and the HorizontalPodAutoscaler of kube-controller-manager. The load arrives through a gateway, and the pods of the FaSTPod answer
// it.
func TestServingAutoscalers(t *testing.T) {
	if !*ecosystem {
		t.Skip("runs with -ecosystem, since it needs the network: make ecosystem")
	}
	a := startAutoscaled(t)
	for _, part := range []struct {
		name string
		run  func(*testing.T)
	}{{"KEDA", a.followsKEDA}, {"HorizontalPodAutoscaler", a.followsMetric}} {
		if !t.Run(part.name, part.run) {
			return
		}
	}
}

func startAutoscaled(t *testing.T) *autoscaled {
	t.Helper()
	a := &autoscaled{folder: t.TempDir()}
	authorities, err := identity.Authorities{}.Renew(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := authorities.Issue(metricsHost, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{"ca.crt": authorities.Certificates(), "tls.crt": certificate.Chain, "tls.key": certificate.Key} {
		if err := os.WriteFile(a.file(name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	a.served = startServing(t, "--requestheader-client-ca-file="+a.file("ca.crt"), "--requestheader-allowed-names="+metricsHost,
		"--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group", "--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file="+a.file("tls.crt"), "--proxy-client-key-file="+a.file("tls.key"))
	var stop context.CancelFunc
	a.ctx, stop = context.WithTimeout(t.Context(), 25*time.Minute)
	t.Cleanup(stop)
	return a
}

func (a *autoscaled) file(name string) string { return filepath.Join(a.folder, name) }

// followsKEDA: KEDA scales a FaSTPod from zero to as many replicas as gshare recommends, and back.
func (a *autoscaled) followsKEDA(t *testing.T) {
	a.startKEDA(t)
	a.write(t, a.recipe(t, "kind: FaSTPod"))
	leader, _ := a.leader(t)
	a.write(t, strings.Replace(a.recipe(t, "kind: ScaledObject"), "gshare-scaler.gshare-system:9091", net.JoinHostPort(leader.Status.PodIP, "9091"), 1))
	a.wait(t, "KEDA has made its HorizontalPodAutoscaler", func() bool {
		_, err := a.run(a.ctx, t, "get", "hpa", "keda-hpa-resnet50")
		return err == nil
	})
	if n := a.replicas(t); n != 0 {
		t.Errorf("%d replicas without a request", n)
	}
	began := time.Now()
	if err := a.ask(t, "resnet50"); err != nil {
		t.Fatal(err)
	}
	t.Logf("0 to 1: the first request was answered after %.1f s", time.Since(began).Seconds())
	a.risesAndFalls(t, 0)
	a.kubectl(t, "delete", "scaledobject", "resnet50")
	a.wait(t, "KEDA has deleted its HorizontalPodAutoscaler", func() bool {
		_, err := a.run(a.ctx, t, "get", "hpa", "keda-hpa-resnet50")
		return err != nil && strings.Contains(err.Error(), "NotFound")
	})
}

// followsMetric: a HorizontalPodAutoscaler scales a FaSTPod from one replica to as many as gshare-controller's metric says, and back.
func (a *autoscaled) followsMetric(t *testing.T) {
	a.startPrometheus(t)
	a.startPrometheusAdapter(t)
	a.write(t, a.recipe(t, "kind: FaSTPod"))
	a.kubectl(t, "scale", "fastpod", "resnet50", "--replicas=1")
	a.wait(t, "one replica", func() bool { return a.replicas(t) == 1 })
	a.write(t, a.recipe(t, "kind: HorizontalPodAutoscaler"))
	a.risesAndFalls(t, 1)
}

// risesAndFalls sends 85 requests per second, for which the function needs three replicas with 32 each, and then none.
func (a *autoscaled) risesAndFalls(t *testing.T, least int) {
	t.Helper()
	c := a.newClients(t, "resnet50")
	ctx, stop := context.WithCancel(a.ctx)
	defer stop()
	c.running.Go(func() { c.send(ctx, 85) })
	took := a.wait(t, "three replicas", func() bool { return a.replicas(t) == 3 })
	t.Logf("to 3: after %.1f s of 85 requests a second\n%s", took.Seconds(), a.kubectl(t, "get", "gpufunction,fastpod,hpa"))
	stop()
	sent, failed := c.wait()
	t.Logf("%d requests, %d refused or late: %v", sent, len(failed), firstOf(failed))
	took = a.wait(t, fmt.Sprintf("%d replicas", least), func() bool {
		return a.replicas(t) == least && len(a.pods(t, "default", api.LabelFaSTPod, "resnet50")) == least
	})
	t.Logf("to %d: %.1f s after the last request\n%s", least, took.Seconds(), a.kubectl(t, "get", "gpufunction,fastpod,hpa"))
	t.Log("\n" + a.kubectl(t, "get", "events", "--field-selector", "involvedObject.kind=HorizontalPodAutoscaler"))
}

func (a *autoscaled) replicas(t *testing.T) int {
	t.Helper()
	return a.readyReplicas(t, api.LabelFaSTPod, "resnet50")
}

// recipe returns the example of docs/autoscalers.md that contains a text, changed for the tests' image, for callers on nodes, and for a busy machine.
func (a *autoscaled) recipe(t *testing.T, has string) string {
	t.Helper()
	blocks, err := document.Blocks("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range blocks {
		if b.File == "docs/autoscalers.md" && b.Language == "yaml" && strings.Contains(b.Text, has) {
			return strings.NewReplacer(
				"slo: {latency: 69ms}", "slo: {latency: 5s}\n  access: {namespaces: [\"*\"]}", "scaling: {", "scaling: {window: 2s, keepShared: 2s, ",
				"image: registry.example/resnet50:1", "image: "+modelImage+"\n        args: [--batch, 1=2ms]",
			).Replace(b.Text)
		}
	}
	t.Fatalf("docs/autoscalers.md has no example with %q", has)
	return ""
}

// startKEDA starts KEDA's operator and metrics server, with the permissions that its own manifests give them.
func (a *autoscaled) startKEDA(t *testing.T) {
	operator := buildOf(t, "../keda", "keda-operator", "github.com/kedacore/keda/v2/cmd/operator", small)
	adapter := buildOf(t, "../keda", "keda-adapter", "github.com/kedacore/keda/v2/cmd/adapter", small)
	list := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/kedacore/keda/v2")
	list.Dir = "../keda"
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(strings.TrimSpace(string(out)), "config")
	for _, name := range []string{
		"general/namespace.yaml", "crd/bases", "service_account/service_account.yaml", "rbac/role.yaml", "rbac/role_binding.yaml", "metrics-server/role.yaml",
		"metrics-server/role_binding.yaml",
	} {
		a.kubectl(t, "apply", "--server-side", "-f", filepath.Join(config, name))
	}
	token, err := a.Client().CoreV1().ServiceAccounts("keda").CreateToken(a.ctx, "keda-operator", &authentication.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig := a.kubeconfig(t, "keda", token.Status.Token)
	env := []string{"KUBECONFIG=" + kubeconfig, "POD_NAMESPACE=keda", "KEDA_CLUSTER_OBJECT_NAMESPACE=keda", "WATCH_NAMESPACE="}
	a.start(t, machine.Program{
		Name: "keda-operator", Path: operator, Env: env, Ready: a.listens(operatorHealth),
		Args: []string{
			"keda-operator", "--zap-log-level=info", "--zap-encoder=console", "--cert-dir=" + a.folder, "--health-probe-bind-address=" + operatorHealth,
			"--metrics-bind-address=" + operatorMetrics, "--metrics-service-bind-address=" + operatorGRPC,
		},
	})
	a.start(t, machine.Program{
		Name: "keda-adapter", Path: adapter, Env: env, Ready: a.listens(fmt.Sprintf("127.0.0.1:%d", kedaMetricsPort)),
		Args: append(a.servingArgs("keda-adapter", kedaMetricsPort, kubeconfig), "--cert-dir="+a.folder, "--client-ca-file="+a.file("ca.crt"), "--port=18082",
			"--metrics-service-address="+operatorGRPC, "--metrics-service-grpc-authority="+metricsHost),
	})
	a.write(t, fmt.Sprintf("apiVersion: v1\nkind: Service\nmetadata: {name: metrics, namespace: keda}\nspec: {type: ExternalName, externalName: %s}\n", a.Nodes[0].Address))
	a.serveMetrics(t, kedaMetricsPort)
}

// startPrometheus starts Prometheus, which scrapes the controllers.
func (a *autoscaled) startPrometheus(t *testing.T) {
	program, err := exec.LookPath("prometheus")
	if err != nil {
		t.Fatalf("%v: hack/ecosystem.sh fetches it", err)
	}
	var targets []string
	for _, p := range a.pods(t, "gshare-system", "app", "gshare-controller") {
		targets = append(targets, fmt.Sprintf("%q", net.JoinHostPort(p.Status.PodIP, "9090")))
	}
	config := fmt.Sprintf("scrape_configs: [{job_name: gshare, scrape_interval: 1s, static_configs: [{targets: [%s]}]}]\n", strings.Join(targets, ", "))
	if err := os.WriteFile(a.file("prometheus.yaml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	a.start(t, machine.Program{
		Name: "prometheus", Path: program, Ready: a.listens(prometheusAddress),
		Args: []string{"--config.file=" + a.file("prometheus.yaml"), "--storage.tsdb.path=" + a.file("prometheus"), "--web.listen-address=" + prometheusAddress},
	})
}

// startPrometheusAdapter starts prometheus-adapter, and makes the API server request external metrics from it.
func (a *autoscaled) startPrometheusAdapter(t *testing.T) {
	adapter := buildOf(t, "prometheusadapter", "prometheus-adapter", "sigs.k8s.io/prometheus-adapter/cmd/adapter", small)
	_, rules, _ := strings.Cut(a.recipe(t, "externalRules:"), "config.yaml: |\n")
	if err := os.WriteFile(a.file("adapter.yaml"), []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	kubeconfig := a.kubeconfig(t, "prometheus-adapter", a.Token(access.Admin))
	a.start(t, machine.Program{
		Name: "prometheus-adapter", Path: adapter, Ready: a.listens(fmt.Sprintf("127.0.0.1:%d", promMetricsPort)),
		Args: append(a.servingArgs("prometheus-adapter", promMetricsPort, kubeconfig), "--prometheus-url=http://"+prometheusAddress, "--config="+a.file("adapter.yaml"),
			"--metrics-relist-interval=5s"),
	})
	a.serveMetrics(t, promMetricsPort)
}

// servingArgs returns the flags that make a server of the Kubernetes API serve and authenticate its callers.
func (a *autoscaled) servingArgs(name string, port int, kubeconfig string) []string {
	return []string{
		name, fmt.Sprintf("--secure-port=%d", port), "--tls-cert-file=" + a.file("tls.crt"), "--tls-private-key-file=" + a.file("tls.key"),
		"--lister-kubeconfig=" + kubeconfig, "--authentication-kubeconfig=" + kubeconfig, "--authorization-kubeconfig=" + kubeconfig,
	}
}

// serveMetrics makes the API server forward requests for external metrics to a port of the node.
func (a *autoscaled) serveMetrics(t *testing.T, port int) {
	t.Helper()
	ca, err := os.ReadFile(a.file("ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	a.write(t, fmt.Sprintf(`apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1beta1.external.metrics.k8s.io}
spec:
  group: external.metrics.k8s.io
  version: v1beta1
  groupPriorityMinimum: 100
  versionPriority: 100
  caBundle: %s
  service: {name: metrics, namespace: keda, port: %d}
`, base64.StdEncoding.EncodeToString(ca), port))
	a.wait(t, "external metrics are served", func() bool {
		out, err := a.run(a.ctx, t, "get", "--raw", "/apis/external.metrics.k8s.io/v1beta1")
		return err == nil && strings.Contains(out, "resources")
	})
}

func (a *autoscaled) kubeconfig(t *testing.T, name, token string) string {
	t.Helper()
	text, err := a.Kubeconfig(token)
	if err == nil {
		err = os.WriteFile(a.file(name+".kubeconfig"), text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return a.file(name + ".kubeconfig")
}

// start starts a program on the first node, and logs the end of its log if the test fails.
func (a *autoscaled) start(t *testing.T, program machine.Program) {
	t.Helper()
	p, err := a.Nodes[0].Machine.Start(a.ctx, program)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s:\n%s", p, executable.LogTail(p.LogFile))
		}
	})
}

// listens returns a Ready function: the program is ready once something accepts connections at an address of the node.
func (a *autoscaled) listens(address string) func(context.Context) error {
	return func(ctx context.Context) error {
		connection, err := a.Nodes[0].Machine.Dial(ctx, "tcp", address)
		if err == nil {
			_ = connection.Close()
		}
		return err
	}
}
