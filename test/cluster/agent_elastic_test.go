package cluster_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gshare-dev/gshare/test/cluster"
	"github.com/gshare-dev/gshare/vgpu/share"
)

const oneGPU = "devices:\n- {uuid: GPU-0, model: A100, sms: 108, memoryMiB: 81920}\n"

// The requests and limits of the two pods of an elastic slice, in percent of its SMs. The sum of the limits is all that γ allows.
const (
	serveRequest, serveLimit = 30, 60
	trainRequest, trainLimit = 50, 90
)

// TestAgentElastic runs inference beside a training job on an elastic slice, with the real agent and hook. Inference reaches its limit
// while the other pod is idle. Its limit follows the pod's annotation down and up, but not above the limit with which the pod was placed.
// When both work, a burst pushes the training job down to its request, below which it stays for half a second of it at most; the agent is
// killed during the burst, and the training job must recover afterwards.
func TestAgentElastic(t *testing.T) {
	driver := buildDriver(t)
	a := startWithAgents(t, cluster.Options{Nodes: 1, Images: []cluster.Image{workloadImage(t, driver)}}, oneGPU)
	a.gpus = startGPUs(t, a, driver, "GPU-0")
	ctx := testContext(t)
	serve := elasticPod("serve", share.SLO, serveRequest, serveLimit, spin(wide/10, 10, "sync=10", "pause=20000000"))
	train := elasticPod("train", share.BestEffort, trainRequest, trainLimit, spin(2*wide, 100, "sync=8"))
	a.create(ctx, t, serve, train)
	serve, train = a.runsElastic(ctx, t, serve.Name, serveLimit), a.runsElastic(ctx, t, train.Name, trainLimit)
	a.waitBooks(ctx, t, a.Nodes[0])
	t.Run("limit", func(t *testing.T) { a.testLimit(testContext(t), t, serve) })
	t.Run("killed in a burst", func(t *testing.T) { a.testKilledInBurst(testContext(t), t, serve, train) })
}

// testLimit changes the limit of a pod that uses as much as it can, beside an idle pod.
func (a *agents) testLimit(ctx context.Context, t *testing.T, pod *v1.Pod) {
	ended := a.press(ctx, t, pod, 45*time.Second)
	a.realTime(t, []*v1.Pod{pod}, unix.SCHED_RR)
	defer a.realTime(t, nil, unix.SCHED_NORMAL)
	a.waitSMs(ctx, t, pod, serveLimit, 52, 62)
	a.annotate(ctx, t, pod, "40")
	a.waitEnforcement(ctx, t, pod.Name, "changed to 40%", true)
	a.waitSMs(ctx, t, pod, serveLimit, 30, 45)
	a.waitBooks(ctx, t, a.Nodes[0])

	a.annotate(ctx, t, pod, "70")
	a.waitEnforcement(ctx, t, pod.Name, "is not between", true)
	t.Logf("event: %s", a.waitEvent(ctx, t, pod.Name, "GPULimitRefused"))
	a.waitSMs(ctx, t, pod, serveLimit, 30, 45)
	a.testLimitKept(ctx, t)

	a.annotate(ctx, t, pod, fmt.Sprint(serveLimit))
	a.waitEnforcement(ctx, t, pod.Name, "changed to", false)
	a.waitSMs(ctx, t, pod, serveLimit, 52, 62)
	a.waitBooks(ctx, t, a.Nodes[0])
	ended()
}

// testLimitKept checks that when a pod lowers its limit, the difference is not given to other pods, since the pod may raise the limit
// again.
func (a *agents) testLimitKept(ctx context.Context, t *testing.T) {
	t.Helper()
	a.create(ctx, t, elasticPod("third", share.BestEffort, 10, 20, spin(wide, 10)))
	if _, err := a.WaitPod(ctx, "third", func(p *v1.Pod) bool {
		return len(p.Status.Conditions) > 0 && strings.Contains(p.Status.Conditions[0].Message, "limits would exceed the oversubscription bound")
	}); err != nil {
		t.Error(err)
	}
	if err := a.Client().CoreV1().Pods("default").Delete(ctx, "third", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// testKilledInBurst kills the agent, which contains the token server, while a burst pushes the training job down to its request.
func (a *agents) testKilledInBurst(ctx context.Context, t *testing.T, serve, train *v1.Pod) {
	node := a.Nodes[0]
	a.begin(ctx, t, serve)
	a.begin(ctx, t, train)
	both := []*v1.Pod{serve, train}
	a.realTime(t, both, unix.SCHED_RR)
	defer a.realTime(t, nil, unix.SCHED_NORMAL)
	a.waitSMs(ctx, t, train, trainLimit, 60, 95)
	ended := a.press(ctx, t, serve, 30*time.Second)
	a.realTime(t, both, unix.SCHED_RR)
	a.waitSMs(ctx, t, train, trainLimit, 35, 56) // of two seconds, it may miss half a second of its request

	agent := a.of[node.Name]
	agent.Kill()
	agent.start(ctx, t)
	began := time.Now()
	for _, pod := range both {
		agent.serves(ctx, t, pod)
	}
	t.Logf("served again %v after a new agent was ready", time.Since(began))
	ended()
	a.realTime(t, both, unix.SCHED_RR)
	a.waitSMs(ctx, t, train, trainLimit, 60, 95)
	for _, pod := range both {
		a.goesOn(ctx, t, pod)
	}
	a.waitBooks(ctx, t, node)
}
