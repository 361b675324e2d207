package cluster_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	apps "k8s.io/api/apps/v1"
	authentication "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/gshare-dev/gshare/test/cluster"
	"github.com/gshare-dev/gshare/test/cluster/machine"
	"github.com/gshare-dev/gshare/vgpu/kube"
)

// TestRebalance: a pod waits for a whole GPU. One of two GPUs has two small pods that have agreed to be moved, the other one has a pod that stays.
// The descheduler evicts no pod while only one of the two could go elsewhere, and none while their disruption budget is 0. Then it evicts both, and
// the waiting pod runs.
func TestRebalance(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	r := &rebalanced{agents: startWithAgents(t, cluster.Options{Nodes: 2}, oneGPU)}
	r.scatter(ctx, t)
	r.startDescheduler(ctx, t)

	before := r.small(ctx, t)
	r.movesNobody(ctx, t, before, "one of the two would have no place")

	r.setBudget(ctx, t, 0)
	light := r.stay(ctx, t, "light", 10)
	r.remove(ctx, t, "keeper")
	r.movesNobody(ctx, t, before, "the budget is 0")

	r.setBudget(ctx, t, 2)
	r.letsIn(ctx, t, before)
	if now, err := r.WaitPod(ctx, "light", cluster.IsRunning); err != nil || now.UID != light.UID {
		t.Errorf("the pod that has not agreed: %v", err)
	}
	r.waitCycles(ctx, t, 3)
	if n := r.metric(ctx, t, "descheduler_pods_evicted_total"); n != 2 {
		t.Errorf("%v evictions, want 2", n)
	}
	for _, node := range r.Nodes {
		r.waitBooks(ctx, t, node)
	}
}

// rebalanced is a cluster of two nodes with a GPU each, and the descheduler.
type rebalanced struct{ *agents }

const smallPods = "small" // name of the Deployment, and the pods' label app

// scatter starts the two small pods on node-0 and a pod that stays on node-1, and creates a pod that waits for a whole GPU.
func (r *rebalanced) scatter(ctx context.Context, t *testing.T) {
	t.Helper()
	filler := ask(on(cluster.Pod("filler", "sleep", "inf"), r.Nodes[1]), 100, 100, 1024)
	create(t, r.Cluster, filler) // so that the small pods go to node-0
	budget := &policy.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: smallPods},
		Spec: policy.PodDisruptionBudgetSpec{
			MaxUnavailable: new(intstr.FromInt32(2)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": smallPods}},
		},
	}
	must[*policy.PodDisruptionBudget](t)(r.Client().PolicyV1().PodDisruptionBudgets("default").Create(ctx, budget, metav1.CreateOptions{}))
	must[*apps.Deployment](t)(r.Client().AppsV1().Deployments("default").Create(ctx, smallDeployment(), metav1.CreateOptions{}))
	r.waitSmall(ctx, t, r.Nodes[0], nil)
	r.remove(ctx, t, "filler")
	r.stay(ctx, t, "keeper", 50)
	r.create(ctx, t, ask(cluster.Pod("whole", "sleep", "inf"), 100, 100, 1024))
	_, err := r.WaitPod(ctx, "whole", func(p *v1.Pod) bool {
		for _, c := range p.Status.Conditions {
			if c.Type == v1.PodScheduled && c.Reason == v1.PodReasonUnschedulable {
				return true
			}
		}
		return false
	})
	if err != nil {
		t.Fatal(err)
	}
}

// smallDeployment has two pods with 40 % of a GPU, which may be moved. They take some seconds to end, so that, as with most pods, their replacements
// are created while they still hold their shares.
func smallDeployment() *apps.Deployment {
	pod := ask(cluster.Pod(smallPods, "sleep", "inf"), 40, 100, 4096)
	pod.Spec.TerminationGracePeriodSeconds = new(int64(8))
	labels := map[string]string{"app": smallPods}
	annotations := map[string]string{kube.AnnotationRebalance: kube.RebalanceAllow}
	for key, value := range pod.Annotations {
		annotations[key] = value
	}
	return &apps.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: smallPods},
		Spec: apps.DeploymentSpec{
			Replicas: new(int32(2)),
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: annotations}, Spec: pod.Spec},
		},
	}
}

