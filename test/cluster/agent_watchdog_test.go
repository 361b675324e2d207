package cluster_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gshare-dev/gshare/test/cluster"
	config "github.com/gshare-dev/gshare/vgpu/api/config/node"
	"github.com/gshare-dev/gshare/vgpu/kube"
)

// TestAgentWatchdog runs a pod without a share beside a pod with one on the same device. The first must be reported, and killed if the
// node's policy says so, while the second keeps running. Then the second is seen on a device outside its share, and must be killed too.
func TestAgentWatchdog(t *testing.T) {
	a, node := startLoaded(t)
	ctx := testContext(t)
	agent := a.of[node.Name]
	a.create(ctx, t, on(ask(computing("resident"), 40, 50, 4096), node))
	resident := a.runsAsPlaced(ctx, t, "resident")
	slice, other := sliceOf(t, resident), "GPU-0"
	if slice == other {
		other = "GPU-1"
	}
	a.create(ctx, t, on(unhooked(a, computing("stranger"), slice), node))
	stranger, err := a.WaitPod(ctx, "stranger", cluster.IsRunning)
	if err != nil {
		t.Fatal(err)
	}
	granted, foreign := a.gpus.program(ctx, t, slice, resident), a.gpus.program(ctx, t, slice, stranger)

	agent.police(ctx, t, config.ReportUnmanaged)
	agent.serves(ctx, t, resident)
	agent.setDevices(t, eightGPUs+using(slice, granted, foreign))
	if text := a.waitEvent(ctx, t, "stranger", "GPUUnmanagedProcess"); !strings.Contains(text, "uses slice "+slice) {
		t.Errorf("event: %s", text)
	}
	a.waitEnforcement(ctx, t, "resident", "slice "+slice+" is also used by pod default/stranger", true)
	a.waitOffer(ctx, t, node, slice, false)
	a.goesOn(ctx, t, stranger)
	agent.setDevices(t, eightGPUs+using(slice, granted))
	a.waitOffer(ctx, t, node, slice, true)

	agent.police(ctx, t, config.EndUnmanaged)
	agent.serves(ctx, t, resident)
	agent.setDevices(t, eightGPUs+using(slice, granted, foreign))
	a.waitKilled(ctx, t, "stranger")
	agent.setDevices(t, eightGPUs+using(slice, granted))
	a.waitOffer(ctx, t, node, slice, true)
	a.waitEnforcement(ctx, t, "resident", "is also used", false)
	a.goesOn(ctx, t, resident)
	a.computes(ctx, t, resident)
	if told := a.complaints(ctx, t, "resident"); len(told) > 0 {
		t.Errorf("the pod with a share is told %q", told)
	}

	agent.setDevices(t, eightGPUs+using(other, granted))
	a.waitKilled(ctx, t, "resident")
	a.waitEvent(ctx, t, "resident", "GPUWrongDevice")
}

// computing returns a pod that computes until it is killed, and is not restarted.
func computing(name string) *v1.Pod {
	pod := cluster.Pod(name, spin(time.Millisecond, 40, "sync=2", "pause=20000000")...)
	pod.Spec.Containers[0].Image = workload
	pod.Spec.RestartPolicy = v1.RestartPolicyNever
	return pod
}

// using returns entries for the list of simulated devices, which say that processes use a device.
func using(uuid string, pids ...int) string {
	text := "processes:\n"
	for _, pid := range pids {
		text += fmt.Sprintf("- {pid: %d, slice: %s}\n", pid, uuid)
	}
	return text
}

// police restarts the agent with a policy for processes without a share, and a short interval between observations.
func (a *agent) police(ctx context.Context, t *testing.T, policy string) {
	t.Helper()
	file := a.program.Args[1]
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	rest, _, _ := strings.Cut(string(text), "  unmanagedProcesses:")
	if err := os.WriteFile(file, fmt.Appendf(nil, "%s  unmanagedProcesses: %s\n  watchPeriod: 100ms\n", rest, policy), 0o600); err != nil {
		t.Fatal(err)
	}
	a.Kill()
	a.start(ctx, t)
}

// goesOn checks that the pod's container is still running.
func (a *agents) goesOn(ctx context.Context, t *testing.T, was *v1.Pod) {
	t.Helper()
	is, err := a.Client().CoreV1().Pods("default").Get(ctx, was.Name, metav1.GetOptions{})
	if err != nil || !cluster.IsRunning(is) || is.Status.ContainerStatuses[0].ContainerID != was.Status.ContainerStatuses[0].ContainerID {
		t.Errorf("%s has been ended: %+v, %v", was.Name, is.Status, err)
	}
	if len(pidsOf(t, was)) == 0 {
		t.Errorf("%s has no process", was.Name)
	}
}

// waitKilled waits until the pod's container has been killed by SIGKILL.
func (a *agents) waitKilled(ctx context.Context, t *testing.T, pod string) {
	t.Helper()
	is, err := a.WaitPod(ctx, pod, func(p *v1.Pod) bool { return p.Status.Phase == v1.PodFailed })
	if err != nil {
		t.Fatal(err)
	}
	if s := is.Status.ContainerStatuses[0].State.Terminated; s == nil || s.ExitCode != 128+9 {
		t.Errorf("%s has ended otherwise: %+v", pod, is.Status)
	}
}

// waitEnforcement waits until the enforcement status of a pod contains a text, or, if says is false, no longer contains it.
func (a *agents) waitEnforcement(ctx context.Context, t *testing.T, pod, part string, says bool) {
	t.Helper()
	is, err := a.WaitPod(ctx, pod, func(p *v1.Pod) bool {
		text := p.Annotations[kube.AnnotationEnforcementStatus]
		return text != "" && strings.Contains(text, part) == says
	})
	if err != nil {
		t.Fatalf("enforcement status of %s, %q: %v: %+v", pod, part, err, is)
	}
}

// waitOffer waits until the node offers a slice to new pods, or, if offered is false, no longer offers it.
func (a *agents) waitOffer(ctx context.Context, t *testing.T, node *cluster.Node, slice string, offered bool) {
	t.Helper()
	a.waitNode(ctx, t, node, func(n *v1.Node) bool {
		inv, _, err := kube.InventoryOf(n)
		i := slices.IndexFunc(inv.Slices, func(s kube.Slice) bool { return s.ID == slice })
		return err == nil && i >= 0 && inv.Slices[i].Healthy == offered
	})
}

// complaints returns the agent's warning events about a pod.
func (a *agents) complaints(ctx context.Context, t *testing.T, pod string) (told []string) {
	t.Helper()
	events, err := a.Client().CoreV1().Events("default").List(ctx, metav1.ListOptions{
		FieldSelector: "source=gshare-node,type=Warning,involvedObject.name=" + pod,
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events.Items {
		told = append(told, e.Reason+": "+e.Message)
	}
	return told
}
