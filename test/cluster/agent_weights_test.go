package cluster_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/gshare-dev/gshare/node/cgroup"
	"github.com/gshare-dev/gshare/test/cluster"
	"github.com/gshare-dev/gshare/vgpu/kube"
)

const oneV100 = "devices:\n- {uuid: GPU-0, model: V100, sms: 80, memoryMiB: 16384}\n"

// The memory of ResNeXt in figure 13 of FaST-GShare, in MiB: of a pod with its own weights, and of a pod that shares them. The weights take what the
// paper's store takes for them, rounded to whole units of 2 MiB. The rest of a share beyond the workspace is for inputs.
const (
	resnextAlone, resnextShared, resnextWeights = 3335, 1829, 1806
	resnextWorkspace                            = resnextShared - 4
)

// weighing is a node whose agent runs model stores, on one GPU of 16 GB.
type weighing struct {
	*agents
	ctx   context.Context
	node  *cluster.Node
	agent *agent
	env   []string // for programs on the node that use the GPU
	model string   // path of gshare-model
	http  http.Client
}

// TestSharedWeights is figure 13 of FaST-GShare with a real kubelet: on a GPU of 16 GB run seven pods of ResNeXt that share its weights, but
// only four that do not. The driver counts the weights once. Meanwhile, the agent, the store, both of them, and a pod that has mapped the weights are
// killed. In the end nothing may be left.
func TestSharedWeights(t *testing.T) {
	w := startWeighing(t)
	for _, part := range []struct {
		name string
		run  func(*testing.T)
	}{{"own weights", w.fourAlone}, {"shared weights", w.sevenShare}, {"another namespace", w.refusesOthers}, {"agent killed", w.agentKilled}, {"pod killed", w.podKilled},
		{"store killed", w.storeKilled}, {"store and agent killed", w.bothKilled}, {"nothing is left", w.leavesNothing}} {
		if !t.Run(part.name, part.run) {
			return // what follows would fail, too
		}
	}
}

