package cluster_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/gshare-dev/gshare/node/modelstore"
	"github.com/gshare-dev/gshare/node/store"
	"github.com/gshare-dev/gshare/test/cluster"
	"github.com/gshare-dev/gshare/vgpu/kube"
)

// server returns a pod of gshare-model with a share of the GPU's memory, in MiB. declared is its declaration of weights; if it is empty, the
// pod has weights of its own.
func (w *weighing) server(name, model string, weights, workspace, memory int64, declared string) *v1.Pod {
	pod := cluster.Pod(name)
	c := &pod.Spec.Containers[0]
	c.Image, c.Command = modelImage, nil
	c.Args = append(modelFlags(model, weights), fmt.Sprintf("--workspace=%dMi", workspace))
	c.ReadinessProbe = &v1.Probe{PeriodSeconds: 1, FailureThreshold: 1000}
	c.ReadinessProbe.HTTPGet = &v1.HTTPGetAction{Path: "/v2/health/ready"}
	c.ReadinessProbe.HTTPGet.Port.IntVal = 8080
	pod.Spec.RestartPolicy = v1.RestartPolicyNever
	if declared != "" {
		pod.Annotations = map[string]string{kube.AnnotationWeights: declared}
		if !strings.Contains(declared, ",") { // the pod declares exactly the weights that its server has
			c.Args = append(c.Args, "--declared=$(WEIGHTS)")
			of := v1.ObjectFieldSelector{FieldPath: "metadata.annotations['" + kube.AnnotationWeights + "']"}
			c.Env = append(c.Env, v1.EnvVar{Name: "WEIGHTS", ValueFrom: &v1.EnvVarSource{FieldRef: &of}})
		}
	}
	return ask(pod, 12, 100, memory)
}

func modelFlags(model string, weights int64) []string {
	return []string{"--name=" + model, fmt.Sprintf("--weights=%dMi", weights), "--batch=1=1ms"}
}

// declared returns the declaration of a model's weights for a pod.
func (w *weighing) declared(t *testing.T, model string, weights int64) string {
	t.Helper()
	out, err := exec.Command(w.model, append(modelFlags(model, weights), "--declare")...).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// ready waits until a pod serves, and returns it.
func (w *weighing) ready(t *testing.T, namespace, name string) (pod *v1.Pod) {
	t.Helper()
	var err error
	waited := wait.PollUntilContextTimeout(w.ctx, 100*time.Millisecond, 5*time.Minute, true, func(ctx context.Context) (bool, error) {
		if pod, err = w.Client().CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{}); err != nil {
			return false, nil
		}
		if pod.Status.Phase == v1.PodFailed {
			return false, fmt.Errorf("it has ended: %+v", pod.Status.ContainerStatuses)
		}
		for _, c := range pod.Status.Conditions {
			if c.Type == v1.PodReady && c.Status == v1.ConditionTrue {
				return true, nil
			}
		}
		return false, nil
	})
	if waited != nil {
		t.Fatalf("%s: %v, %v; %+v", name, waited, err, pod)
	}
	return pod
}

// waits waits until the scheduler reports that no node fits a pod, with the given reason.
func (w *weighing) waits(t *testing.T, name, reason string) {
	t.Helper()
	_, err := w.WaitPod(w.ctx, name, func(p *v1.Pod) bool {
		for _, c := range p.Status.Conditions {
			if c.Type == v1.PodScheduled && c.Status == v1.ConditionFalse && strings.Contains(c.Message, reason) {
				return true
			}
		}
		return false
	})
	if err != nil {
		t.Fatal(err)
	}
}

