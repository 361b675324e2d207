package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	coordination "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/serving/controller"
	"github.com/gshare-dev/gshare/test/cluster"
	"github.com/gshare-dev/gshare/test/controlplane/access"
	"github.com/gshare-dev/gshare/vgpu/kube"
)

const modelImage = "docker.io/local/model:1"

// sixLines is the minimal function, plus access, since the tests send requests from nodes.
const sixLines = `apiVersion: serving.gshare.dev/v1alpha1
kind: GPUFunction
metadata: {name: resnet50}
spec:
  slo: {latency: 5s}
  access: {namespaces: ["*"]}
  template: {spec: {containers: [{name: server, image: "` + modelImage + `", args: [--batch, 1=10ms]}]}}
`

// served is a cluster with two nodes, with controllers and gateways in pods.
type served struct {
	*agents
	ctx     context.Context
	objects client.Client
	http    http.Client // dials from a node, where pods have routable addresses
}

// TestServing creates a function of six lines, sends requests to it, and takes away what serves them. Then it tests a function that keeps a reserve, and one
// that is parked, and one with two GPUs for each replica.
func TestServing(t *testing.T) {
	s := startServing(t)
	s.write(t, sixLines)
	for _, part := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"answers from zero", s.answersFromZero}, {"status", s.hasStatus}, {"callers", s.refusesCallers}, {"another leader", s.anotherLeader}, {"lost pod", s.lostPod},
		{"fastpod", s.scalesFastPod}, {"policy", s.obeysPolicy}, {"another autoscaler", s.namesOtherAutoscaler}, {"failing", s.failsClearly},
		{"deleted", s.deleted},
		{"reserve", s.keepsReserve}, {"reserve is Hot again", s.raisesReserve}, {"time of the reserve", s.givesTimeOfReserve},
		{"reserve without room", s.replacesReserve}, {"room of the reserve", s.endsReserve}, {"reserve deleted", s.deletesReserve},
		{"parked", s.parks}, {"memory of the parked", s.givesMemoryOfParked}, {"woken", s.wakesParked}, {"two GPUs", s.givesTwoGPUs},
	} {
		if !t.Run(part.name, part.run) {
			return // what follows would fail, too
		}
	}
}

// startServing starts a cluster and installs serving. It passes additional flags to the API server.
func startServing(t *testing.T, apiServerArgs ...string) *served {
	t.Helper()
	driver := buildDriver(t)
	images := []cluster.Image{servingImage(t, "gshare-controller"), servingImage(t, "gshare-gateway"), modelImageOf(t, driver)}
	s := &served{agents: startWithAgents(t, cluster.Options{Images: images, APIServerArgs: apiServerArgs}, twoGPUs)}
	var stop context.CancelFunc
	s.ctx, stop = context.WithTimeout(t.Context(), 25*time.Minute)
	t.Cleanup(stop)
	s.http.Transport = &http.Transport{DialContext: s.Nodes[0].Machine.Dial}
	s.gpus = startGPUs(t, s.agents, driver, "GPU-0", "GPU-1")
	s.serve(t)
	return s
}

// serve installs the controller and the gateways, and waits until they run.
func (s *served) serve(t *testing.T) {
	t.Helper()
	scheme, err := controller.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	if s.objects, err = client.New(s.Config(access.Admin), client.Options{Scheme: scheme}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.explain(t) })
	s.kubectl(t, "apply", "-k", s.overlay(t))
	for _, name := range []string{"gshare-controller", "gshare-gateway"} {
		s.kubectl(t, "-n", "gshare-system", "rollout", "status", "deployment/"+name, "--timeout=600s")
	}
}

func servingImage(t *testing.T, name string) cluster.Image {
	t.Helper()
	return cluster.Image{Name: "docker.io/library/" + name + ":dev", Files: withLibraries(t, "/bin/"+name, buildOf(t, "../..", name, "./cmd/"+name)), Bare: true}
}

// modelImageOf returns the image of a model server whose driver is the fake one.
func modelImageOf(t *testing.T, driver string) cluster.Image {
	t.Helper()
	files := withLibraries(t, "/bin/gshare-model", buildOf(t, "../..", "gshare-model", "./cmd/gshare-model"))
	maps.Copy(files, workloadImage(t, driver).Files)
	return cluster.Image{Name: modelImage, Files: files, Entrypoint: "/bin/gshare-model"}
}

