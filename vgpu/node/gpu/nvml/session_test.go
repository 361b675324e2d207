package nvml

import (
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"

	"github.com/gshare-dev/gshare/vgpu/node/gpu"
)

// look asks for everything once.
func look(t *testing.T, s *Source, want int) []gpu.Device {
	t.Helper()
	devices, err := s.Devices()
	if err != nil || len(devices) != want {
		t.Fatalf("%+v, %v; want %d devices", devices, err, want)
	}
	return devices
}

func calls(t *testing.T, l *mock.Interface, sessions, ended, handles int) {
	t.Helper()
	if i, e, h := len(l.InitCalls()), len(l.ShutdownCalls()), len(l.DeviceGetHandleByIndexCalls()); i != sessions || e != ended || h != handles {
		t.Errorf("%d sessions, %d ended, %d handles asked for; want %d, %d, %d", i, e, h, sessions, ended, handles)
	}
}

// TestSessionLasts: however often it is asked, the library is initialised once, and each handle is found once.
func TestSessionLasts(t *testing.T) {
	l := library(busy(device("GPU-a"), nil, nil), busy(device("GPU-b"), nil, nil))
	s := New(l)
	for range 3 {
		look(t, s, 2)
		if _, err := s.Processes(); err != nil {
			t.Fatal(err)
		}
	}
	calls(t, l, 1, 0, 2)
}

// TestSessionEnds: a device that was lost, or stops answering, is found again in another session once it is back.
func TestSessionEnds(t *testing.T) {
	a, b := device("GPU-a"), device("GPU-b")
	devices := []*mock.Device{a, nil}
	l := library(devices...)
	s := New(l)
	look(t, s, 1)
	devices[1] = b
	look(t, s, 2)
	look(t, s, 2)
	calls(t, l, 2, 1, 4)
	well := b.GetMemoryInfo_v2Func
	b.GetMemoryInfo_v2Func = func() (nvml.Memory_v2, nvml.Return) { return nvml.Memory_v2{}, nvml.ERROR_GPU_IS_LOST }
	if d := look(t, s, 2)[1]; d.Fault == "" {
		t.Errorf("%+v has no fault", d)
	}
	b.GetMemoryInfo_v2Func = well
	look(t, s, 2)
	calls(t, l, 3, 2, 6)
}

// TestSessionOfWornDevice: what is wrong with the device itself is no reason to find it again.
func TestSessionOfWornDevice(t *testing.T) {
	worn := device("GPU-a")
	worn.GetRemappedRowsFunc = func() (int, int, bool, bool, nvml.Return) { return 0, 9, false, true, nvml.SUCCESS }
	l := library(worn)
	s := New(l)
	for range 2 {
		if d := look(t, s, 1)[0]; d.Fault == "" {
			t.Errorf("%+v has no fault", d)
		}
	}
	calls(t, l, 1, 0, 1)
}

// TestHungCall: one whose call hangs keeps no other waiting, and his session is not ended under him.
func TestHungCall(t *testing.T) {
	a, b := busy(device("GPU-a"), nil, nil), device("GPU-b")
	hang, began := make(chan struct{}), make(chan struct{})
	a.GetComputeRunningProcessesFunc = func() ([]nvml.ProcessInfo, nvml.Return) {
		close(began)
		<-hang
		return nil, nvml.SUCCESS
	}
	b.GetMemoryInfo_v2Func = func() (nvml.Memory_v2, nvml.Return) { return nvml.Memory_v2{}, nvml.ERROR_UNKNOWN }
	busy(b, nil, nil)
	l := library(a, b)
	s := New(l)
	ended := make(chan error)
	go func() {
		_, err := s.Processes()
		ended <- err
	}()
	<-began
	look(t, s, 2)
	calls(t, l, 1, 0, 2)
	close(hang)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	calls(t, l, 1, 1, 2)
}
