package cluster_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gshare-dev/gshare/test/cluster"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/node/fakegpu"
	"github.com/gshare-dev/gshare/vgpu/node/grant"
)

const (
	workload = "docker.io/local/workload:1"
	// measured is how long the load is looked at, after it has run for a moment.
	measured = 10 * time.Second
	// tolerance is by how many points a share may exceed its quota.
	tolerance = 3
)

// TestAgentWorkload runs programs that keep a simulated GPU busy in real containers, with the real hook in front of the fake
// driver. Beside each other they get what they were admitted for, and no more.
func TestAgentWorkload(t *testing.T) {
	long(t)
	fake, err := filepath.Abs("../../bin/cluster/fake")
	if err != nil {
		t.Fatal(err)
	}
	if err := fakegpu.Build("../..", fake); err != nil {
		t.Fatal(err)
	}
	a := startWithAgents(t, cluster.Options{Nodes: 1, Images: []cluster.Image{{Name: workload, Files: withLibraries(t, "/bin/spin", filepath.Join(fake, "spin"))}}}, twoGPUs)
	if err := os.WriteFile(filepath.Join(a.Dir, "driver.yaml"), []byte(strings.ReplaceAll(fakeDriver, "DIR", a.Dir)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := exec.Command("cp", "-r", fake, filepath.Join(a.Dir, "fake")).Run(); err != nil {
		t.Fatal(err)
	}
	gpus := map[string]*fakegpu.Simulation{}
	for _, uuid := range []string{"GPU-0", "GPU-1"} {
		gpus[uuid], err = fakegpu.New(fakegpu.Config{Socket: filepath.Join(a.Dir, uuid+".sock"), Devices: 1})
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(filepath.Join(a.Dir, uuid+".sock"), 0o666); err != nil {
			t.Fatal(err)
		}
		defer gpus[uuid].Close()
	}
	ctx := testContext(t)
	shares := []struct{ sm, quota int64 }{{60, 50}, {60, 30}}
	for i, s := range shares {
		pod := ask(cluster.Pod(fmt.Sprintf("load-%d", i), "/bin/spin", fmt.Sprintf("spin_ns4000000_sm%d_blocks64", s.sm*10)), s.sm, s.quota, 1024)
		pod.Spec.Containers[0].Image = workload
		a.create(ctx, t, pod)
	}
	used := func(i int) float64 {
		pod, err := a.Client().CoreV1().Pods("default").Get(ctx, fmt.Sprintf("load-%d", i), metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		seconds, err := a.of[a.Nodes[0].Name].busy(ctx, pod.UID)
		if err != nil {
			t.Fatal(err)
		}
		return seconds
	}
	for i := range shares {
		pod, err := a.WaitPod(ctx, fmt.Sprintf("load-%d", i), cluster.Running)
		if err != nil {
			t.Fatal(err)
		}
		if placement, _, _ := kube.PlacementOf(pod); placement.Containers[0].VGPUs[0].Slice != "GPU-0" {
			t.Fatalf("%s is on %+v; both have to be on one GPU", pod.Name, placement.Containers)
		}
	}
	for { // until both are at work
		if used(0) > 0 && used(1) > 0 {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	before, began := []float64{used(0), used(1)}, time.Now()
	time.Sleep(measured) // what is measured is time on the machine's clock
	took := time.Since(began).Seconds()
	for i, s := range shares {
		got := 100 * (used(i) - before[i]) / took
		t.Logf("quota %d%%: used %.1f%%", s.quota, got)
		// A machine that does much else cannot keep a GPU busy, so little can be said of the least.
		if got > float64(s.quota+tolerance) || got < float64(s.quota)/10 {
			t.Errorf("quota %d%%: used %.1f%%", s.quota, got)
		}
	}
	// The agent ends and another takes over: the programs go on, and are served again.
	agent := a.of[a.Nodes[0].Name]
	agent.Kill()
	agent.start(ctx, t)
	began = time.Now()
	for used(0) == 0 || used(1) == 0 {
		time.Sleep(50 * time.Millisecond)
	}
	t.Logf("served again %v after a new agent was ready", time.Since(began))
	for i := range shares {
		pod, err := a.WaitPod(ctx, fmt.Sprintf("load-%d", i), cluster.Running)
		if err != nil || pod.Status.ContainerStatuses[0].RestartCount != 0 {
			t.Errorf("load-%d was started again (%v)", i, err)
		}
	}
}

const fakeDriver = `cdiVersion: 0.6.0
kind: simulated/gpu
containerEdits:
  env: [LD_LIBRARY_PATH=/usr/lib/fake]
  mounts: [{hostPath: DIR/fake, containerPath: /usr/lib/fake, options: [ro, rbind]}]
devices:
- name: GPU-0
  containerEdits:
    env: [FAKE_CUDA_SOCKET=/dev/GPU-0.sock]
    mounts: [{hostPath: DIR/GPU-0.sock, containerPath: /dev/GPU-0.sock, options: [rbind]}]
- name: GPU-1
  containerEdits:
    env: [FAKE_CUDA_SOCKET=/dev/GPU-1.sock]
    mounts: [{hostPath: DIR/GPU-1.sock, containerPath: /dev/GPU-1.sock, options: [rbind]}]
`

// withLibraries is a program and what it is linked against, but for the driver.
func withLibraries(t *testing.T, path, program string) map[string]string {
	t.Helper()
	out, err := exec.Command("ldd", program).Output()
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{path: program}
	for line := range strings.Lines(string(out)) {
		for field := range strings.FieldsSeq(line) {
			if strings.HasPrefix(field, "/") && !strings.Contains(field, "libcuda") {
				files[field] = field
			}
		}
	}
	return files
}

// busy is the device time that the containers of a pod have had, as the token server counts it.
func (a *agent) busy(ctx context.Context, uid types.UID) (seconds float64, err error) {
	text, err := a.get(ctx, "/metrics")
	if err != nil {
		return 0, err
	}
	id := grant.Owner{UID: uid, Container: "main"}.ID()
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "gshare_share_busy_seconds_total") && strings.Contains(line, id) {
			return strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndex(line, " "):]), 64)
		}
	}
	return 0, fmt.Errorf("nothing is counted for pod %s", uid)
}
