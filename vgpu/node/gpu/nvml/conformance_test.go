package nvml

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/google/go-cmp/cmp"

	fakegpu "github.com/gshare-dev/gshare/test/fake/gpu"
	"github.com/gshare-dev/gshare/vgpu/node/gpu"
)

// driver is NVIDIA's library, loaded as the agent loads it, and programs that use the devices: those of this machine with
// GSHARE_TEST_GPU, else the fake ones of hook/fake.
type driver struct {
	nvml.Interface
	folder string // of the programs
	fake   bool
}

var built struct {
	sync.Once
	folder string
	err    error
}

// buildFake builds the fake driver once, with two devices whose memory is accounted for over processes. Its library reads the
// environment when it is loaded.
func buildFake() {
	if built.folder, built.err = os.MkdirTemp("", "fakenvml"); built.err != nil {
		return
	}
	for name, value := range map[string]string{
		"FAKE_CUDA_DEVICES": "2", "FAKE_CUDA_SHARED": filepath.Join(built.folder, "account"), "FAKE_NVML_FAULTS": filepath.Join(built.folder, "faults"),
	} {
		os.Setenv(name, value)
	}
	built.err = fakegpu.Build("../../../..", built.folder)
}

func TestMain(m *testing.M) {
	status := m.Run()
	if built.folder != "" {
		os.RemoveAll(built.folder)
	}
	os.Exit(status)
}

func newDriver(t *testing.T) driver {
	t.Helper()
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("gcc is not installed")
	}
	if built.Do(buildFake); built.err != nil {
		t.Fatal(built.err)
	}
	d := driver{nvml.New(), built.folder, os.Getenv("GSHARE_TEST_GPU") == ""}
	if d.fake {
		d.Interface = nvml.New(nvml.WithLibraryPath(filepath.Join(d.folder, "libnvidia-ml.so.1")))
		d.fail(t)
	}
	return d
}

// fail lets calls of the fake go wrong from now on; without lines, none but that for events, for which a source would wait.
func (d driver) fail(t *testing.T, lines ...string) {
	t.Helper()
	if !slices.ContainsFunc(lines, func(l string) bool { return strings.HasPrefix(l, "xid") }) {
		lines = append(lines, fmt.Sprint("nvmlEventSetCreate@* ", int(nvml.ERROR_NOT_SUPPORTED)))
	}
	next := filepath.Join(d.folder, "faults.next")
	if err := os.WriteFile(next, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, filepath.Join(d.folder, "faults")); err != nil {
		t.Fatal(err)
	}
}

// hanging says that a call of the fake has begun to hang.
func (d driver) hanging() bool {
	_, err := os.Stat(filepath.Join(d.folder, "faults.hanging"))
	return err == nil
}

// hold runs a program that takes device memory of the first device, and gives what it says.
func (d driver) hold(t *testing.T, bytes uint64) (said string, pid int, end func()) {
	t.Helper()
	cmd := exec.Command(filepath.Join(d.folder, "hold"), fmt.Sprint(bytes))
	if d.fake {
		cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+d.folder)
	}
	input, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	end = sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		_, _ = io.Copy(io.Discard, output)
		_ = cmd.Wait()
		input.Close()
	})
	t.Cleanup(end)
	said, _ = bufio.NewReader(output).ReadString('\n')
	return strings.TrimSpace(said), cmd.Process.Pid, end
}

// TestListConforms: devices say all of themselves, and the same again; processes are on what is listed.
func TestListConforms(t *testing.T) {
	s := New(newDriver(t))
	devices, err := s.Devices()
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]bool{}
	for n, d := range devices {
		if err := d.Validate(); err != nil || d.Fault != "" || d.Index != n || listed[d.UUID] {
			t.Errorf("%+v: %v", d, err)
		}
		listed[d.UUID] = true
		for _, i := range d.Instances {
			listed[i.UUID] = true
		}
	}
	if again, err := s.Devices(); err != nil || !cmp.Equal(devices, again) {
		t.Errorf("%v: %s", err, cmp.Diff(devices, again))
	}
	processes, err := s.Processes()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range processes {
		if !listed[p.Slice] {
			t.Errorf("%+v is on no device", p)
		}
	}
}

// TestMemoryConforms: a process with device memory is listed, what it has is in use, others get no more than is left, and it is free
// again when the process has ended by SIGKILL.
func TestMemoryConforms(t *testing.T) {
	d := newDriver(t)
	if r := d.Init(); r != nvml.SUCCESS {
		t.Fatal(nvml.ErrorString(r))
	}
	defer d.Shutdown()
	first, _ := d.DeviceGetHandleByIndex(0)
	uuid, _ := first.GetUUID()
	memory := func() nvml.Memory_v2 {
		m, r := first.GetMemoryInfo_v2()
		if r != nvml.SUCCESS {
			t.Fatal(nvml.ErrorString(r))
		}
		return m
	}
	s, before := New(d), memory()
	on := func(pid int) bool {
		processes, err := s.Processes()
		if err != nil {
			t.Fatal(err)
		}
		return slices.Contains(processes, gpu.Process{PID: pid, Slice: uuid})
	}
	part := before.Free / 2
	said, pid, end := d.hold(t, part)
	if now := memory(); said != "ok" || now.Used < before.Used+part || now.Free > before.Free-part || !on(pid) {
		t.Errorf("it says %q; before %+v, now %+v, listed %v", said, before, now, on(pid))
	}
	if said, other, _ := d.hold(t, before.Free-part/2); said != "error 2" || d.fake && on(other) {
		t.Errorf("more than is left: it says %q, listed %v", said, on(other))
	}
	end()
	for limit := time.Now().Add(time.Minute); on(pid) || memory().Used >= before.Used+part; time.Sleep(time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatalf("it has ended, and %+v; before %+v", memory(), before)
		}
	}
}