// overlay returns manifests/serving, with the features that tests use, and changed for a cluster without kube-proxy, where the address of the service
// kubernetes does not work, and without the default scheduler.
func (s *served) overlay(t *testing.T) string {
	t.Helper()
	folder := filepath.Join(s.Dir, "serving")
	here, err := filepath.Abs("../../manifests/serving")
	if err != nil {
		t.Fatal(err)
	}
	base, err := filepath.Rel(folder, here)
	if err != nil {
		t.Fatal(err)
	}
	host, port, _ := strings.Cut(strings.TrimPrefix(s.Config(access.Admin).Host, "https://"), ":")
	text := fmt.Sprintf("resources: [%s]\npatches:\n", base)
	for _, name := range []string{"controller", "gateway"} {
		text += fmt.Sprintf(`- patch: |
    apiVersion: apps/v1
    kind: Deployment
    metadata: {name: gshare-%s, namespace: gshare-system}
    spec: {template: {spec: {schedulerName: gshare, containers: [{name: %[1]s, env: [{name: KUBERNETES_SERVICE_HOST, value: "%s"}, {name: KUBERNETES_SERVICE_PORT, value: "%s"}]}]}}}
`, name, host, port)
	}
	text += `- target: {kind: Deployment, name: gshare-controller}
  patch: |
    - {op: add, path: /spec/template/spec/containers/0/args/-, value: "--feature-gates=Parking=true,Pipelines=true,PlanApply=true,Swap=true"}
`
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "kustomization.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return folder
}

