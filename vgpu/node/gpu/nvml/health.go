package nvml

import (
	"encoding/binary"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gshare-dev/gshare/vgpu/node/gpu"
)

// health stores the critical errors (Xid) that the driver has reported, each until the driver requires no recovery any more.
type health struct {
	mu   sync.Mutex           // guards xids
	xids map[component]uint64 // the last Xid of each
}

// component is a device, or one of its GPU instances.
type component struct {
	uuid     string
	instance uint32 // ID of the GPU instance, or wholeDevice
}

// wholeDevice is the instance ID of errors that concern all of a device.
const wholeDevice = math.MaxUint32

// applicationErrors are the Xids that a program causes and that leave the device healthy (NVIDIA, XID Errors).
var applicationErrors = map[uint64]bool{13: true, 31: true, 43: true, 45: true, 68: true, 109: true}

// eventTimeout is how long one wait for events takes, and the longest time that a session takes to end.
const eventTimeout = time.Second

// watch records events until done returns true. It returns false if the driver stops delivering them.
func (h *health) watch(set nvml.EventSet, done func() bool) (ok bool) {
	for !done() {
		event, r := set.Wait(uint32(eventTimeout / time.Millisecond))
		switch r {
		case nvml.SUCCESS:
			h.record(event)
		case nvml.ERROR_TIMEOUT:
		default:
			return false
		}
	}
	return true
}

// record stores the Xid of an event, unless it leaves the device healthy.
func (h *health) record(event nvml.EventData) {
	if event.EventType != nvml.EventTypeXidCriticalError || applicationErrors[event.EventData] {
		return
	}
	uuid, r := event.Device.GetUUID()
	if r != nvml.SUCCESS {
		return // the next list shows that the device is lost
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.xids == nil {
		h.xids = map[component]uint64{}
	}
	h.xids[component{uuid, event.GpuInstanceId}] = event.EventData
}

// setFaults sets the faults of a device and its instances from the recorded errors.
func (h *health) setFaults(handle nvml.Device, d *gpu.Device) {
	d.Fault = h.fault(handle, component{d.UUID, wholeDevice})
	for i := range d.Instances {
		d.Instances[i].Fault = h.fault(handle, component{d.UUID, uint32(d.Instances[i].GPU)})
	}
}

// fault returns the fault of a component, or an empty string. Drivers that do not report the required recovery never clear an error; it
// stays until the agent ends.
func (h *health) fault(handle nvml.Device, c component) string {
	h.mu.Lock()
	xid, ok := h.xids[c]
	h.mu.Unlock()
	if !ok {
		return ""
	}
	action, known := recoveryAction(handle)
	if known && action == nvml.GPU_RECOVERY_ACTION_NONE {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.xids[c] == xid {
			delete(h.xids, c)
		}
		return ""
	}
	return fmt.Sprintf("Xid %d", xid) + recoverySuffixes[action]
}

// recoverySuffixes are what a fault says about each recovery action.
var recoverySuffixes = map[nvml.DeviceGpuRecoveryAction]string{
	nvml.GPU_RECOVERY_ACTION_GPU_RESET: ": reset the GPU", nvml.GPU_RECOVERY_ACTION_NODE_REBOOT: ": reboot the node",
	nvml.GPU_RECOVERY_ACTION_DRAIN_P2P: ": drain its peers", nvml.GPU_RECOVERY_ACTION_DRAIN_AND_RESET: ": drain its peers and reset the GPU",
}

// recoveryAction returns the action that a device needs to recover, and whether the driver reports it.
func recoveryAction(handle nvml.Device) (action nvml.DeviceGpuRecoveryAction, known bool) {
	values := []nvml.FieldValue{{FieldId: nvml.FI_DEV_GET_GPU_RECOVERY_ACTION}}
	if r := handle.GetFieldValues(values); r != nvml.SUCCESS || nvml.Return(values[0].NvmlReturn) != nvml.SUCCESS {
		return 0, false
	}
	return nvml.DeviceGpuRecoveryAction(binary.NativeEndian.Uint32(values[0].Value[:4])), true
}
