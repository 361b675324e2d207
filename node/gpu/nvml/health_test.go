package nvml

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
)

// events is a source of the driver's events that a test feeds.
type events struct {
	feed  chan nvml.EventData // closed: the driver stops to deliver events
	ended chan struct{}
}

func (e *events) set() nvml.EventSet {
	return &mock.EventSet{
		WaitFunc: func(uint32) (nvml.EventData, nvml.Return) {
			select {
			case event, ok := <-e.feed:
				if !ok {
					return event, nvml.ERROR_GPU_IS_LOST
				}
				return event, nvml.SUCCESS
			case <-time.After(time.Millisecond):
				return nvml.EventData{}, nvml.ERROR_TIMEOUT
			}
		},
		FreeFunc: func() nvml.Return {
			close(e.ended)
			return nvml.SUCCESS
		},
	}
}

// recovering sets the recovery action of a device; nil: the driver does not report one.
func recovering(d *mock.Device, action *nvml.DeviceGpuRecoveryAction) *mock.Device {
	d.RegisterEventsFunc = func(uint64, nvml.EventSet) nvml.Return { return nvml.SUCCESS }
	d.GetFieldValuesFunc = func(values []nvml.FieldValue) nvml.Return {
		if action == nil {
			values[0].NvmlReturn = uint32(nvml.ERROR_NOT_SUPPORTED)
		} else {
			binary.NativeEndian.PutUint32(values[0].Value[:], uint32(*action))
		}
		return nvml.SUCCESS
	}
	return d
}

func xid(d *mock.Device, number uint64, instance uint32) nvml.EventData {
	return nvml.EventData{Device: d, EventType: nvml.EventTypeXidCriticalError, EventData: number, GpuInstanceId: instance}
}

// waitForFaults waits until the devices, each followed by its first instance, have the given faults.
func waitForFaults(t *testing.T, s *Source, want ...string) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		devices, err := s.Devices()
		var got []string
		for _, d := range devices {
			got = append(got, d.Fault)
			if len(d.Instances) > 0 {
				got = append(got, d.Instances[0].Fault)
			}
		}
		same := err == nil && len(got) == len(want)
		for i := range want {
			same = same && got[i] == want[i]
		}
		if same {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("timed out: got faults %q, %v; want %q", got, err, want)
		}
	}
}

// TestXid: a critical error is a fault of the device until the driver requires no recovery any more. An error that an application caused is
// no fault, and one in an instance is a fault of that instance.
func TestXid(t *testing.T) {
	reset := nvml.DeviceGpuRecoveryAction(nvml.GPU_RECOVERY_ACTION_GPU_RESET)
	a, old, partitioned := recovering(device("GPU-a"), &reset), recovering(device("GPU-b"), nil), recovering(device("GPU-c"), &reset)
	partitioned.GetMigModeFunc = func() (int, int, nvml.Return) { return nvml.DEVICE_MIG_ENABLE, 1, nvml.SUCCESS }
	partitioned.GetMaxMigDeviceCountFunc = func() (int, nvml.Return) { return 1, nvml.SUCCESS }
	partitioned.GetMigDeviceHandleByIndexFunc = func(int) (nvml.Device, nvml.Return) {
		return instance("MIG-1", "NVIDIA A100-SXM4-80GB MIG 1g.10gb"), nvml.SUCCESS
	}
	e := &events{feed: make(chan nvml.EventData), ended: make(chan struct{})}
	l := library(a, old, partitioned)
	l.EventSetCreateFunc = func() (nvml.EventSet, nvml.Return) { return e.set(), nvml.SUCCESS }
	s := New(l)
	waitForFaults(t, s, "", "", "", "")
	e.feed <- xid(a, 31, wholeDevice)
	e.feed <- xid(a, 79, wholeDevice)
	e.feed <- xid(old, 48, wholeDevice)
	e.feed <- xid(partitioned, 94, 7)
	waitForFaults(t, s, "Xid 79: reset the GPU", "Xid 48", "", "Xid 94: reset the GPU")
	reset = nvml.GPU_RECOVERY_ACTION_NONE
	waitForFaults(t, s, "", "Xid 48", "", "")
	again := &events{feed: make(chan nvml.EventData), ended: make(chan struct{})}
	l.EventSetCreateFunc = func() (nvml.EventSet, nvml.Return) { return again.set(), nvml.SUCCESS }
	close(e.feed) // another session follows
	<-e.ended
	waitForFaults(t, s, "", "Xid 48", "", "")
	reset = nvml.GPU_RECOVERY_ACTION_NODE_REBOOT
	again.feed <- xid(a, 74, wholeDevice)
	waitForFaults(t, s, "Xid 74: reboot the node", "Xid 48", "", "")
}