// stay runs a pod on node-1 that may not be moved.
func (r *rebalanced) stay(ctx context.Context, t *testing.T, name string, percent int64) *v1.Pod {
	t.Helper()
	r.create(ctx, t, ask(on(cluster.Pod(name, "sleep", "inf"), r.Nodes[1]), percent, 100, 1024))
	return must[*v1.Pod](t)(r.WaitPod(ctx, name, cluster.IsRunning))
}

func (r *rebalanced) remove(ctx context.Context, t *testing.T, name string) {
	t.Helper()
	if err := r.Client().CoreV1().Pods("default").Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := r.waitEnded(ctx, name); err != nil {
		t.Fatal(err)
	}
}

// startDescheduler runs the descheduler with the policy and the permissions of the manifests, but at short intervals.
func (r *rebalanced) startDescheduler(ctx context.Context, t *testing.T) {
	t.Helper()
	program := buildOf(t, "../../cmd/gshare-descheduler", "gshare-descheduler", ".")
	manifest := func(name string) []byte { return must[[]byte](t)(os.ReadFile("../../manifests/rebalance/" + name)) }
	apply(t, r.Cluster, manifest("access.yaml"))
	accounts := r.Client().CoreV1().ServiceAccounts("gshare-system")
	token := must[*authentication.TokenRequest](t)(
		accounts.CreateToken(ctx, "gshare-descheduler", &authentication.TokenRequest{}, metav1.CreateOptions{}))
	file := func(name string, content []byte) string {
		path := filepath.Join(r.Dir, "descheduler-"+name)
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	kubeconfig := must[[]byte](t)(r.Kubeconfig(token.Status.Token))
	must[*machine.Process](t)(r.Nodes[0].Machine.Start(ctx, machine.Program{
		Name: "gshare-descheduler", Path: program,
		Args: []string{
			"--kubeconfig=" + file("kubeconfig", kubeconfig), "--policy-config-file=" + file("policy.yaml", manifest("policy.yaml")),
			"--descheduling-interval=2s", "--feature-gates=GPURebalance=true", "--cert-dir=" + filepath.Join(r.Dir, "descheduler-certificates"),
		},
		Ready: func(ctx context.Context) error { _, err := r.metrics(ctx); return err },
	}))
}

// metrics returns the text of the descheduler's metrics.
func (r *rebalanced) metrics(ctx context.Context) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://descheduler/metrics", nil)
	if err != nil {
		return "", err
	}
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, // the server creates its own certificate
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return r.Nodes[0].Machine.Dial(ctx, network, "127.0.0.1:10258")
		},
	}}
	response, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", response.Status, body)
	}
	return string(body), err
}

// metric returns the sum of one of the descheduler's metrics, or 0 if it has not been counted yet.
func (r *rebalanced) metric(ctx context.Context, t *testing.T, name string) (sum float64) {
	t.Helper()
	for line := range strings.Lines(must[string](t)(r.metrics(ctx))) {
		if !strings.HasPrefix(line, name+" ") && !strings.HasPrefix(line, name+"{") {
			continue
		}
		fields := strings.Fields(line)
		sum += must[float64](t)(strconv.ParseFloat(fields[len(fields)-1], 64))
	}
	return sum
}

// waitCycles blocks until the descheduler has completed n more cycles.
func (r *rebalanced) waitCycles(ctx context.Context, t *testing.T, n float64) {
	t.Helper()
	const cycles = "descheduler_loop_duration_seconds_count"
	until := r.metric(ctx, t, cycles) + n + 1 // the current cycle may have begun earlier
	poll(ctx, t, func() string {
		if done := r.metric(ctx, t, cycles); done < until {
			return fmt.Sprintf("%v cycles, want %v", done, until)
		}
		return ""
	})
}

