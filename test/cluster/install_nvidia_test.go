package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/gshare-dev/gshare/node/enforcement"
	"github.com/gshare-dev/gshare/node/mps"
	"github.com/gshare-dev/gshare/node/process"
	"github.com/gshare-dev/gshare/test/cluster"
	"github.com/gshare-dev/gshare/test/nvidia"
	"github.com/gshare-dev/gshare/vgpu/kube"
)

const (
	// nvidiaDriver is a driver description that makes containers use NVIDIA's library in the image.
	nvidiaDriver = `cdiVersion: 0.6.0
kind: simulated/gpu
devices:
- {name: GPU-0, containerEdits: {env: [LD_LIBRARY_PATH=/usr/lib/driver]}}
`

	// initProgram is a C program that prints the result of cuInit.
	initProgram = `#include <stdio.h>
int cuInit(unsigned);
int main(void) { return printf("%d", cuInit(0)) < 0; }
`
)

// Results of NVIDIA's cuInit without a GPU, with an MPS daemon whose server cannot start, and without a daemon.
const (
	withDaemon    = "805" // CUDA_ERROR_MPS_CONNECTION_FAILED
	withoutDaemon = "100" // CUDA_ERROR_NO_DEVICE
)

// TestNVIDIA runs the agent as root in its pod, with NVIDIA's MPS control daemons of each downloaded driver branch in turn, as after
// driver upgrades. The agent starts, commands, replaces and ends them. Pods reach the daemons and share memory with them, but cannot end
// them.
func TestNVIDIA(t *testing.T) {
	n := startNVIDIA(t)
	for _, branch := range nvidia.Drivers() {
		done := t.Run(branch, func(t *testing.T) {
			nvidia.Folder(t, branch)
			n.testDaemons(t, branch)
		})
		if !done {
			return // what it has left would make the others fail too
		}
	}
}

// nvidiaNode is a cluster whose agent has NVIDIA's MPS programs.
type nvidiaNode struct{ *installed }

// startNVIDIA starts a cluster with an image of the agent for each branch of the driver, and installs gshare.
func startNVIDIA(t *testing.T) nvidiaNode {
	t.Helper()
	folders := map[string]string{}
	for _, branch := range nvidia.Drivers() {
		if folder, err := nvidia.Find(branch); err == nil {
			folders[branch] = folder
		}
	}
	if len(folders) == 0 {
		t.Skip("no driver of NVIDIA is there: fetch them with: hack/nvidia.sh fetch")
	}
	last := folders[slices.Max(slices.Collect(maps.Keys(folders)))]
	images := newer.images(t, filepath.Join(last, "bin"))
	for branch, folder := range folders {
		agent := cluster.Image{Name: agentImage(branch), Files: maps.Clone(images[0].Files), Bare: true}
		maps.Copy(agent.Files, mpsPrograms(t, filepath.Join(folder, "bin")))
		images = append(images, agent)
	}
	client := withLibraries(t, "/bin/cuinit", buildInit(t, last))
	maps.Copy(client, withLibraries(t, "/usr/lib/driver/libcuda.so.1", filepath.Join(last, "lib/libcuda.so.1")))
	maps.Copy(client, withLibraries(t, "/bin/nvidia-cuda-mps-control", filepath.Join(last, "bin/nvidia-cuda-mps-control")))
	n := nvidiaNode{startWithImages(t, append(images, cluster.Image{Name: workload, Files: client}))}
	n.describeGPUs(t, nvidiaDriver, oneGPU)
	n.kubectl(t, "label", "node", "--all", "gshare.dev/gpus=true")
	n.apply(t, newer)
	n.rolled(t)
	n.waitInventory(n.ctx, t, n.Nodes[0])
	return n
}

func agentImage(branch string) string { return "docker.io/library/gshare-node:" + branch }

