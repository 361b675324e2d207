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

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/gshare-dev/gshare/node/cgroup"
	"github.com/gshare-dev/gshare/test/cluster"
	fakegpu "github.com/gshare-dev/gshare/test/fake/gpu"
	"github.com/gshare-dev/gshare/test/native"
)

// workload is an image with busybox and /bin/spin, which keeps a GPU busy.
const workload = "docker.io/local/workload:1"

// gpus maps UUIDs to simulated devices that run in real time. Programs in containers use them through the fake driver.
type gpus map[string]*fakegpu.Simulation

// buildDriver compiles the fake driver and the programs, and returns their folder.
func buildDriver(t *testing.T) string {
	t.Helper()
	folder, err := filepath.Abs("../../bin/cluster/fake")
	if err != nil {
		t.Fatal(err)
	}
	if err := native.Build("../..", folder, native.Driver); err != nil {
		t.Fatal(err)
	}
	return folder
}

func workloadImage(t *testing.T, driver string) cluster.Image {
	return cluster.Image{Name: workload, Files: withLibraries(t, "/bin/spin", filepath.Join(driver, "spin"))}
}

// startGPUs starts a simulation for each device of the cluster's only node, and installs the fake driver for containers.
func startGPUs(t *testing.T, a *agents, driver string, uuids ...string) gpus {
	t.Helper()
	if out, err := exec.Command("cp", "-r", driver, filepath.Join(a.Dir, "fake")).CombinedOutput(); err != nil {
		t.Fatalf("copy the fake driver: %v\n%s", err, out)
	}
	all := gpus{}
	text := strings.ReplaceAll(driverHead, "DIR", a.Dir)
	for _, uuid := range uuids {
		socket := filepath.Join(a.Dir, uuid+".sock")
		s, err := fakegpu.New(fakegpu.Config{Socket: socket})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		if err := os.Chmod(socket, 0o666); err != nil {
			t.Fatal(err)
		}
		all[uuid] = s
		text += strings.NewReplacer("DIR", a.Dir, "UUID", uuid).Replace(driverDevice)
	}
	if err := os.WriteFile(filepath.Join(a.Dir, "driver.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return all
}

const driverHead = `cdiVersion: 0.6.0
kind: simulated/gpu
containerEdits:
  env: [LD_LIBRARY_PATH=/usr/lib/fake]
  mounts: [{hostPath: DIR/fake, containerPath: /usr/lib/fake, options: [ro, rbind]}]
devices:
`

const driverDevice = `- name: UUID
  containerEdits:
    env: [FAKE_CUDA_SOCKET=/dev/UUID.sock]
    mounts: [{hostPath: DIR/UUID.sock, containerPath: /dev/UUID.sock, options: [rbind]}]
`

// unhooked makes a pod use a GPU without gshare: the driver and the socket are mounted from the host, and there is no hook.
func unhooked(a *agents, pod *v1.Pod, uuid string) *v1.Pod {
	c := &pod.Spec.Containers[0]
	c.Env = []v1.EnvVar{{Name: "LD_LIBRARY_PATH", Value: "/usr/lib/fake"}, {Name: "FAKE_CUDA_SOCKET", Value: "/dev/gpu.sock"}}
	for name, path := range map[string][2]string{"fake": {"fake", "/usr/lib/fake"}, "gpu": {uuid + ".sock", "/dev/gpu.sock"}} {
		pod.Spec.Volumes = append(pod.Spec.Volumes, v1.Volume{Name: name, VolumeSource: v1.VolumeSource{
			HostPath: &v1.HostPathVolumeSource{Path: filepath.Join(a.Dir, path[0])},
		}})
		c.VolumeMounts = append(c.VolumeMounts, v1.VolumeMount{Name: name, MountPath: path[1]})
	}
	return pod
}

// used returns the percentage of a period during which the device ran kernels of the pod.
func (g gpus) used(t *testing.T, uuid string, pod *v1.Pod, from, to time.Duration) float64 {
	t.Helper()
	var sum time.Duration
	for _, pid := range pidsOf(t, pod) {
		for _, s := range g[uuid].Spans(pid) {
			sum += max(0, min(s.End, to)-max(s.Start, from))
		}
	}
	return 100 * sum.Seconds() / (to - from).Seconds()
}

// pidsOf returns the PIDs of a pod's processes, which it finds by their cgroups.
func pidsOf(t *testing.T, pod *v1.Pod) (pids []int) {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		m, err := cgroup.Of(pid)
		if err != nil {
			continue // the process has ended
		}
		if c, err := m.Container(); err == nil && c.PodUID == string(pod.UID) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// program waits until a device has run a kernel of the pod, and returns the process's PID in the PID namespace of its machine.
func (g gpus) program(ctx context.Context, t *testing.T, uuid string, pod *v1.Pod) (pid int) {
	t.Helper()
	err := wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(context.Context) (bool, error) {
		for _, here := range pidsOf(t, pod) {
			if len(g[uuid].Spans(here)) > 0 {
				pid = onMachine(t, here)
			}
		}
		return pid != 0, nil
	})
	if err != nil {
		t.Fatalf("%s does not compute on %s", pod.Name, uuid)
	}
	return pid
}

// onMachine converts a PID to the PID namespace of the machine that the process runs on. It returns 0 if the process has ended.
func onMachine(t *testing.T, pid int) int {
	t.Helper()
	for line := range strings.Lines(read(t, fmt.Sprintf("/proc/%d/status", pid))) {
		if levels, ok := strings.CutPrefix(line, "NSpid:"); ok {
			inner, err := strconv.Atoi(strings.Fields(levels)[1]) // after the PID in our namespace; the PID in the container's own namespace is third
			if err != nil {
				t.Fatal(err)
			}
			return inner
		}
	}
	return 0
}

// spin returns the command of a program that continuously launches kernels of the given length and width, in percent of the SMs.
func spin(kernel time.Duration, sm int64, more ...string) []string {
	return append([]string{"/bin/spin", fmt.Sprintf("spin_ns%d_sm%d_blocks64", kernel.Nanoseconds(), 10*sm)}, more...)
}

// withLibraries returns a program and the libraries that it is linked against, except for the driver.
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
