package nvml

import (
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"

	"github.com/gshare-dev/gshare/node/gpu"
)

// list returns the devices, and fails the test unless there are as many as expected.
func list(t *testing.T, s *Source, want int) []gpu.Device {
	t.Helper()
	devices, err := s.Devices()
	if err != nil || len(devices) != want {
		t.Fatalf("%+v, %v; want %d devices", devices, err, want)
	}
	return devices
}

// checkCalls checks how often the library was initialised, shut down, and asked for the handle of a device.
func checkCalls(t *testing.T, l *mock.Interface, sessions, ended, handles int) {
	t.Helper()
	if i, e, h := len(l.InitCalls()), len(l.ShutdownCalls()), len(l.DeviceGetHandleByIndexCalls()); i != sessions || e != ended || h != handles {
		t.Errorf("got %d sessions, %d ended, %d handles; want %d, %d, %d", i, e, h, sessions, ended, handles)
	}
}

// TestSessionReused: the library is initialised once, and each handle is found once, for any number of calls.
func TestSessionReused(t *testing.T) {
	l := library(busy(device("GPU-a"), nil, nil), busy(device("GPU-b"), nil, nil))
	s := New(l)
	for range 3 {
		list(t, s, 2)
		if _, err := s.Processes(); err != nil {
			t.Fatal(err)
		}
	}
	checkCalls(t, l, 1, 0, 2)
}

// TestSessionRenewed: a device that was lost, or stopped answering, is found again in another session once it is back.
func TestSessionRenewed(t *testing.T) {
	a, b := device("GPU-a"), device("GPU-b")
	devices := []*mock.Device{a, nil}
	l := library(devices...)
	s := New(l)
	list(t, s, 1)
	devices[1] = b
	list(t, s, 2)
	list(t, s, 2)
	checkCalls(t, l, 2, 1, 4)
	working := b.GetMemoryInfo_v2Func
	b.GetMemoryInfo_v2Func = func() (nvml.Memory_v2, nvml.Return) { return nvml.Memory_v2{}, nvml.ERROR_GPU_IS_LOST }
	if d := list(t, s, 2)[1]; d.Fault == "" {
		t.Errorf("got %+v, want a fault", d)
	}
	b.GetMemoryInfo_v2Func = working
	list(t, s, 2)
	checkCalls(t, l, 3, 2, 6)
}

// TestSessionOfFaultyDevice: a fault of the device itself is no reason for a new session.
func TestSessionOfFaultyDevice(t *testing.T) {
	faulty := device("GPU-a")
	faulty.GetRemappedRowsFunc = func() (int, int, bool, bool, nvml.Return) { return 0, 9, false, true, nvml.SUCCESS }
	l := library(faulty)
	s := New(l)
	for range 2 {
		if d := list(t, s, 1)[0]; d.Fault == "" {
			t.Errorf("got %+v, want a fault", d)
		}
	}
	checkCalls(t, l, 1, 0, 1)
}

// TestHungCall: a call that hangs does not block others, and its session does not end before it returns.
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
	list(t, s, 2)
	checkCalls(t, l, 1, 0, 2)
	close(hang)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	checkCalls(t, l, 1, 1, 2)
}
