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

// health keeps the critical errors (Xid) that the driver has told of, each until the driver asks for no recovery any more.
type health struct {
	mu   sync.Mutex // guards xids
	xids map[part]uint64
}

// part is a device, or one of its GPU instances by its number.
type part struct {
	uuid     string
	instance uint32 // whole: all of the device
}

const whole = math.MaxUint32 // as the driver says it

// ofPrograms are the errors that a program makes for itself: the device is well (NVIDIA, XID Errors).
var ofPrograms = map[uint64]bool{13: true, 31: true, 43: true, 45: true, 68: true, 109: true}

// eventWait is how long one wait for events takes; so long may a session take to end.
const eventWait = time.Second

// watch takes in events until it is over. It is false where the driver does not tell them any more.
func (h *health) watch(set nvml.EventSet, over func() bool) (well bool) {
	for !over() {
		event, r := set.Wait(uint32(eventWait / time.Millisecond))
		switch r {
		case nvml.SUCCESS:
			h.note(event)
		case nvml.ERROR_TIMEOUT:
		default:
			return false
		}
	}
	return true
}

func (h *health) note(event nvml.EventData) {
	if event.EventType != nvml.EventTypeXidCriticalError || ofPrograms[event.EventData] {
		return
	}
	uuid, r := event.Device.GetUUID()
	if r != nvml.SUCCESS {
		return // a lost device shows by itself
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.xids == nil {
		h.xids = map[part]uint64{}
	}
	h.xids[part{uuid, event.GpuInstanceId}] = event.EventData
}

// judge notes what is wrong with a device and its instances.
func (h *health) judge(handle nvml.Device, d *gpu.Device) {
	d.Fault = h.fault(handle, part{d.UUID, whole})
	for i := range d.Instances {
		d.Instances[i].Fault = h.fault(handle, part{d.UUID, uint32(d.Instances[i].GPU)})
	}
}

// fault says what is wrong with a part of a device; empty where nothing is. Where the driver does not tell what it takes to recover,
// an error stays as long as the agent.
func (h *health) fault(handle nvml.Device, p part) string {
	h.mu.Lock()
	xid, ok := h.xids[p]
	h.mu.Unlock()
	if !ok {
		return ""
	}
	action, told := recovery(handle)
	if told && action == nvml.GPU_RECOVERY_ACTION_NONE {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.xids[p] == xid {
			delete(h.xids, p)
		}
		return ""
	}
	return fmt.Sprintf("Xid %d", xid) + actions[action]
}

var actions = map[nvml.DeviceGpuRecoveryAction]string{
	nvml.GPU_RECOVERY_ACTION_GPU_RESET: ": reset the GPU", nvml.GPU_RECOVERY_ACTION_NODE_REBOOT: ": reboot the node",
	nvml.GPU_RECOVERY_ACTION_DRAIN_P2P: ": drain its peers", nvml.GPU_RECOVERY_ACTION_DRAIN_AND_RESET: ": drain its peers and reset the GPU",
}

// recovery is what the driver wants to be done about a device.
func recovery(handle nvml.Device) (action nvml.DeviceGpuRecoveryAction, told bool) {
	values := []nvml.FieldValue{{FieldId: nvml.FI_DEV_GET_GPU_RECOVERY_ACTION}}
	if r := handle.GetFieldValues(values); r != nvml.SUCCESS || nvml.Return(values[0].NvmlReturn) != nvml.SUCCESS {
		return 0, false
	}
	return nvml.DeviceGpuRecoveryAction(binary.NativeEndian.Uint32(values[0].Value[:4])), true
}