// run runs kubectl.
func (s *served) run(ctx context.Context, t *testing.T, args ...string) (string, error) {
	t.Helper()
	file := filepath.Join(s.Dir, "serving.kubeconfig")
	content, err := s.Kubeconfig(s.Token(access.Admin))
	if err == nil {
		err = os.WriteFile(file, content, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	out, err := s.Nodes[0].Machine.Run(ctx, hyperkube(t), append([]string{"kubectl", "--kubeconfig", file, "--cache-dir", filepath.Join(s.Dir, "cache")}, args...)...)
	return string(out), err
}

func (s *served) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := s.run(s.ctx, t, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func (s *served) explain(t *testing.T) {
	if !t.Failed() {
		return
	}
	for _, args := range [][]string{
		{"get", "pods,gpufunctions,fastpods,events", "-A", "-o", "wide"}, {"-n", "gshare-system", "logs", "-l", "app=gshare-controller", "--tail=60", "--prefix"},
		{"-n", "gshare-system", "logs", "-l", "app=gshare-gateway", "--tail=30", "--prefix"}, {"get", "gpufunctions", "-o", "yaml"},
		{"logs", "-l", api.LabelFaSTPod, "--tail=20", "--prefix", "--all-containers"},
	} {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		out, err := s.run(ctx, t, args...)
		cancel()
		t.Logf("%v: %v\n%s", args, err, out)
	}
}

// write applies an object, which it creates or changes.
func (s *served) write(t *testing.T, text string) {
	t.Helper()
	file := filepath.Join(s.Dir, "object.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s.kubectl(t, "apply", "-f", file)
}

// pods returns the pods with a label that are not being deleted.
func (s *served) pods(t *testing.T, namespace, label, value string) []v1.Pod {
	t.Helper()
	list := &v1.PodList{}
	s.until(t, "list of pods", func() error {
		return s.objects.List(s.ctx, list, client.InNamespace(namespace), client.MatchingLabels{label: value})
	})
	var found []v1.Pod
	for _, p := range list.Items {
		if p.DeletionTimestamp == nil && !kube.Ended(&p) {
			found = append(found, p)
		}
	}
	return found
}

// ask sends a request for a function from a node to the first gateway, and returns an error unless the response has status 200.
func (s *served) ask(t *testing.T, function string) error {
	t.Helper()
	return s.askAt(t, s.pods(t, "gshare-system", "app", "gshare-gateway")[0], function)
}

// askAt is like ask, but uses the given gateway.
func (s *served) askAt(t *testing.T, gateway v1.Pod, function string) error {
	t.Helper()
	request, err := http.NewRequestWithContext(s.ctx, http.MethodGet, "http://"+gateway.Status.PodIP+":8080/v2/health/ready", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Host = function + ".default"
	response, err := s.http.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s %s (%v)", response.Status, response.Header.Get("X-Gshare-Reason"), body, err)
	}
	return err
}

// askFirst is like ask, for a function that the gateway may not know yet.
func (s *served) askFirst(t *testing.T, function string) error {
	t.Helper()
	return s.askFirstAt(t, s.pods(t, "gshare-system", "app", "gshare-gateway")[0], function)
}

// askFirstAt repeats the first request for a function until the gateway knows the function: like the test, the gateway learns of it from the API server,
// possibly later. Until then, requests from a node, whose address is not that of a pod, are refused as for an unknown name. It also repeats requests that
// are refused because the first replica takes longer than a minute or has to be started again, as on a busy machine.
func (s *served) askFirstAt(t *testing.T, gateway v1.Pod, function string) error {
	t.Helper()
	var err error
	s.wait(t, "known to gateway "+gateway.Name, func() bool {
		err = s.askAt(t, gateway, function)
		return err == nil || !temporaryRefusal.MatchString(err.Error())
	})
	return err
}

var temporaryRefusal = regexp.MustCompile("^(403|404|503 Service Unavailable: (backing-off|hold-expired) )")

// get returns the body of the response to a GET request.
func (s *served) get(url string) (string, error) {
	ctx, cancel := context.WithTimeout(s.ctx, 10*time.Second) // what has the address may have ended
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	response, err := s.http.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return string(text), err
}

// wait waits until a condition of the cluster holds, and returns how long that took.
func (s *served) wait(t *testing.T, what string, holds func() bool) time.Duration {
	t.Helper()
	return s.until(t, what, func() error {
		if !holds() {
			return errNotYet
		}
		return nil
	})
}

var errNotYet = errors.New("it does not hold")

// until repeats what may fail for a while until it succeeds, and returns how long that took. If it does not succeed, the test ends with the last error.
func (s *served) until(t *testing.T, what string, try func() error) time.Duration {
	t.Helper()
	began := time.Now()
	var last error
	err := wait.PollUntilContextTimeout(s.ctx, 100*time.Millisecond, 3*time.Minute, true, func(context.Context) (bool, error) {
		last = try()
		return last == nil, nil
	})
	if err != nil {
		t.Fatalf("%s: %v: %v", what, err, last)
	}
	return time.Since(began)
}

func (s *served) function(t *testing.T) *api.GPUFunction {
	t.Helper()
	f := &api.GPUFunction{}
	s.read(t, "default", "resnet50", f)
	return f
}

// read reads an object. Like all that only reads, it tries again if it fails, since the API server may be slow to answer.
func (s *served) read(t *testing.T, namespace, name string, o client.Object) {
	t.Helper()
	s.until(t, "read "+name, func() error { return s.objects.Get(s.ctx, client.ObjectKey{Namespace: namespace, Name: name}, o) })
}

// kubectlGet returns the output of kubectl get.
func (s *served) kubectlGet(t *testing.T, args ...string) (out string) {
	t.Helper()
	s.until(t, "kubectl get", func() (err error) {
		out, err = s.run(s.ctx, t, append([]string{"get"}, args...)...)
		return err
	})
	return out
}

// answersFromZero: the first request for a function without pods is answered by a pod that is created for it, on a whole GPU.
func (s *served) answersFromZero(t *testing.T) {
	s.wait(t, "known to the controller", func() bool { return s.function(t).Status.ObservedGeneration > 0 })
	if pods := s.pods(t, "default", api.LabelFunction, "resnet50"); len(pods) != 0 {
		t.Fatalf("%d pods without a request", len(pods))
	}
	created, began := s.firstPod(t, "resnet50"), time.Now()
	if err := s.askFirst(t, "resnet50"); err != nil {
		t.Fatal(err)
	}
	answered := time.Since(began)
	seen := <-created
	pods := s.pods(t, "default", api.LabelFunction, "resnet50")
	if len(pods) != 1 {
		t.Fatalf("%d pods", len(pods))
	}
	placement, present, err := kube.PlacementOf(&pods[0])
	if err != nil || !present || placement.Containers[0].VGPUs[0].Share.SMRequest != 1000 {
		t.Errorf("placed as %+v, %v: want a whole GPU", placement, err)
	}
	t.Logf("the pod is there %d ms after the request, and the first answer after %.2f s; the same pod without a gateway is Ready after %.2f s",
		seen.Sub(began).Milliseconds(), answered.Seconds(), s.withoutGateway(t, &pods[0]).Seconds())
}

// hasStatus: the function reports its replica, and so does the leader in its metrics. Without requests, the replica would go into reserve.
func (s *served) hasStatus(t *testing.T) {
	s.until(t, "status", func() error {
		if err := s.ask(t, "resnet50"); err != nil {
			return err
		}
		status := s.function(t).Status
		if c := meta.FindStatusCondition(status.Conditions, api.ConditionReady); c == nil || c.Status != metav1.ConditionTrue || c.Reason != "Unprofiled" ||
			status.ReadyReplicas != 1 || status.Pods != "1+0+0" || status.Share != "100% x 100%" {
			return fmt.Errorf("%+v", status)
		}
		return nil
	})
	t.Log("\n" + s.kubectl(t, "get", "gpufunctions,fastpods"))
	if host := s.kubectl(t, "get", "service", "resnet50", "-o", "jsonpath={.spec.externalName}"); host != "gshare-gateway.gshare-system.svc.cluster.local" {
		t.Errorf("the name of the function leads to %q", host)
	}
	s.until(t, "the leader's metrics", func() error {
		if err := s.ask(t, "resnet50"); err != nil {
			return err
		}
		leader, _ := s.leader(t)
		text, err := s.get("http://" + leader.Status.PodIP + ":9090/metrics")
		if err == nil && !strings.Contains(text, `gshare_fleet_replicas{function="resnet50",namespace="default",phase="ready"} 1`) {
			err = fmt.Errorf("%s lacks the replica:\n%s", leader.Name, text)
		}
		return err
	})
	s.kubectl(t, "patch", "gpufunction", "resnet50", "--type=merge", "-p", `{"spec": {"scaling": {"minReplicas": 1}}}`) // the next parts send few requests
}

// kill ends the processes of a pod with SIGKILL.
func (s *served) kill(t *testing.T, pod *v1.Pod) {
	t.Helper()
	pids := pidsOf(t, pod)
	if len(pids) == 0 {
		t.Fatalf("%s has no processes", pod.Name)
	}
	for _, pid := range pids {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) { // it may have ended with one killed before
			t.Fatal(err)
		}
	}
}

// ready returns how many of the function's pods accept requests.
func (s *served) ready(t *testing.T) (n int) {
	t.Helper()
	for _, p := range s.pods(t, "default", api.LabelFunction, "resnet50") {
		if _, ready := api.Address(&p); ready {
			n++
		}
	}
	return n
}

// holder returns the identity of the controller process that leads: the name of its pod and an ID of the process.
func (s *served) holder(t *testing.T) string {
	t.Helper()
	lease := &coordination.Lease{}
	s.read(t, "gshare-system", "gshare-controller", lease)
	if lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *lease.Spec.HolderIdentity
}

// leadsAfter reports whether a process other than the former holder leads. It may be in the other pod, or the restarted process of the same pod if that is
// faster.
func (s *served) leadsAfter(t *testing.T, holder string) bool {
	t.Helper()
	now := s.holder(t)
	return now != "" && now != holder
}

// leader waits until a controller leads, and returns its pod and its identity as the holder.
func (s *served) leader(t *testing.T) (pod v1.Pod, holder string) {
	t.Helper()
	s.wait(t, "a leader", func() bool {
		holder = s.holder(t)
		name, _, _ := strings.Cut(holder, "_")
		pods := s.pods(t, "gshare-system", "app", "gshare-controller")
		at := slices.IndexFunc(pods, func(p v1.Pod) bool { return p.Name == name })
		if at >= 0 {
			pod = pods[at]
		}
		return at >= 0
	})
	return pod, holder
}

// anotherLeader: after the leader is killed, the next leader goes on with the same pods.
func (s *served) anotherLeader(t *testing.T) {
	before := s.pods(t, "default", api.LabelFunction, "resnet50")
	leader, holder := s.leader(t)
	s.kill(t, &leader)
	took := s.wait(t, "another leader", func() bool { return s.leadsAfter(t, holder) })
	t.Logf("another leader after %.1f s", took.Seconds())
	if err := s.ask(t, "resnet50"); err != nil {
		t.Error(err)
	}
	s.write(t, strings.Replace(sixLines, "spec:\n", "spec:\n  scaling: {minReplicas: 2}\n", 1))
	s.wait(t, "two pods", func() bool { return s.ready(t) == 2 })
	pods := s.pods(t, "default", api.LabelFunction, "resnet50")
	if len(pods) != 2 || pods[0].UID != before[0].UID && pods[1].UID != before[0].UID {
		t.Errorf("%d pods, that of before is not among them", len(pods))
	}
}

// lostPod: a pod that somebody deletes is replaced, and meanwhile requests go to the others.
func (s *served) lostPod(t *testing.T) {
	victim := s.pods(t, "default", api.LabelFunction, "resnet50")[0]
	s.kubectl(t, "delete", "pod", victim.Name, "--wait=false")
	c := s.newClients(t, "resnet50") // a model server that is stopping answers their requests, but not that for its health
	for range 5 {
		if err := c.request(); err != nil {
			t.Error(err)
		}
	}
	s.wait(t, "two pods again", func() bool {
		pods := s.pods(t, "default", api.LabelFunction, "resnet50")
		return len(pods) == 2 && pods[0].UID != victim.UID && pods[1].UID != victim.UID && s.ready(t) == 2
	})
}

// scalesFastPod: a FaSTPod without a function has as many pods as kubectl scale sets.
func (s *served) scalesFastPod(t *testing.T) {
	s.write(t, `apiVersion: serving.gshare.dev/v1alpha1
kind: FaSTPod
metadata: {name: bert}
spec:
  share: {sm: 12, quota: 40, memory: 1Gi}
  template: {spec: {containers: [{name: server, image: "`+modelImage+`", args: [--batch, 1=10ms], readinessProbe: {tcpSocket: {port: 8080}}}]}}
`)
	ready := func(n int32) func() bool {
		return func() bool {
			fp := &api.FaSTPod{}
			err := s.objects.Get(s.ctx, client.ObjectKey{Namespace: "default", Name: "bert"}, fp)
			return err == nil && fp.Status.ReadyReplicas == n && fp.Status.Replicas == n
		}
	}
	s.wait(t, "one pod", ready(1))
	s.kubectl(t, "scale", "fastpod", "bert", "--replicas=3")
	s.wait(t, "three pods", ready(3))
	s.kubectl(t, "scale", "fastpod", "bert", "--replicas=1")
	s.wait(t, "one pod again", ready(1))
	if pods := s.pods(t, "default", api.LabelFaSTPod, "bert"); len(pods) != 1 {
		t.Errorf("%d pods", len(pods))
	}
}

// failsClearly: while the only replica of a function fails, requests are refused at once, with the same reason as in the function's status.
func (s *served) failsClearly(t *testing.T) {
	s.write(t, strings.NewReplacer("name: resnet50", "name: broken", "1=10ms", "nonsense").Replace(sixLines))
	refused := func() bool {
		err := s.ask(t, "broken")
		return err != nil && strings.HasPrefix(err.Error(), "503") && strings.Contains(err.Error(), "container server")
	}
	s.wait(t, "refused with the reason", refused)
	s.wait(t, "status with the reason", func() bool { // while the container starts again, there is another one
		f := &api.GPUFunction{}
		return s.objects.Get(s.ctx, client.ObjectKey{Namespace: "default", Name: "broken"}, f) == nil && slices.ContainsFunc(f.Status.Conditions, func(c metav1.Condition) bool {
			return strings.Contains(c.Message, "broken-") && strings.Contains(c.Message, "container server")
		})
	})
	s.kubectl(t, "delete", "gpufunction", "broken")
}

// deleted: nothing is left of deleted objects.
func (s *served) deleted(t *testing.T) {
	s.kubectl(t, "delete", "gpufunction", "resnet50")
	s.kubectl(t, "delete", "fastpod", "bert")
	s.wait(t, "no pods", func() bool {
		list := &v1.PodList{}
		services := &v1.ServiceList{}
		return s.objects.List(s.ctx, list, client.InNamespace("default")) == nil && len(list.Items) == 0 &&
			s.objects.List(s.ctx, services, client.InNamespace("default"), client.HasLabels{api.LabelFunction}) == nil && len(services.Items) == 0
	})
	if err := s.ask(t, "resnet50"); err == nil {
		t.Error("a deleted function answers")
	}
}