// answer returns a server's response to a request.
func (w *weighing) answer(t *testing.T, pod *v1.Pod) string {
	t.Helper()
	request, err := http.NewRequestWithContext(w.ctx, http.MethodPost, "http://"+pod.Status.PodIP+":8080/", strings.NewReader("hello"))
	if err != nil {
		t.Fatal(err)
	}
	response, err := w.http.Do(request)
	if err != nil {
		t.Fatalf("%s: %v", pod.Name, err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s (%v)", pod.Name, text, err)
	}
	return string(regexp.MustCompile(`"checksum":\d+`).Find(text))
}

// used returns the GPU memory in use, in MiB, as the driver counts it.
func (w *weighing) used(t *testing.T) float64 {
	t.Helper()
	arguments := append(append([]string(nil), w.env...), filepath.Join(w.Dir, "fake", "linked"))
	out, err := w.node.Machine.Run(w.ctx, "env", arguments...)
	var left, total float64
	if _, scanned := fmt.Sscanf(string(out), "ok %f %f", &left, &total); err != nil || scanned != nil {
		t.Fatalf("%q: %v, %v", out, err, scanned)
	}
	return (total-left)/(1<<20) - 64 // used by this program itself
}

// near reports whether a number differs from another by one percent at most.
func near(got, want float64) bool { return got >= 0.99*want && got <= 1.01*want }

// checkLedger checks that the memory reported for the shares plus that of the store equals the driver's count.
func (w *weighing) checkLedger(t *testing.T) {
	t.Helper()
	var ledger, driver float64
	err := wait.PollUntilContextTimeout(w.ctx, 100*time.Millisecond, 30*time.Second, true, func(ctx context.Context) (bool, error) {
		text, err := w.agent.get(ctx, "/metrics")
		if err != nil {
			return false, nil
		}
		ledger = resnextWeights
		for line := range strings.Lines(text) {
			if strings.HasPrefix(line, "gshare_share_memory_used_bytes{") {
				bytes, err := strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndex(line, " "):]), 64)
				if err != nil {
					return false, err
				}
				ledger += bytes / (1 << 20)
			}
		}
		driver = w.used(t)
		return near(driver, ledger), nil
	})
	t.Logf("the driver counts %.0f MiB, shares and weights are %.0f MiB", driver, ledger)
	if err != nil {
		t.Errorf("the driver counts %.0f MiB, shares and weights are %.0f MiB: %v", driver, ledger, err)
	}
}

// sharing returns the pods that share the weights, after checking that each of them serves.
func (w *weighing) sharing(t *testing.T) (pods []*v1.Pod) {
	t.Helper()
	for i := range 7 {
		pod := w.ready(t, "default", fmt.Sprint("shared-", i))
		if pod.Status.ContainerStatuses[0].RestartCount != 0 || w.answer(t, pod) == "" {
			t.Errorf("%s does not serve: %+v", pod.Name, pod.Status)
		}
		pods = append(pods, pod)
	}
	return pods
}

// storeOf returns the directory and the control of a namespace's store.
func (w *weighing) storeOf(namespace string) (dir string, control store.Control) {
	id := modelstore.Store{Slice: "GPU-0", Namespace: namespace}.ID()
	dir = "/run/gshare/stores/" + id
	return dir, store.Control(w.node.Machine.HostPath(dir))
}

// waitStores waits until the node has this number of stores.
func (w *weighing) waitStores(t *testing.T, want int) {
	t.Helper()
	var stores []string
	err := wait.PollUntilContextTimeout(w.ctx, 50*time.Millisecond, time.Minute, true, func(context.Context) (found bool, err error) {
		stores, err = filepath.Glob(w.node.Machine.HostPath("/run/gshare/stores/*"))
		return len(stores) == want, err
	})
	if err != nil {
		t.Fatalf("stores %q, want %d: %v", stores, want, err)
	}
}

// verifyAs runs gshare-node store verify, without the hook, in the cgroup of a pod. From the cgroup the store learns to which pod the process
// belongs.
func (w *weighing) verifyAs(t *testing.T, pod *v1.Pod, digest string) (string, error) {
	t.Helper()
	pids := pidsOf(t, pod)
	if len(pids) == 0 {
		t.Fatalf("%s has no process", pod.Name)
	}
	dir, _ := w.storeOf("default")
	script := fmt.Sprintf(`while IFS=: read -r _ _ path; do
  for root in /sys/fs/cgroup /sys/fs/cgroup/*; do echo $$ > "$root$path/cgroup.procs" || true; done
done < /proc/%d/cgroup 2>/dev/null
exec env %s %s store verify --socket %s/public/%s --weights %s 2>&1`, onMachine(t, pids[0]), strings.Join(w.env, " "), w.agent.program.Path, dir, modelstore.SocketName, digest)
	out, err := w.node.Machine.Run(w.ctx, "sh", "-c", script)
	return string(out), err
}

// pidOf returns the PID of a store's process on its machine.
func (w *weighing) pidOf(t *testing.T, control store.Control) (pid int) {
	t.Helper()
	err := wait.PollUntilContextCancel(w.ctx, 50*time.Millisecond, true, func(context.Context) (bool, error) {
		if p, runs := control.Holder(); runs {
			pid = p.PID
			p.Close()
		}
		return pid != 0, nil
	})
	if err != nil {
		t.Fatal("no store runs")
	}
	return pid
}
