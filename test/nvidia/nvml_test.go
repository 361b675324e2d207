package nvidia_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	library "github.com/NVIDIA/go-nvml/pkg/nvml"
	"golang.org/x/sys/unix"

	"github.com/gshare-dev/gshare/node/gpu"
	"github.com/gshare-dev/gshare/node/gpu/nvml"
	"github.com/gshare-dev/gshare/test/nvidia"
)

// TestNVML lists the GPUs through each driver's real library, in a process that finds the library in the same way as the agent.
// Without the driver's kernel module, the result is that there is no GPU, with the reason.
func TestNVML(t *testing.T) {
	if os.Getenv("LIST_GPUS") != "" {
		makeNoDevices(t)
		_, err := nvml.New(library.New()).Devices()
		fmt.Printf("error: %v; no GPU: %t\n", err, errors.Is(err, gpu.ErrNoGPU))
		return
	}
	if _, err := os.Stat("/proc/driver/nvidia"); err == nil {
		t.Skip("the kernel module of NVIDIA's driver is loaded")
	}
	list := func(t *testing.T, libraries string) string {
		command := exec.Command(os.Args[0], "-test.run=^TestNVML$")
		command.Env = append(os.Environ(), "LIST_GPUS=1", "LD_LIBRARY_PATH="+libraries)
		return output(t, command)
	}
	const want = "error: no GPU: initialize NVML: Driver Not Loaded; no GPU: true\n"
	if out := list(t, t.TempDir()); strings.Contains(out, want) || !strings.Contains(out, "no GPU: true") {
		t.Errorf("without any library: %s", out)
	}
	for _, driver := range nvidia.Drivers() {
		t.Run(driver, func(t *testing.T) {
			if out := list(t, filepath.Join(nvidia.Folder(t, driver), "lib")); !strings.Contains(out, want) {
				t.Errorf("got %s, want %s", out, want)
			}
		})
	}
}

// makeNoDevices takes away the calling thread's capability to create device nodes: as root, NVIDIA's libraries create /dev/nvidiactl
// even if there is no GPU, and it would remain.
func makeNoDevices(t *testing.T) {
	runtime.LockOSThread()
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		t.Fatal(err)
	}
	data[0].Effective &^= 1 << unix.CAP_MKNOD
	data[0].Permitted &^= 1 << unix.CAP_MKNOD
	if err := unix.Capset(&header, &data[0]); err != nil {
		t.Fatal(err)
	}
}
