package nvml

import (
	"encoding/binary"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gshare-dev/gshare/node/gpu"
)

// health stores the critical errors (Xids) that the driver has reported, each until the driver reports that no recovery is required.
type health struct {
	mu   sync.Mutex           // guards xids
	xids map[component]uint64 // the latest Xid of each component
}

// component is what an error concerns: a GPU, or one of its GPU instances.
type component struct {
	uuid     string
	instance uint32 // ID of the GPU instance, or wholeDevice
}

// wholeDevice stands for the GPU instance ID in errors that concern a whole GPU.
const wholeDevice = math.MaxUint32

// applicationErrors are the Xids that faulty programs cause and that leave the GPU healthy (NVIDIA, XID Errors).
var applicationErrors = map[uint64]bool{13: true, 31: true, 43: true, 45: true, 68: true, 109: true}

// eventTimeout bounds one wait for driver events, and therefore how long a session takes to end.
const eventTimeout = time.Second

// watch records the driver's error events until done returns true. It returns false if the driver stops delivering events.
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

// record stores the Xid of an error event, unless it is one that leaves the GPU healthy.
func (h *health) record(event nvml.EventData) {
	if event.EventType != nvml.EventTypeXidCriticalError || applicationErrors[event.EventData] {
		return
	}
	uuid, r := event.Device.GetUUID()
	if r != nvml.SUCCESS {
		return // the next list of devices shows that the device is lost
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.xids == nil {
		h.xids = map[component]uint64{}
	}
	h.xids[component{uuid, event.GpuInstanceId}] = event.EventData
}

// setFaults sets the faults of a GPU and of its MIG instances from the recorded Xids.
func (h *health) setFaults(handle nvml.Device, d *gpu.Device) {
	d.Fault = h.faultOf(handle, component{d.UUID, wholeDevice})
	for i := range d.Instances {
		d.Instances[i].Fault = h.faultOf(handle, component{d.UUID, uint32(d.Instances[i].GPU)})
	}
}

// faultOf describes the error of a GPU or GPU instance; empty if there is none. It forgets an error once the driver requires no recovery.
// With drivers that do not report whether recovery is required, an error stays until the agent ends.
func (h *health) faultOf(handle nvml.Device, c component) string {
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

// recoverySuffixes maps recovery actions to the text that a fault ends with.
var recoverySuffixes = map[nvml.DeviceGpuRecoveryAction]string{
	nvml.GPU_RECOVERY_ACTION_GPU_RESET: ": reset the GPU", nvml.GPU_RECOVERY_ACTION_NODE_REBOOT: ": reboot the node",
	nvml.GPU_RECOVERY_ACTION_DRAIN_P2P: ": drain its peers", nvml.GPU_RECOVERY_ACTION_DRAIN_AND_RESET: ": drain its peers and reset the GPU",
}

// recoveryAction returns the action by which an administrator must recover a GPU. known is false if the driver does not report it.
func recoveryAction(handle nvml.Device) (action nvml.DeviceGpuRecoveryAction, known bool) {
	values := []nvml.FieldValue{{FieldId: nvml.FI_DEV_GET_GPU_RECOVERY_ACTION}}
	if r := handle.GetFieldValues(values); r != nvml.SUCCESS || nvml.Return(values[0].NvmlReturn) != nvml.SUCCESS {
		return 0, false
	}
	return nvml.DeviceGpuRecoveryAction(binary.NativeEndian.Uint32(values[0].Value[:4])), true
}
