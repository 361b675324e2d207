package cluster_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/gshare-dev/gshare/draplugin"
	"github.com/gshare-dev/gshare/test/cluster"
	"github.com/gshare-dev/gshare/vgpu/kube"
)

// stock is the configuration of a scheduler without gshare's plugins.
const stock = `apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles: [{schedulerName: default-scheduler}]
`

// TestAgentClaims: under the stock scheduler, pods with resource claims share a GPU on a real kubelet, and each share is enforced. An agent
// that is killed and restarted finds the grants again, and deleting a pod frees its share.
func TestAgentClaims(t *testing.T) {
	// After Prepare or Unprepare fails, as it does while the agent is away, the kubelet does not retry before its next synchronization of the
	// pod, by default after a minute or more.
	kubelet := map[string]any{"syncFrequency": "2s"}
	a := startWithAgents(t, cluster.Options{Nodes: 1, SchedulerConfig: []byte(stock), KubeletConfig: kubelet}, twoGPUs)
	ctx := testContext(t)
	node := a.Nodes[0]
	a.of[node.Name].offerToClaims(ctx, t, "GPU-1")
	a.waitDevices(ctx, t, "gpu-1")
	a.deviceClass(ctx, t)
	a.template(ctx, t, "quarter", "24", "16Gi")
	a.template(ctx, t, "rest", "76", "64Gi")

	a.create(ctx, t, withClaim("first", "quarter"), withClaim("second", "rest"))
	first := a.hasClaim(ctx, t, "first", 24, 16<<30)
	second := a.hasClaim(ctx, t, "second", 76, 64<<30)
	a.create(ctx, t, withClaim("third", "quarter"))
	a.waitUnschedulable(ctx, t, "third")

	a.of[node.Name].Kill()
	a.of[node.Name].start(ctx, t)
	a.waitGrants(ctx, t, node, 2)
	for _, pod := range []*v1.Pod{first, second} {
		a.goesOn(ctx, t, pod)
	}

	a.leave(ctx, t, []*v1.Pod{first})
	third := a.hasClaim(ctx, t, "third", 24, 16<<30)
	a.leave(ctx, t, []*v1.Pod{second, third})
	a.waitGrants(ctx, t, node, 0)
	if files, err := filepath.Glob(node.Machine.HostPath(cluster.CDI + "/gshare.dev-grant-*")); err != nil || len(files) > 0 {
		t.Errorf("CDI files are left: %v, %v", files, err)
	}
	a.waitNoClaims(ctx, t)
	t.Run("killed between steps", func(t *testing.T) { a.killedBetweenSteps(testContext(t), t, node) })
	t.Run("device fails", func(t *testing.T) { a.deviceFails(testContext(t), t, node) })
	t.Run("device is cordoned", func(t *testing.T) { a.deviceIsCordoned(testContext(t), t, node) })
	t.Run("restarts", func(t *testing.T) { a.restartsWithClaims(t, node) })
	t.Run("reboot", func(t *testing.T) { a.rebootWithClaims(testContext(t), t, node) })
}

// killedBetweenSteps kills the agent with SIGKILL between any two steps of Prepare and of Unprepare. The next agent completes them.
func (a *agents) killedBetweenSteps(ctx context.Context, t *testing.T, node *cluster.Node) {
	agent := a.of[node.Name]
	for _, point := range []string{"recorded", "served", "granted", "ungranted", "unserved"} {
		agent.Kill()
		agent.startFaulty(ctx, t, point+":1")
		pod := withClaim("killed-"+point, "rest")
		a.create(ctx, t, pod)
		if strings.HasPrefix(point, "un") {
			a.leave(ctx, t, []*v1.Pod{a.hasClaim(ctx, t, pod.Name, 76, 64<<30)})
		}
		select {
		case <-agent.Done():
		case <-ctx.Done():
			t.Fatal("the agent has not come to the point ", point)
		}
		agent.start(ctx, t)
		if !strings.HasPrefix(point, "un") {
			a.leave(ctx, t, []*v1.Pod{a.hasClaim(ctx, t, pod.Name, 76, 64<<30)})
		}
		began := time.Now()
		a.waitGrants(ctx, t, node, 0)
		a.waitNoClaims(ctx, t)
		t.Logf("%s: all is given back after %v", point, time.Since(began))
	}
}