func startWeighing(t *testing.T) *weighing {
	t.Helper()
	for _, name := range []string{"gshare-stores", "gshare-mps"} { // cgroups of programs that outlive the agent; they are removed last
		t.Cleanup(func() { _ = cgroup.Detached{Mount: "/sys/fs/cgroup", Name: name}.Remove() })
	}
	driver := buildDriver(t)
	w := &weighing{model: buildOf(t, "../..", "gshare-model", "./cmd/gshare-model")}
	image := modelImageOf(t, driver)
	maps.Copy(image.Files, withLibraries(t, "/bin/weights", filepath.Join(driver, "weights"))) // a program that uses libgshare_store.so
	library := filepath.Join(filepath.Dir(buildHook(t)), "libgshare_store.so")
	maps.Copy(image.Files, withLibraries(t, "/unused/libgshare_store.so", library)) // for the parts of the C library, which other images have
	w.agents = startWithAgents(t, cluster.Options{Nodes: 1, Images: []cluster.Image{image}}, oneV100)
	w.gpus = startGPUs(t, w.agents, driver, "GPU-0")
	var stop context.CancelFunc
	w.ctx, stop = context.WithTimeout(t.Context(), 15*time.Minute)
	t.Cleanup(stop)
	w.node = w.Nodes[0]
	w.agent = w.of[w.node.Name]
	w.http.Transport = &http.Transport{DialContext: w.node.Machine.Dial}

	account := filepath.Join(w.Dir, "account") // the driver's account, shared by all programs of the node
	if err := os.WriteFile(account, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(account, 0o666); err != nil {
		t.Fatal(err)
	}
	w.edit(t, filepath.Join(w.Dir, "driver.yaml"), "env: [LD_LIBRARY_PATH=/usr/lib/fake]\n  mounts: [",
		"env: [LD_LIBRARY_PATH=/usr/lib/fake, FAKE_CUDA_SHARED=/dev/account]\n  mounts: [{hostPath: "+account+", containerPath: /dev/account, options: [rbind]}, ")
	fake := filepath.Join(w.Dir, "fake")
	w.edit(t, w.agent.program.Args[1], "\nkubernetes:\n", "\nsimulatedMPS: "+fake+"/nvidia-cuda-mps-control\nkubernetes:\n  modelStore: true\n")
	w.env = []string{"LD_LIBRARY_PATH=" + fake, "FAKE_CUDA_SHARED=" + account}
	w.agent.program.Env = append([]string{"FAKE_CUDA_SOCKET=" + filepath.Join(w.Dir, "GPU-0.sock")}, w.env...)
	w.restartAgent(t)
	w.waitNode(w.ctx, t, w.node, func(n *v1.Node) bool {
		inv, present, err := kube.InventoryOf(n)
		return err == nil && present && len(inv.Slices) == 1 && inv.Slices[0].Store
	})
	t.Cleanup(func() { w.explain(t) })
	return w
}

// edit replaces a part of a file.
func (w *weighing) edit(t *testing.T, name, before, after string) {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), before) {
		t.Fatalf("%s has no %q: %s", name, before, text)
	}
	if err := os.WriteFile(name, []byte(strings.Replace(string(text), before, after, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
}

// restartAgent kills the agent, and returns once the next one serves.
func (w *weighing) restartAgent(t *testing.T) {
	t.Helper()
	w.agent.Kill()
	w.agent.start(w.ctx, t)
	w.agent.waitProxy(w.ctx, t)
}

// explain logs the state of the pods and the stores.
func (w *weighing) explain(t *testing.T) {
	if !t.Failed() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	for _, namespace := range []string{"default", "other"} {
		pods, err := w.Client().CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			t.Log(err)
			continue
		}
		for _, pod := range pods.Items {
			text, err := w.Client().CoreV1().Pods(namespace).GetLogs(pod.Name, &v1.PodLogOptions{}).DoRaw(ctx)
			t.Logf("%s: %s %+v\n%s (%v)", pod.Name, pod.Status.Phase, pod.Status.Conditions, text, err)
		}
	}
	logs, _ := filepath.Glob(w.node.Machine.HostPath("/run/gshare/stores/*/log"))
	for _, name := range logs {
		t.Logf("%s: %s", name, read(t, name))
	}
}

// fourAlone: four pods with weights of their own fit.
func (w *weighing) fourAlone(t *testing.T) {
	const fit = 4
	for i := range fit + 1 {
		w.create(w.ctx, t, w.server(fmt.Sprint("alone-", i), "resnext", resnextAlone-resnextShared, resnextWorkspace, resnextAlone, ""))
		if i < fit {
			w.ready(t, "default", fmt.Sprint("alone-", i))
		}
	}
	w.waits(t, fmt.Sprint("alone-", fit), "Insufficient gshare/mem") // Kubernetes' own accounting
	got := w.used(t)
	t.Logf("%d pods with their own weights run, and have %.0f MiB; one more waits", fit, got)
	if !near(got, fit*resnextAlone) {
		t.Errorf("%d pods have %.0f MiB, want about %d", fit, got, fit*resnextAlone)
	}
	w.clear(w.ctx, t)
}

// sevenShare: seven pods that share the weights of the store fit.
func (w *weighing) sevenShare(t *testing.T) {
	const fit = 7
	declared := w.declared(t, "resnext", resnextWeights)
	private, checksum := 0., ""
	for i := range fit + 1 {
		name := fmt.Sprint("shared-", i)
		w.create(w.ctx, t, w.server(name, "resnext", resnextWeights, resnextWorkspace, resnextShared, declared))
		if i == fit {
			w.waits(t, name, "insufficient GPU memory")
			break
		}
		answer, got := w.answer(t, w.ready(t, "default", name)), w.used(t)
		if i == 0 {
			private, checksum = got-resnextWeights, answer
		}
		if answer == "" || answer != checksum {
			t.Errorf("%s says %q, the first %q", name, answer, checksum)
		}
		want := resnextWeights + float64(i+1)*private
		t.Logf("%d pods have %.0f MiB: %d of weights and %.0f of each", i+1, got, resnextWeights, (got-resnextWeights)/float64(i+1))
		if !near(got, want) {
			t.Errorf("%d pods have %.0f MiB, want %.0f", i+1, got, want)
		}
	}
	if private < resnextWorkspace || private > resnextShared {
		t.Errorf("a pod has %.0f MiB besides the weights, want %d to %d", private, resnextWorkspace, resnextShared)
	}
	if err := w.Client().CoreV1().Pods("default").Delete(w.ctx, fmt.Sprint("shared-", fit), metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.checkLedger(t)
}

// refusesOthers: a pod of another namespace that declares weights gets a store of its own, and nothing of the first store. The control is a pod of the
// first namespace, which does get them.
func (w *weighing) refusesOthers(t *testing.T) {
	namespace := &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "other"}}
	if _, err := w.Client().CoreV1().Namespaces().Create(w.ctx, namespace, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	const text = "a text of weights"
	textDigest := fmt.Sprintf("%x", sha256.Sum256([]byte(text)))
	pod := w.server("stranger", "resnet50", 100, 10, 20, w.declared(t, "resnet50", 100)+",sha256:"+textDigest+"=2Mi")
	pod.Namespace = "other"
	if _, err := w.Client().CoreV1().Pods("other").Create(w.ctx, pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	stranger := w.ready(t, "other", "stranger")
	for _, verb := range []string{"stored", "read"} { // through the library that the agent has mounted
		out, err := w.node.Exec(w.ctx, stranger, "main", "sh", "-c", fmt.Sprintf(
			`LD_LIBRARY_PATH=$(dirname $GSHARE_STORE_LIBRARY):$LD_LIBRARY_PATH /bin/weights $GSHARE_STORE %s %q 2>&1; ls /usr/lib/gshare`, textDigest, text))
		if want := verb + " " + text + "\ndrain\ngshare_safetensors.py\ngshare_store.py\nlibgshare.so\nlibgshare_store.so\n"; string(out) != want {
			t.Errorf("the program with the library says %q (%v), want %q", out, err, want)
		}
	}
	digest, _, _ := strings.Cut(w.declared(t, "resnext", resnextWeights), "=")
	if out, err := w.verifyAs(t, stranger, digest); err == nil || !strings.Contains(out, "another namespace") {
		t.Errorf("a process of another namespace: %s, %v", out, err)
	}
	if out, err := w.verifyAs(t, w.sharing(t)[0], digest); err == nil || !strings.Contains(out, "bytes are unchanged") || !strings.Contains(out, "could write the weights") {
		t.Errorf("a process of the namespace: %s, %v", out, err)
	}
	if err := w.Client().CoreV1().Pods("other").Delete(w.ctx, "stranger", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.waitGrants(w.ctx, t, w.node, 7)
	w.waitStores(t, 1)
	w.checkLedger(t)
}

// agentKilled: programs and the store keep running without the agent, and the next agent finds them again.
func (w *weighing) agentKilled(t *testing.T) {
	_, control := w.storeOf("default")
	before := w.pidOf(t, control)
	used := w.used(t)
	w.agent.Kill()
	w.sharing(t)
	if got := w.used(t); got != used {
		t.Errorf("without the agent %.0f MiB are in use, before %.0f", got, used)
	}
	w.agent.start(w.ctx, t)
	w.sharing(t)
	if after := w.pidOf(t, control); after != before {
		t.Errorf("store %d has become %d", before, after)
	}
	w.checkLedger(t)
}

// leavesNothing: when the pods are gone, so are the stores, and all memory is free.
func (w *weighing) leavesNothing(t *testing.T) {
	w.clear(w.ctx, t)
	w.waitStores(t, 0)
	left := -1.
	err := wait.PollUntilContextTimeout(w.ctx, 100*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		left = w.used(t)
		return left == 0, nil
	})
	if err != nil {
		t.Errorf("%.0f MiB are left: %v", left, err)
	}
}
