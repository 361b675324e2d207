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

	"github.com/gshare-dev/gshare/node/gpu"
	"github.com/gshare-dev/gshare/test/native"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// driver is the NVML library, loaded as the agent loads it, with programs that use the devices: those of this machine if GSHARE_TEST_GPU is
// set, else the fake ones of hook/fake.
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

// buildFake builds the fake driver, with two devices whose memory use is shared between processes. Its library reads the environment when
// it is loaded.
func buildFake() {
	if built.folder, built.err = os.MkdirTemp("", "fakenvml"); built.err != nil {
		return
	}
	for name, value := range map[string]string{
		"FAKE_CUDA_DEVICES": "2", "FAKE_CUDA_SHARED": filepath.Join(built.folder, "account"), "FAKE_NVML_FAULTS": filepath.Join(built.folder, "faults"),
	} {
		os.Setenv(name, value)
	}
	built.err = native.Build("../../..", built.folder, native.Driver)
}

func TestMain(m *testing.M) {
	status := m.Run()
	if built.folder != "" {
		os.RemoveAll(built.folder)
	}
	os.Exit(status)
}

// newDriver returns the driver under test, without injected failures.
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

// fail replaces the injected failures of the fake. The call for events always fails, as a source would wait for it, unless Xids are injected.
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

// hanging reports whether a call of the fake has begun to hang.
func (d driver) hanging() bool {
	_, err := os.Stat(filepath.Join(d.folder, "faults.hanging"))
	return err == nil
}

// hold starts a program that allocates memory of the first device, and returns its output.
func (d driver) hold(t *testing.T, bytes uint64) (result string, pid int, end func()) {
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
	result, _ = bufio.NewReader(output).ReadString('\n')
	return strings.TrimSpace(result), cmd.Process.Pid, end
}

// TestListConforms: devices are valid, have no fault, and are listed again equally; processes are on listed devices.
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
			t.Errorf("%+v is not on a listed device", p)
		}
	}
}

// TestMemoryConforms: a process with device memory is listed, its memory is in use, others get no more than is free, and SIGKILL of the
// process frees it.
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
	part := before.Free / 2
	on := func(pid int) bool {
		processes, err := s.Processes()
		if err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(processes, func(p gpu.Process) bool { return p.PID == pid && p.Slice == uuid && p.Memory >= share.Bytes(part) })
	}
	result, pid, end := d.hold(t, part)
	if now := memory(); result != "ok" || now.Used < before.Used+part || now.Free > before.Free-part || !on(pid) {
		t.Errorf("got %q; before %+v, now %+v, listed %v", result, before, now, on(pid))
	}
	if result, other, _ := d.hold(t, before.Free-part/2); result != "error 2" || d.fake && on(other) {
		t.Errorf("allocating more than is free: got %q, listed %v", result, on(other))
	}
	end()
	for limit := time.Now().Add(time.Minute); on(pid) || memory().Used >= before.Used+part; time.Sleep(time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatalf("the process was killed: got %+v, before %+v", memory(), before)
		}
	}
}

// effect is what the failure of a call does to the list of devices.
type effect int

const (
	otherEffect effect = iota - 1
	listFails
	deviceMissing
	deviceFaulty
	noEffect
)

// effects are the expected effects of the calls that list devices. TestXidConforms has the calls for events and recovery.
var effects = map[string]effect{
	"nvmlInit_v2": listFails, "nvmlDeviceGetCount_v2": listFails, "nvmlDeviceGetHandleByIndex_v2": deviceMissing, "nvmlDeviceGetUUID": deviceMissing,
	"nvmlDeviceGetName": deviceFaulty, "nvmlDeviceGetMemoryInfo_v2": deviceFaulty, "nvmlDeviceGetNumGpuCores": deviceFaulty, "nvmlDeviceGetMinorNumber": deviceFaulty,
	"nvmlDeviceGetCudaComputeCapability": deviceFaulty, "nvmlDeviceGetMigMode": deviceFaulty, "nvmlDeviceGetRemappedRows": noEffect,
	"nvmlDeviceGetMemoryAffinity": noEffect, "nvmlDeviceGetP2PStatus": noEffect,
}