// offerToClaims restarts the agent with a configuration that offers GPUs to resource claims.
func (a *agent) offerToClaims(ctx context.Context, t *testing.T, uuids ...string) {
	t.Helper()
	a.configure(ctx, t, "  resourceClaims: ["+strings.Join(uuids, ", ")+"]\n")
}

// configure restarts the agent with additional lines in the kubernetes section of its configuration. undo removes them again.
func (a *agent) configure(ctx context.Context, t *testing.T, lines string) (undo func()) {
	t.Helper()
	name := a.program.Args[1]
	before, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	restart := func(text string) {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		a.Kill()
		a.start(ctx, t)
	}
	restart(string(before) + lines)
	return func() { restart(string(before)) }
}

// poll waits until done returns an empty string. If that does not happen in time, it fails the test with the last string.
func poll(ctx context.Context, t *testing.T, done func() string) {
	t.Helper()
	last := ""
	err := wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(context.Context) (bool, error) {
		last = done()
		return last == "", nil
	})
	if err != nil {
		t.Fatalf("%v: %s", err, last)
	}
}

// waitDevices waits until exactly these devices are offered to claims. Each is given by its name, followed by the keys of its taints,
// separated by spaces.
func (a *agents) waitDevices(ctx context.Context, t *testing.T, want ...string) {
	t.Helper()
	poll(ctx, t, func() string {
		pools, err := a.Client().ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{})
		if err != nil {
			return err.Error()
		}
		var devices []string
		for _, s := range pools.Items {
			for _, d := range s.Spec.Devices {
				text := d.Name
				for _, taint := range d.Taints {
					text += " " + taint.Key
				}
				devices = append(devices, text)
			}
		}
		if !slices.Equal(devices, want) {
			return fmt.Sprintf("the ResourceSlices have %q, want %q", devices, want)
		}
		return ""
	})
}

