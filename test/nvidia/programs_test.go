package nvidia_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	fakegpu "github.com/gshare-dev/gshare/test/fake/gpu"
	"github.com/gshare-dev/gshare/test/nvidia"
)

// sample returns a folder with a CUDA program compiled by the real nvcc, and the CUDA runtime that it uses.
func sample(t *testing.T) string {
	t.Helper()
	toolkit := filepath.Join(nvidia.Folder(t, "cuda-12.4"), "usr")
	for _, compiler := range []string{"gcc", "g++"} {
		if _, err := exec.LookPath(compiler); err != nil {
			t.Skipf("%s is not installed", compiler)
		}
	}
	folder, programs := t.TempDir(), "test/nvidia/programs/"
	output(t, exec.Command("gcc", "-std=gnu11", "-O2", "-fPIC", "-shared", "-pthread", "-Wall", "-Wextra", "-Werror",
		"-isystem", toolkit+"/include", "-Wl,-soname,libcudart.so.12", "-o", folder+"/libcudart.so.12", programs+"cudart.c", "-ldl"))
	if err := os.Symlink("libcudart.so.12", filepath.Join(folder, "libcudart.so")); err != nil {
		t.Fatal(err)
	}
	nvcc := exec.Command(toolkit+"/lib/nvidia-cuda-toolkit/bin/nvcc", "-cudart", "shared", "-cudadevrt", "none", "-arch", "sm_52",
		"-I"+toolkit+"/include", "-L"+folder, "-o", folder+"/sample", programs+"sample.cu")
	nvcc.Env = append(os.Environ(), "LD_LIBRARY_PATH="+toolkit+"/lib/x86_64-linux-gnu",
		"PATH="+toolkit+"/lib/nvidia-cuda-toolkit/bin:"+toolkit+"/bin:"+os.Getenv("PATH"))
	output(t, nvcc)
	return folder
}

// machine is a fake driver, whose device runs kernels in real time, and an agent that shares the device.
type machine struct {
	folder, libraries, socket string
	gpu                       *fakegpu.Simulation
}

// newMachine starts an agent. Programs find the driver's libraries and others in the given folder and in the build's folder.
func newMachine(t *testing.T, libraries string) *machine {
	t.Helper()
	build := built(t)
	folder, err := os.MkdirTemp("", "gn") // short enough for a socket path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(folder) })
	m := &machine{folder: folder, libraries: libraries + ":" + build, socket: filepath.Join(folder, "run", "control.sock")}
	if m.gpu, err = fakegpu.New(fakegpu.Config{Socket: filepath.Join(folder, "gpu")}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.gpu.Close() })
	m.write(t, "devices.yaml", "devices:\n- {uuid: GPU-00000000-0000-0000-0000-000000000000, model: A100, sms: 108, memoryMiB: 16384}\n")
	m.write(t, "node.yaml", fmt.Sprintf("apiVersion: gshare.dev/v1alpha1\nkind: NodeConfiguration\ndirectory: %[1]s/run\n"+
		"simulatedDevices: %[1]s/devices.yaml\nsimulatedMPS: %[2]s/nvidia-cuda-mps-control\n", folder, build))
	agent, err := m.gpu.Start(fakegpu.Client{Folder: build, Arguments: []string{"gshare-node", "--standalone", "--config", folder + "/node.yaml"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(agent.Kill)
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(m.socket); err == nil {
			return m
		}
		if time.Now().After(deadline) {
			agent.Kill()
			text, _ := agent.Wait()
			t.Fatalf("the agent does not serve after a minute: %s", text)
		}
	}
}

func (m *machine) write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(m.folder, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// share runs a program on a share with half the SMs, half the time and 1 GiB of the device. It returns the program's output and whether
// it succeeded.
func (m *machine) share(t *testing.T, environment []string, program ...string) (string, bool) {
	t.Helper()
	arguments := append([]string{"gshare", "run", "--socket", m.socket, "--hook", built(t) + "/libgshare.so",
		"--sm", "50", "--quota", "50", "--mem", "1Gi", "--"}, program...)
	return m.start(t, environment, arguments...)
}

// start runs a program on the device without a share. It returns the program's output and whether it succeeded.
func (m *machine) start(t *testing.T, environment []string, program ...string) (string, bool) {
	t.Helper()
	folder := built(t)
	if filepath.IsAbs(program[0]) {
		folder = ""
	}
	running, err := m.gpu.Start(fakegpu.Client{Folder: folder, Arguments: program, Env: append(environment, "LD_LIBRARY_PATH="+m.libraries)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(running.Kill)
	text, err := running.Wait()
	return text, err == nil
}

// TestPrograms runs a program compiled by the real nvcc: with the fake driver alone, under the hook, and on a share.
func TestPrograms(t *testing.T) {
	folder := sample(t)
	newMachine(t, folder).everywhere(t, nil, folder+"/sample")
}

// TestPyCUDA runs a PyCUDA program: with the fake driver alone, under the hook, and on a share.
func TestPyCUDA(t *testing.T) {
	folder := filepath.Join(nvidia.Folder(t, "pycuda"), "usr/lib")
	python, err := exec.LookPath("python3.11")
	if err != nil {
		t.Skip("Python 3.11 is not installed, for which Debian 12 has PyCUDA")
	}
	program, err := filepath.Abs("programs/sample.py")
	if err != nil {
		t.Fatal(err)
	}
	libraries := folder + "/x86_64-linux-gnu"
	environment := []string{"PYTHONPATH=" + folder + "/python3/dist-packages", "PYTHONDONTWRITEBYTECODE=1"}
	m := newMachine(t, libraries+":"+libraries+"/blas:"+libraries+"/lapack")
	m.everywhere(t, environment, python, program)
}

// everywhere runs a program that does the same as sample.cu: with the fake driver alone, under the hook without an agent, and on a
// share.
//
// On a share, its 200 kernels of 1 ms take twice as long because of half the time, and twice as long again because of half the SMs,
// less a window or two, since the first window's time is available at once. On a busy machine they take longer.
func (m *machine) everywhere(t *testing.T, environment []string, program ...string) {
	m.write(t, "policy", "version 1\nvgpu 0 none memory 1073741824 quota 500 sm 1000\n")
	m.write(t, "processes-1", "") // the lock file, as in a container
	hooked := append(slices.Clone(environment), "LD_PRELOAD="+built(t)+"/libgshare.so", "GSHARE_DIR="+m.folder)
	for _, test := range []struct {
		name  string
		run   func() (string, bool)
		total int // MiB of device memory that the program sees
		large int // error code of an allocation of 3 GiB
		least int // least time in ms that the kernels take
	}{
		{"bare", func() (string, bool) { return m.start(t, environment, program...) }, 16384, 0, 200},
		{"hook", func() (string, bool) { return m.start(t, hooked, program...) }, 1024, 2, 280},
		{"share", func() (string, bool) { return m.share(t, environment, program...) }, 1024, 2, 600},
	} {
		t.Run(test.name, func(t *testing.T) {
			out, ok := test.run()
			var left, total, small, large, ms int
			_, err := fmt.Sscanf(out, "%d of %d MiB free\n512 MiB: error %d\n3072 MiB: error %d\n%d ms", &left, &total, &small, &large, &ms)
			if !ok || err != nil {
				t.Fatalf("%t, %v: %s", ok, err, out)
			}
			if left < total-200 || total != test.total || small != 0 || large != test.large || ms < test.least {
				t.Errorf("got %s, want %d MiB in all, error %d of the large allocation, and at least %d ms", out, test.total, test.large, test.least)
			}
			t.Logf("200 kernels took %d ms", ms)
		})
	}
}
