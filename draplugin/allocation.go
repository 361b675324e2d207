package draplugin

import (
	"errors"
	"fmt"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gshare-dev/gshare/node/inventory"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Part is what the scheduler has allocated of one device to a claim.
type Part struct {
	Request string // name of the request in the claim, with its subrequest if there is one
	Device  string // name of the device in the node's pool
	ShareID types.UID

	SM     share.PerMille // of the device's SMs
	Memory share.Bytes    // of the device's memory
}

// Parts returns the parts of a node's devices that a claim was allocated. It returns an error for an allocation that this driver did not
// offer, or that it cannot enforce.
func Parts(claim *resourceapi.ResourceClaim, node string) (parts []Part, _ error) {
	if claim.Status.Allocation == nil {
		return nil, errors.New("the claim is not allocated")
	}
	devices := claim.Status.Allocation.Devices
	for _, c := range devices.Config {
		if c.Opaque != nil && c.Opaque.Driver == Driver {
			return nil, fmt.Errorf("the claim or its class has parameters for driver %s, which takes none: its capacities say what a share is", Driver)
		}
	}
	for i := range devices.Results {
		r := &devices.Results[i]
		if r.Driver != Driver {
			continue
		}
		if r.Pool != node {
			return nil, fmt.Errorf("device %s is of pool %.64q, and this node's is %s", r.Device, r.Pool, node)
		}
		if r.AdminAccess != nil && *r.AdminAccess {
			return nil, fmt.Errorf("request %s: admin access is not offered, as it has no share that could be enforced", r.Request)
		}
		part, err := partOf(r)
		if err != nil {
			return nil, fmt.Errorf("request %s: %w", r.Request, err)
		}
		parts = append(parts, part)
	}
	if len(parts) == 0 {
		return nil, fmt.Errorf("the claim has no device of driver %s", Driver)
	}
	return parts, nil
}

var errGateOff = errors.New("the allocation does not say what it consumes of the device: the feature gate DRAConsumableCapacity is off in the " +
	"scheduler or the API server (it is on from Kubernetes 1.36); turn it on, and delete the claim and its pod")

func partOf(r *resourceapi.DeviceRequestAllocationResult) (Part, error) {
	sm, hasSM := r.ConsumedCapacity[CapacitySM]
	memory, hasMemory := r.ConsumedCapacity[CapacityMemory]
	if !hasSM || !hasMemory || r.ShareID == nil {
		return Part{}, errGateOff
	}
	percent, whole := sm.AsInt64()
	if !whole || percent < 1 || percent > 100 {
		return Part{}, fmt.Errorf("%s of %s is not between 1 and 100 percent", sm.String(), CapacitySM)
	}
	bytes, whole := memory.AsInt64()
	if !whole || bytes < int64(share.MiB) || bytes > int64(share.MaxMemory) {
		return Part{}, fmt.Errorf("%s of %s is not between 1Mi and the memory of a GPU", memory.String(), CapacityMemory)
	}
	return Part{Request: r.Request, Device: r.Device, ShareID: *r.ShareID, SM: share.PerMille(percent * 10), Memory: share.Bytes(bytes)}, nil
}

// Placed converts the parts of a claim to vGPUs; offered lists the slices that the node offers to claims. A part that is the whole of its
// slice has the slice to itself; any other gets a fixed part of the SMs, all of the time, by MPS.
func Placed(parts []Part, offered []inventory.Slice) (vgpus []kube.PlacedVGPU, _ error) {
	for _, p := range parts {
		s, ok := named(offered, p.Device)
		if !ok {
			return nil, fmt.Errorf("device %s is not offered to claims: it is gone, or the agent's configuration gives it to the device plugin; "+
				"delete the pod and its claim", p.Device)
		}
		memory := share.Bytes(s.MemoryMiB) * share.MiB
		v := kube.PlacedVGPU{Slice: s.ID, Class: share.MPS, Priority: share.BestEffort, Share: share.Share{
			SMRequest: p.SM, SMLimit: p.SM, QuotaRequest: share.Whole, QuotaLimit: share.Whole, Memory: p.Memory,
		}}
		if p.SM == share.Whole && p.Memory >= memory {
			v.Class = share.Exclusive
		}
		vgpus = append(vgpus, v)
	}
	if len(vgpus) == 1 {
		return vgpus, nil
	}
	return together(vgpus)
}

// together checks and returns the vGPUs of a container that has several. Each must be a whole slice, because a process can be the client of
// only one MPS daemon.
func together(vgpus []kube.PlacedVGPU) ([]kube.PlacedVGPU, error) {
	least := vgpus[0].Share.Memory
	for _, v := range vgpus {
		if v.Class != share.Exclusive {
			return nil, fmt.Errorf("the claim has a part of %s and other devices: a claim has one part of a device, or whole devices", v.Slice)
		}
		least = min(least, v.Share.Memory)
	}
	for i := range vgpus {
		vgpus[i].Share.Memory = least // the shares of a container must be equal; memory is not limited anyway for a share that is alone on its slice
	}
	return vgpus, nil
}

func named(offered []inventory.Slice, device string) (inventory.Slice, bool) {
	for _, s := range offered {
		if DeviceName(s.ID) == device {
			return s, true
		}
	}
	return inventory.Slice{}, false
}
