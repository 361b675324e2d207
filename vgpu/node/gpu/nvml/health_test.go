package nvml

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
)

// events is a set of them that a test fills.
type events struct {
	come  chan nvml.EventData
	ended chan struct{}
}

func (e *events) set() nvml.EventSet {
	return &mock.EventSet{
		WaitFunc: func(uint32) (nvml.EventData, nvml.Return) {
			select {
			case event, ok := <-e.come:
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

// recovering gives a device a recovery action; nil: the driver tells none.
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

// eventually waits for the faults of the devices and of their first instances.
func eventually(t *testing.T, s *Source, want ...string) {
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
			t.Fatalf("%q, %v; want %q", got, err, want)
		}
	}
}

// TestXid: a critical error is a fault of the device until the driver asks for no recovery any more; one that a program has made is
// none, and one inside of an instance is that instance's.
func TestXid(t *testing.T) {
	reset := nvml.DeviceGpuRecoveryAction(nvml.GPU_RECOVERY_ACTION_GPU_RESET)
	a, old, split := recovering(device("GPU-a"), &reset), recovering(device("GPU-b"), nil), recovering(device("GPU-c"), &reset)
	split.GetMigModeFunc = func() (int, int, nvml.Return) { return nvml.DEVICE_MIG_ENABLE, 1, nvml.SUCCESS }
	split.GetMaxMigDeviceCountFunc = func() (int, nvml.Return) { return 1, nvml.SUCCESS }
	split.GetMigDeviceHandleByIndexFunc = func(int) (nvml.Device, nvml.Return) {
		return instance("MIG-1", "NVIDIA A100-SXM4-80GB MIG 1g.10gb"), nvml.SUCCESS
	}
	e := &events{come: make(chan nvml.EventData), ended: make(chan struct{})}
	l := library(a, old, split)
	l.EventSetCreateFunc = func() (nvml.EventSet, nvml.Return) { return e.set(), nvml.SUCCESS }
	s := New(l)
	eventually(t, s, "", "", "", "")
	e.come <- xid(a, 31, whole)
	e.come <- xid(a, 79, whole)
	e.come <- xid(old, 48, whole)
	e.come <- xid(split, 94, 7)
	eventually(t, s, "Xid 79: reset the GPU", "Xid 48", "", "Xid 94: reset the GPU")
	reset = nvml.GPU_RECOVERY_ACTION_NONE
	eventually(t, s, "", "Xid 48", "", "")
	again := &events{come: make(chan nvml.EventData), ended: make(chan struct{})}
	l.EventSetCreateFunc = func() (nvml.EventSet, nvml.Return) { return again.set(), nvml.SUCCESS }
	close(e.come) // the driver tells no more: another session does
	<-e.ended
	eventually(t, s, "", "Xid 48", "", "")
	reset = nvml.GPU_RECOVERY_ACTION_NODE_REBOOT
	again.come <- xid(a, 74, whole)
	eventually(t, s, "Xid 74: reboot the node", "Xid 48", "", "")
}
