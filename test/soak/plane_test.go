package soak_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	authentication "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/gshare-dev/gshare/manifests"
	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/serving/controller"
	"github.com/gshare-dev/gshare/serving/identity"
	"github.com/gshare-dev/gshare/test/controlplane"
	"github.com/gshare-dev/gshare/test/controlplane/access"
)

const (
	namespace = "gshare-system"
	account   = "gshare-controller"
	user      = "system:serviceaccount:" + namespace + ":" + account
	service   = "gshare-gateway-reports"
)

// clients are an administrator's clients, without a rate limit.
type clients struct {
	config  *rest.Config
	core    kubernetes.Interface
	objects client.Client
}

// auditPolicy makes the API server log what the controller writes, and nothing else.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  users: ["` + user + `"]
  verbs: [create, update, patch, delete, deletecollection]
- level: None
`

// newWorld starts the API server, the kubelet of the hollow nodes, the gateways and the controller.
func newWorld(ctx context.Context, t *testing.T) *world {
	t.Helper()
	folder := t.TempDir()
	log := filepath.Join(folder, "audit.log")
	policy := filepath.Join(folder, "audit.yaml")
	if err := os.WriteFile(policy, []byte(auditPolicy), 0o600); err != nil {
		t.Fatal(err)
	}
	plane, err := controlplane.Start(ctx, controlplane.Options{APIServerArgs: []string{
		"--audit-policy-file=" + policy, "--audit-log-path=" + log, "--audit-log-maxsize=100000", // MB: it is never rotated
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := plane.Stop(); err != nil {
			t.Error(err)
		}
	})
	w := &world{ctx: ctx, plane: plane, writes: newWrites(log), nodes: 2 + *functionCount*4/podsOfNode}
	w.clients.config = plane.Config(access.Admin)
	if w.clients.core, err = kubernetes.NewForConfig(w.clients.config); err != nil {
		t.Fatal(err)
	}
	scheme, err := controller.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	if w.clients.objects, err = client.New(w.clients.config, client.Options{Scheme: scheme}); err != nil {
		t.Fatal(err)
	}
	w.install(t)
	w.createNodes(t)
	w.kubelet = startKubelet(ctx, t, w.clients.core, w.nodes)
	kubeconfig, token := filepath.Join(folder, "controller.kubeconfig"), filepath.Join(folder, "token")
	w.writeKubeconfig(t, kubeconfig)
	if err := os.WriteFile(token, []byte(w.token(t, identity.AudienceReports)), 0o600); err != nil {
		t.Fatal(err)
	}
	w.controller = startController(t, filepath.Join(folder, "controller.log"), kubeconfig, token)
	w.gateways = startGateways(ctx, t, w.clients, filepath.Join(folder, "tls"))
	w.kubelet.drained = w.gateways.setDrained
	return w
}

// install creates what the controller needs: the CRDs, and the service account and roles that it has in a cluster.
func (w *world) install(t *testing.T) {
	t.Helper()
	access, err := os.ReadFile("../../manifests/serving/controller.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range append([][]byte{manifests.Namespace, access}, manifests.ServingDefinitions()...) {
		documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
		for {
			document, err := documents.Read()
			if errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
			o := &unstructured.Unstructured{}
			if err := yaml.Unmarshal(document, &o.Object); err != nil {
				t.Fatal(err)
			}
			if kind := o.GetKind(); kind == "Deployment" || kind == "PodDisruptionBudget" || kind == "" {
				continue // the controller runs as a process of this machine
			}
			if err := w.clients.objects.Create(w.ctx, o); err != nil {
				t.Fatalf("create %s %s: %v", o.GetKind(), o.GetName(), err)
			}
		}
	}
	served := func(ctx context.Context) (bool, error) {
		return w.clients.objects.List(ctx, &api.GPUFunctionList{}) == nil && w.clients.objects.List(ctx, &api.FaSTPodList{}) == nil, nil
	}
	if err := wait.PollUntilContextTimeout(w.ctx, 100*time.Millisecond, time.Minute, true, served); err != nil {
		t.Fatalf("wait for the definitions of serving: %v", err)
	}
}

// token returns a token of the controller's service account for an audience, by default the API server.
func (w *world) token(t *testing.T, audience ...string) string {
	t.Helper()
	request := &authentication.TokenRequest{Spec: authentication.TokenRequestSpec{Audiences: audience, ExpirationSeconds: new(int64(24 * 3600))}}
	answer, err := w.clients.core.CoreV1().ServiceAccounts(namespace).CreateToken(w.ctx, account, request, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return answer.Status.Token
}

// writeKubeconfig writes a kubeconfig with the controller's own service account, so that it has the same permissions as in a
// cluster.
func (w *world) writeKubeconfig(t *testing.T, path string) {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: w.clients.config.Host, CertificateAuthorityData: w.clients.config.CAData}
	config.AuthInfos["c"] = &clientcmdapi.AuthInfo{Token: w.token(t)}
	config.Contexts["c"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "c"}
	config.CurrentContext = "c"
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
}

// namespaceOf returns the namespace of a function. There are 100 functions in each namespace.
func namespaceOf(n int) string { return fmt.Sprintf("team-%d", n/100) }

func nameOf(n int) string { return fmt.Sprintf("model-%d", n) }

// writers is the number of concurrent requests that create objects.
const writers = 8

// fill creates the functions, and waits until as many pods are Ready as their load needs.
func (w *world) fill(t *testing.T) {
	t.Helper()
	for n := 0; n < *functionCount; n += 100 {
		o := &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespaceOf(n)}}
		if err := w.clients.objects.Create(w.ctx, o); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
	group, ctx := errgroup.WithContext(w.ctx)
	group.SetLimit(writers)
	for n := range *functionCount {
		group.Go(func() error { return w.clients.objects.Create(ctx, function(n)) })
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	wanted := 0
	for n := range *functionCount {
		wanted += replicasOf(n)
	}
	for looks := 0; w.kubelet.ready() < wanted; looks++ {
		if looks%30 == 29 {
			t.Logf("%d of %d pods are Ready", w.kubelet.ready(), wanted)
		}
		w.sleep(t, time.Second)
	}
}

// capacity is how many requests per second a replica can answer.
const capacity = 100

// function returns a function as users would write it, except that in a short run it scales within seconds.
func function(n int) *api.GPUFunction {
	window, keep := api.Duration("10s"), api.Duration("2m") // the defaults
	if *functionCount < many {
		window, keep = "3s", "1s"
	}
	return &api.GPUFunction{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespaceOf(n), Name: nameOf(n), Labels: map[string]string{"app.kubernetes.io/name": nameOf(n), "team": namespaceOf(n)}},
		Spec: api.GPUFunctionSpec{
			SLO: api.SLO{Latency: "100ms"},
			Resources: api.Resources{Share: &api.Share{
				SM: new(int64(12)), Quota: new(int64(40)), QuotaLimit: new(int64(80)), Memory: "1525Mi",
			}},
			Scaling: api.Scaling{RequestsPerSecond: capacity, MaxReplicas: new(10), Concurrency: new(4), Window: window, KeepShared: keep},
			Template: v1.PodTemplateSpec{Spec: v1.PodSpec{
				Containers: []v1.Container{{
					Name: "server", Image: "registry.example/models/" + nameOf(n) + ":v1.4.2", Args: []string{"--model", "/models/" + nameOf(n), "--dtype", "fp16"},
					Env:          []v1.EnvVar{{Name: "MODEL", Value: nameOf(n)}, {Name: "LOG_LEVEL", Value: "info"}, {Name: "CACHE", Value: "/cache"}},
					VolumeMounts: []v1.VolumeMount{{Name: "models", MountPath: "/models", ReadOnly: true}, {Name: "cache", MountPath: "/cache"}},
				}},
				Volumes: []v1.Volume{
					{Name: "models", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "models"}}},
					{Name: "cache", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}},
				},
			}},
		},
	}
}
