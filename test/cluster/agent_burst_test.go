package cluster_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gshare-dev/gshare/test/cluster"
)

// burst is the number of pods that start at once on one node.
const burst = 60

// The limits of what a burst with shares may cost, relative to one without. The target for the duration is 1.5, but the duration also
// depends on what else the machine does at the time. Processor time hardly depends on that, and on an otherwise idle machine it
// determines the duration.
const (
	mostTime = 2
	mostCPU  = 1.5
)

// TestAgentBurst starts many pods at once on one node, first without and then with shares, and checks that all of them run.
func TestAgentBurst(t *testing.T) {
	a := startWithAgents(t, cluster.Options{Nodes: 1}, eightGPUs)
	node := a.Nodes[0]
	var plain, shared []cost
	for range 2 { // alternating, so that other work on the machine affects both; the bursts with shares find cold caches
		shared = append(shared, a.burst(t, node, burst, func(pod *v1.Pod) *v1.Pod { return ask(pod, 20, 50, 1024) }))
		plain = append(plain, a.burst(t, node, burst, func(pod *v1.Pod) *v1.Pod { return pod }))
	}
	took := least(shared).time.Seconds() / least(plain).time.Seconds()
	used := (shared[0].cpu + shared[1].cpu).Seconds() / (plain[0].cpu + plain[1].cpu).Seconds()
	t.Logf("%d pods: %+v without shares, %+v with: x %.2f in time (the faster of each), x %.2f in processor time", burst, plain, shared, took, used)
	if took > mostTime || used > mostCPU {
		t.Errorf("a burst with shares costs x %.2f in time and x %.2f in processor time, at most %v and %v", took, used, mostTime, mostCPU)
	}
	a.checkStarts(t, node, 2*burst)
}

// cost is the duration of a burst and the processor time that the cluster's programs used in it.
type cost struct{ time, cpu time.Duration }

func least(of []cost) cost {
	return slices.MinFunc(of, func(a, b cost) int { return cmp.Compare(a.time, b.time) })
}

// TestAgentHundred starts a hundred containers with shares at once, and checks that none fails because of the kubelet's rate limit: the
// agent asks the kubelet which container owns which device IDs, and the kubelet answers at most a hundred calls per second.
func TestAgentHundred(t *testing.T) {
	a := startWithAgents(t, cluster.Options{Nodes: 1}, eightGPUs)
	node := a.Nodes[0]
	a.burst(t, node, 50, func(pod *v1.Pod) *v1.Pod {
		second := *pod.Spec.Containers[0].DeepCopy()
		second.Name, second.Resources.Limits = "second", limits(10, 40, 512)
		pod.Spec.Containers = append(pod.Spec.Containers, second)
		return ask(pod, 10, 50, 512)
	})
	a.checkStarts(t, node, 100)
}

// checkStarts checks that all containers of a node got their shares at the first attempt. Otherwise it reports the reasons for
// failures, such as the kubelet's rate limit.
func (a *agents) checkStarts(t *testing.T, node *cluster.Node, want int) {
	t.Helper()
	text, err := a.of[node.Name].get(t.Context(), "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	granted := fmt.Sprintf(`gshare_node_starts_total{result="granted"} %d`, want)
	if !strings.Contains(text, granted+"\n") {
		t.Errorf("the agent does not count %s", granted)
	}
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "gshare_node_start") {
			continue
		}
		t.Logf("%s", strings.TrimSpace(line))
		if strings.HasPrefix(line, "gshare_node_starts_total") && !strings.Contains(line, `"granted"`) {
			t.Errorf("containers were refused: %s", line)
		}
	}
}

func (a *agents) burst(t *testing.T, node *cluster.Node, n int, with func(*v1.Pod) *v1.Pod) cost {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	var pods []*v1.Pod
	for i := range n {
		pods = append(pods, with(on(cluster.Pod(fmt.Sprintf("burst-%d", i), "sleep", "inf"), node)))
	}
	before, began := a.cpu(t, node), time.Now()
	a.create(ctx, t, pods...)
	for _, pod := range pods {
		now, err := a.WaitPod(ctx, pod.Name, func(p *v1.Pod) bool { return cluster.IsRunning(p) || p.Status.Phase == v1.PodFailed })
		if err != nil {
			t.Fatal(err)
		}
		if now.Status.Phase == v1.PodFailed {
			t.Errorf("%s failed: %s: %s", now.Name, now.Status.Reason, now.Status.Message)
		}
	}
	took, used := time.Since(began), a.cpu(t, node).since(before)
	t.Logf("%v; CPU seconds: %v", took, used)
	a.waitBooks(ctx, t, node)
	events, err := a.Client().CoreV1().Events("default").List(ctx, metav1.ListOptions{FieldSelector: "reason=Failed"})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events.Items {
		t.Logf("%d x %s: %s", max(1, e.Count), e.Reason, e.Message)
	}
	a.clear(ctx, t)
	if err := node.RemoveDeletedPods(ctx); err != nil { // otherwise the next burst pays for the removal of this one
		t.Fatal(err)
	}
	return cost{took, used.sum()}
}