// movesNobody checks that the descheduler sees two pods that may move and one that waits, and evicts none.
func (r *rebalanced) movesNobody(ctx context.Context, t *testing.T, before map[types.UID]string, why string) {
	t.Helper()
	r.waitCycles(ctx, t, 3)
	moving, waiting := r.metric(ctx, t, "gshare_rebalance_movable_pods"), r.metric(ctx, t, "gshare_rebalance_waiting_pods")
	if moving != 2 || waiting != 1 {
		t.Errorf("%s: %v pods may move and %v wait, want 2 and 1", why, moving, waiting)
	}
	if now := r.small(ctx, t); len(now) != 2 || !sameKeys(now, before) {
		t.Errorf("%s, yet %v became %v", why, before, now)
	}
	if n := r.metric(ctx, t, "descheduler_pods_evicted_total"); n != 0 {
		t.Errorf("%s: %v evictions", why, n)
	}
}

// setBudget sets how many small pods may be unavailable, and waits until that is in effect.
func (r *rebalanced) setBudget(ctx context.Context, t *testing.T, n int32) {
	t.Helper()
	budgets := r.Client().PolicyV1().PodDisruptionBudgets("default")
	patch := fmt.Sprintf(`{"spec":{"maxUnavailable":%d}}`, n)
	must[*policy.PodDisruptionBudget](t)(budgets.Patch(ctx, smallPods, types.MergePatchType, []byte(patch), metav1.PatchOptions{}))
	poll(ctx, t, func() string {
		b, err := budgets.Get(ctx, smallPods, metav1.GetOptions{})
		switch {
		case err != nil:
			return err.Error()
		case b.Status.ObservedGeneration != b.Generation || b.Status.DisruptionsAllowed != n:
			return fmt.Sprintf("the budget allows %d", b.Status.DisruptionsAllowed)
		}
		return ""
	})
}

// letsIn waits until the waiting pod runs where the small pods were, and the small pods run on the other node.
func (r *rebalanced) letsIn(ctx context.Context, t *testing.T, before map[types.UID]string) {
	t.Helper()
	whole := must[*v1.Pod](t)(r.WaitPod(ctx, "whole", cluster.IsRunning))
	if whole.Spec.NodeName != r.Nodes[0].Name {
		t.Errorf("the pod that waited runs on %s", whole.Spec.NodeName)
	}
	r.waitSmall(ctx, t, r.Nodes[1], before)
}

// waitSmall waits until two small pods run on a node, neither of which is in before.
func (r *rebalanced) waitSmall(ctx context.Context, t *testing.T, node *cluster.Node, before map[types.UID]string) {
	t.Helper()
	poll(ctx, t, func() string {
		now := r.small(ctx, t)
		for uid, at := range now {
			if _, old := before[uid]; old || at != node.Name {
				return fmt.Sprintf("small pods run at %v", now)
			}
		}
		if len(now) != 2 {
			return fmt.Sprintf("%d small pods run", len(now))
		}
		return ""
	})
}

// small returns the nodes of the small pods that run and are not being deleted.
func (r *rebalanced) small(ctx context.Context, t *testing.T) map[types.UID]string {
	t.Helper()
	list := must[*v1.PodList](t)(r.Client().CoreV1().Pods("default").List(ctx, metav1.ListOptions{LabelSelector: "app=" + smallPods}))
	at := map[types.UID]string{}
	for i := range list.Items {
		if pod := &list.Items[i]; cluster.IsRunning(pod) && pod.DeletionTimestamp == nil {
			at[pod.UID] = pod.Spec.NodeName
		}
	}
	return at
}

func sameKeys(a, b map[types.UID]string) bool {
	for key := range a {
		if _, there := b[key]; !there {
			return false
		}
	}
	return len(a) == len(b)
}