// What the failure of a call does to the list: it fails too, or the device is not in it, or has a fault, or nothing.
type effect int

const (
	fails effect = iota
	missing
	faulty
	nothing
)

// effects are those of the calls that make the list. Those of events and their recovery are in TestXidConforms.
var effects = map[string]effect{
	"nvmlInit_v2": fails, "nvmlDeviceGetCount_v2": fails, "nvmlDeviceGetHandleByIndex_v2": missing, "nvmlDeviceGetUUID": missing,
	"nvmlDeviceGetName": faulty, "nvmlDeviceGetMemoryInfo_v2": faulty, "nvmlDeviceGetNumGpuCores": faulty, "nvmlDeviceGetMinorNumber": faulty,
	"nvmlDeviceGetCudaComputeCapability": faulty, "nvmlDeviceGetMigMode": faulty, "nvmlDeviceGetRemappedRows": nothing,
}

var codes = []nvml.Return{nvml.ERROR_GPU_IS_LOST, nvml.ERROR_TIMEOUT, nvml.ERROR_IN_USE, nvml.ERROR_UNKNOWN}

func newFake(t *testing.T) driver {
	t.Helper()
	d := newDriver(t)
	if !d.fake {
		t.Skip("GSHARE_TEST_GPU is set: a real driver does not fail when it is told to")
	}
	t.Cleanup(func() { d.fail(t) })
	return d
}

// TestEachCallFails: whatever call goes wrong for a device, that device is not taken for well, the other is, and both are when the call
// works again.
func TestEachCallFails(t *testing.T) {
	d := newFake(t)
	well, err := New(d).Devices()
	if err != nil || len(well) != 2 {
		t.Fatalf("%+v, %v", well, err)
	}
	for call, want := range effects {
		for _, code := range codes {
			device := 1
			if want == fails {
				device = 0 // of a call that is for none
			}
			d.fail(t, fmt.Sprintf("%s@%d %d", call, device, code))
			s := New(d)
			devices, err := s.Devices()
			if got := effectOn(well, devices, err); got != want {
				t.Errorf("%s gives %d: effect %d, want %d: %+v, %v", call, code, got, want, devices, err)
			}
			d.fail(t)
			if devices, err := s.Devices(); effectOn(well, devices, err) != nothing {
				t.Errorf("after %s gave %d: %+v, %v", call, code, devices, err)
			}
		}
	}
	for _, call := range []string{"nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetMPSComputeRunningProcesses_v3", "nvmlDeviceGetMigMode"} {
		for _, code := range codes {
			d.fail(t, fmt.Sprintf("%s@1 %d", call, code))
			if _, err := New(d).Processes(); err == nil {
				t.Errorf("%s gives %d, and the list of processes passes for whole", call, code)
			}
		}
	}
}

// effectOn compares a list with that of two devices that are well; -1 is none of the effects.
func effectOn(well, devices []gpu.Device, err error) effect {
	switch {
	case err != nil && len(devices) == 0:
		return fails
	case err != nil || len(devices) == 0 || !cmp.Equal(devices[0], well[0]):
		return -1
	case len(devices) == 1:
		return missing
	case devices[1].UUID == well[1].UUID && devices[1].Fault != "":
		return faulty
	case cmp.Equal(devices, well):
		return nothing
	}
	return -1
}

// TestHangs: while a call hangs for one device, who asks for something else is answered.
func TestHangs(t *testing.T) {
	d := newFake(t)
	s := New(d)
	if _, err := s.Devices(); err != nil {
		t.Fatal(err)
	}
	d.fail(t, "nvmlDeviceGetName@1 hang")
	listed := make(chan error)
	go func() {
		devices, err := s.Devices()
		if err == nil && (len(devices) != 2 || devices[1].Fault != "") {
			err = fmt.Errorf("%+v", devices)
		}
		listed <- err
	}()
	for limit := time.Now().Add(time.Minute); !d.hanging(); time.Sleep(time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatal("it does not hang")
		}
	}
	if _, err := s.Processes(); err != nil {
		t.Error(err)
	}
	d.fail(t)
	if err := <-listed; err != nil {
		t.Error(err)
	}
}

// TestXidConforms: errors come through the library as they do through the mock of TestXid. Without events a device is well.
func TestXidConforms(t *testing.T) {
	d := newFake(t)
	d.fail(t, "xid@1 0", fmt.Sprint("nvmlDeviceRegisterEvents@0 ", int(nvml.ERROR_NOT_SUPPORTED)))
	s := New(d)
	eventually(t, s, "", "")
	reset := fmt.Sprint("recovery@1 ", int(nvml.GPU_RECOVERY_ACTION_GPU_RESET))
	d.fail(t, "xid@1 79", reset)
	eventually(t, s, "", "Xid 79: reset the GPU")
	d.fail(t, "xid@1 79", reset, fmt.Sprint("nvmlDeviceGetFieldValues@1 ", int(nvml.ERROR_UNKNOWN)))
	eventually(t, s, "", "Xid 79")
	d.fail(t, "xid@1 79")
	eventually(t, s, "", "")
}