var codes = []nvml.Return{nvml.ERROR_GPU_IS_LOST, nvml.ERROR_TIMEOUT, nvml.ERROR_IN_USE, nvml.ERROR_UNKNOWN}

// newFake returns the fake driver, and skips the test with a real one.
func newFake(t *testing.T) driver {
	t.Helper()
	d := newDriver(t)
	if !d.fake {
		t.Skip("GSHARE_TEST_GPU is set: failures cannot be injected into a real driver")
	}
	t.Cleanup(func() { d.fail(t) })
	return d
}

// TestEachCallFails: if any call fails for a device, that device does not count as healthy, the other one does, and both do when the call
// works again.
func TestEachCallFails(t *testing.T) {
	d := newFake(t)
	healthy, err := New(d).Devices()
	if err != nil || len(healthy) != 2 {
		t.Fatalf("got %+v, %v", healthy, err)
	}
	for call, want := range effects {
		for _, code := range codes {
			t.Run(fmt.Sprintf("%s returns %d", call, code), func(t *testing.T) {
				device := 1
				if want == listFails {
					device = 0 // of a call without device
				}
				d.fail(t, fmt.Sprintf("%s@%d %d", call, device, code))
				s := New(d)
				devices, err := s.Devices()
				if got := effectOn(healthy, devices, err); got != want {
					t.Errorf("got effect %d, want %d: %+v, %v", got, want, devices, err)
				}
				d.fail(t)
				if devices, err := s.Devices(); effectOn(healthy, devices, err) != noEffect {
					t.Errorf("after the failure: got %+v, %v", devices, err)
				}
			})
		}
	}
	for _, call := range []string{"nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetMPSComputeRunningProcesses_v3", "nvmlDeviceGetMigMode"} {
		for _, code := range codes {
			t.Run(fmt.Sprintf("Processes, %s returns %d", call, code), func(t *testing.T) {
				d.fail(t, fmt.Sprintf("%s@1 %d", call, code))
				if _, err := New(d).Processes(); err == nil {
					t.Error("got no error")
				}
			})
		}
	}
}

// effectOn returns the effect that turned a list of two healthy devices into another result.
func effectOn(healthy, devices []gpu.Device, err error) effect {
	switch {
	case err != nil && len(devices) == 0:
		return listFails
	case err != nil || len(devices) == 0 || !cmp.Equal(devices[0], healthy[0]):
		return otherEffect
	case len(devices) == 1:
		return deviceMissing
	case devices[1].UUID == healthy[1].UUID && devices[1].Fault != "":
		return deviceFaulty
	case cmp.Equal(devices, healthy):
		return noEffect
	}
	return otherEffect
}

// TestCallHangs: while a call hangs for one device, other calls are answered.
func TestCallHangs(t *testing.T) {
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
			t.Fatal("timed out waiting for the call to hang")
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

// TestXidConforms: the library reports errors like the mock of TestXid. A device without events counts as healthy.
func TestXidConforms(t *testing.T) {
	d := newFake(t)
	d.fail(t, "xid@1 0", fmt.Sprint("nvmlDeviceRegisterEvents@0 ", int(nvml.ERROR_NOT_SUPPORTED)))
	s := New(d)
	waitForFaults(t, s, "", "")
	reset := fmt.Sprint("recovery@1 ", int(nvml.GPU_RECOVERY_ACTION_GPU_RESET))
	d.fail(t, "xid@1 79", reset)
	waitForFaults(t, s, "", "Xid 79: reset the GPU")
	d.fail(t, "xid@1 79", reset, fmt.Sprint("nvmlDeviceGetFieldValues@1 ", int(nvml.ERROR_UNKNOWN)))
	waitForFaults(t, s, "", "Xid 79")
	d.fail(t, "xid@1 79")
	waitForFaults(t, s, "", "")
}