// buildInit compiles a program that calls cuInit.
func buildInit(t *testing.T, driver string) (program string) {
	t.Helper()
	folder := t.TempDir()
	program = filepath.Join(folder, "cuinit")
	if err := os.WriteFile(program+".c", []byte(initProgram), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("gcc", "-o", program, program+".c", "-L"+filepath.Join(driver, "lib"), "-l:libcuda.so.1", "-Wl,--allow-shlib-undefined").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return program
}

// testDaemons runs the agent with the daemon of a driver branch, and pods that use it.
func (n nvidiaNode) testDaemons(t *testing.T, branch string) {
	n.setAgent(t, branch)
	first := n.client(t, "first")
	if got := daemonLimitations(t, first); !slices.Equal(got, limitationsOf(branch)) {
		t.Errorf("limitations %q, want %q", got, limitationsOf(branch))
	}
	daemon := n.daemon(t)
	out, err := n.Nodes[0].Exec(n.ctx, first, "main", "sh", "-c", "echo quit -t 0 | nvidia-cuda-mps-control || true")
	if err != nil || n.daemon(t) != daemon {
		t.Errorf("a pod's root has ended the daemon: %s, %v", out, err)
	}
	n.reaches(t, first)
	n.shares(t, daemon, first)

	n.kubectl(t, "-n", "gshare-system", "rollout", "restart", "daemonset/gshare-node")
	n.rolled(t)
	second := n.client(t, "second")
	if n.daemon(t) != daemon {
		t.Error("the next agent replaced the daemon")
	}
	n.shares(t, daemon, first, second)

	if err := syscall.Kill(daemon, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	third := n.client(t, "third") // it starts once the next daemon serves
	if n.daemon(t) == daemon {
		t.Error("the daemon that was killed is back")
	}
	n.reaches(t, first)
	n.shares(t, n.daemon(t), first, second, third)

	n.clear(n.ctx, t)
	n.waitFor(t, "the end of the daemon and its memory", func() bool {
		_, err := os.Stat(n.Nodes[0].Machine.HostPath("/run/gshare/mps/shm/GPU-0"))
		return len(n.daemons(t)) == 0 && errors.Is(err, os.ErrNotExist)
	})
}

// setAgent makes the node run the agent's image for a driver branch.
func (n nvidiaNode) setAgent(t *testing.T, branch string) {
	t.Helper()
	n.kubectl(t, "-n", "gshare-system", "set", "image", "daemonset/gshare-node", "agent="+agentImage(branch))
	n.rolled(t)
}

// client runs a pod with a share, whose processes are clients of MPS.
func (n nvidiaNode) client(t *testing.T, name string) *v1.Pod {
	t.Helper()
	pod := ask(cluster.Pod(name, "sleep", "inf"), 20, 30, 1024)
	pod.Spec.Containers[0].Image = workload
	n.create(n.ctx, t, pod)
	return n.runsAsPlaced(n.ctx, t, name)
}

// daemonLimitations returns what a pod's enforcement status says about the daemon of its slice.
func daemonLimitations(t *testing.T, pod *v1.Pod) (found []string) {
	t.Helper()
	status, _, err := kube.EnforcementStatusOf(pod)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range status.Containers[0].Missing {
		if strings.HasPrefix(text, enforcement.MPSDaemon) {
			found = append(found, text)
		}
	}
	return found
}

// limitationsOf returns the expected limitations of a driver branch's daemon.
func limitationsOf(branch string) (all []string) {
	if branch < "555" {
		all = append(all, mps.SingleUser)
	}
	if branch < "550" {
		all = append(all, mps.FaultsUnknown)
	}
	return all
}

// reaches checks that CUDA in a pod finds the daemon through the pod's pipe directory, and not through any other.
func (n nvidiaNode) reaches(t *testing.T, pod *v1.Pod) {
	t.Helper()
	for command, want := range map[string]string{"cuinit": withDaemon, "CUDA_MPS_PIPE_DIRECTORY=/tmp cuinit": withoutDaemon} {
		if out, err := n.Nodes[0].Exec(n.ctx, pod, "main", "sh", "-c", command); err != nil || string(out) != want {
			t.Errorf("%s in pod %s: cuInit returns %s (%v), want %s", command, pod.Name, out, err, want)
		}
	}
}

// shares checks that the first pod sees the same files in /dev/shm as the other pods and the daemon.
func (n nvidiaNode) shares(t *testing.T, daemon int, pods ...*v1.Pod) {
	t.Helper()
	file := fmt.Sprintf("%s/file-%d", mps.SharedMemoryPath, time.Now().UnixNano())
	if out, err := n.Nodes[0].Exec(n.ctx, pods[0], "main", "touch", file); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if _, err := os.Stat(fmt.Sprintf("/proc/%d/root%s", daemon, file)); err != nil {
		t.Errorf("the daemon has another /dev/shm than pod %s: %v", pods[0].Name, err)
	}
	for _, pod := range pods {
		if out, err := n.Nodes[0].Exec(n.ctx, pod, "main", "ls", file); err != nil {
			t.Errorf("pod %s has another /dev/shm than pod %s: %s", pod.Name, pods[0].Name, out)
		}
	}
}

// daemon waits until the slice has exactly one daemon, and returns its PID as the test sees it.
func (n nvidiaNode) daemon(t *testing.T) (pid int) {
	t.Helper()
	n.waitFor(t, "one daemon", func() bool {
		all := n.daemons(t)
		if len(all) == 1 {
			pid = all[0]
		}
		return len(all) == 1
	})
	return pid
}

// daemons returns the PIDs of the slice's daemons on the node.
func (n nvidiaNode) daemons(t *testing.T) (pids []int) {
	t.Helper()
	node, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", n.Nodes[0].Machine.PID()))
	if err != nil {
		t.Fatal(err)
	}
	entries, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		pid, err := strconv.Atoi(filepath.Base(entry))
		if err != nil {
			continue
		}
		space, _ := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", pid))
		environment, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if space == node && process.Program(pid) == "nvidia-cuda-mps-control" && strings.Contains(string(line), "\x00-d\x00") &&
			strings.Contains(string(environment), "CUDA_MPS_PIPE_DIRECTORY=/run/gshare/mps/GPU-0\x00") {
			pids = append(pids, pid)
		}
	}
	return pids
}

func (n nvidiaNode) waitFor(t *testing.T, what string, holds func() bool) {
	t.Helper()
	err := wait.PollUntilContextCancel(n.ctx, 50*time.Millisecond, true, func(context.Context) (bool, error) { return holds(), nil })
	if err != nil {
		t.Fatalf("wait for %s: %v", what, err)
	}
}