func (a *agents) deviceClass(ctx context.Context, t *testing.T) {
	t.Helper()
	_, err := a.Client().ResourceV1().DeviceClasses().Create(ctx, &resourceapi.DeviceClass{
		ObjectMeta: metav1.ObjectMeta{Name: draplugin.Driver},
		Spec: resourceapi.DeviceClassSpec{Selectors: []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{
			Expression: `device.driver == "gshare.dev"`,
		}}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// template creates a ResourceClaimTemplate for a part of a GPU.
func (a *agents) template(ctx context.Context, t *testing.T, name, sm, memory string) {
	t.Helper()
	_, err := a.Client().ResourceV1().ResourceClaimTemplates("default").Create(ctx, &resourceapi.ResourceClaimTemplate{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: resourceapi.ResourceClaimTemplateSpec{Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{
			Requests: []resourceapi.DeviceRequest{{Name: "gpu", Exactly: &resourceapi.ExactDeviceRequest{
				DeviceClassName: draplugin.Driver,
				Capacity: &resourceapi.CapacityRequirements{Requests: map[resourceapi.QualifiedName]resource.Quantity{
					draplugin.CapacitySM: resource.MustParse(sm), draplugin.CapacityMemory: resource.MustParse(memory),
				}},
			}}},
		}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// withClaim returns a pod for the stock scheduler with a claim from a template.
func withClaim(name, template string) *v1.Pod {
	return claiming(cluster.Pod(name, "sleep", "inf"), template)
}

func claiming(pod *v1.Pod, template string) *v1.Pod {
	pod.Spec.SchedulerName = v1.DefaultSchedulerName
	pod.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "gpu", ResourceClaimTemplateName: &template}}
	pod.Spec.Containers[0].Resources.Claims = []v1.ResourceClaim{{Name: "gpu"}}
	return pod
}

// hasClaim waits until a pod runs. It checks inside the pod, and in its enforcement status, that the pod has this share of GPU-1.
func (a *agents) hasClaim(ctx context.Context, t *testing.T, name string, percent, memory int64) *v1.Pod {
	t.Helper()
	pod, err := a.WaitPod(ctx, name, cluster.IsRunning)
	if err != nil {
		t.Fatal(err)
	}
	out, err := a.Nodes[0].Exec(ctx, pod, "main", "sh", "-c",
		"echo $CUDA_VISIBLE_DEVICES $CUDA_MPS_ACTIVE_THREAD_PERCENTAGE; cat /run/gshare/policy /etc/ld.so.preload; test -S /run/gshare/token.sock && echo socket")
	want := fmt.Sprintf("GPU-1 %d\nversion 1\nvgpu 0 GPU-1 memory %d quota 1000 sm %d\n/usr/lib/gshare/libgshare.so\nsocket\n", percent, memory, percent*10)
	if err != nil || string(out) != want {
		t.Errorf("%s: inside is %q (%v), want %q", name, out, err, want)
	}
	pod, err = a.WaitPod(ctx, name, func(p *v1.Pod) bool { _, present, _ := kube.EnforcementStatusOf(p); return present })
	if err != nil {
		t.Fatal(err)
	}
	if status, _, err := kube.EnforcementStatusOf(pod); err != nil || !strings.HasPrefix(status.Containers[0].SMs, "MPS") {
		t.Errorf("%s: status %+v, %v", name, status, err)
	}
	a.waitClaimStatus(ctx, t, pod)
	return pod
}

// waitClaimStatus waits until the status of a pod's claim says which parts of its share are not enforced, since the devices are simulated.
func (a *agents) waitClaimStatus(ctx context.Context, t *testing.T, pod *v1.Pod) {
	t.Helper()
	if len(pod.Status.ResourceClaimStatuses) != 1 {
		t.Fatalf("%s has claims %+v", pod.Name, pod.Status.ResourceClaimStatuses)
	}
	poll(ctx, t, func() string {
		claim, err := a.Client().ResourceV1().ResourceClaims("default").Get(ctx, *pod.Status.ResourceClaimStatuses[0].ResourceClaimName, metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		for _, d := range claim.Status.Devices {
			if d.Device == "gpu-1" && len(d.Conditions) == 2 && strings.Contains(d.Conditions[1].Message, "simulated") && d.Data != nil {
				return ""
			}
		}
		return fmt.Sprintf("the status of claim %s is %+v", claim.Name, claim.Status)
	})
}

// waitUnschedulable waits until the scheduler has failed to place a pod.
func (a *agents) waitUnschedulable(ctx context.Context, t *testing.T, name string) {
	t.Helper()
	_, err := a.WaitPod(ctx, name, func(p *v1.Pod) bool {
		for _, c := range p.Status.Conditions {
			if c.Type == v1.PodScheduled && c.Status == v1.ConditionFalse && strings.Contains(c.Message, "cannot allocate all claims") {
				return true
			}
		}
		return false
	})
	if err != nil {
		t.Fatal(err)
	}
}

// waitNoClaims waits until all claims of ended pods are gone.
func (a *agents) waitNoClaims(ctx context.Context, t *testing.T) {
	t.Helper()
	poll(ctx, t, func() string {
		claims, err := a.Client().ResourceV1().ResourceClaims("default").List(ctx, metav1.ListOptions{})
		switch {
		case err != nil:
			return err.Error()
		case len(claims.Items) > 0:
			return fmt.Sprintf("%d claims are left, such as %+v", len(claims.Items), claims.Items[0])
		}
		return ""
	})
}
