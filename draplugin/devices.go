package draplugin

import (
	"crypto/sha256"
	"encoding/hex"
	"math/bits"
	"slices"
	"strconv"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/gshare-dev/gshare/node/inventory"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Driver is the name of the DRA driver, and the domain of its attributes and capacities.
const Driver = "gshare.dev"

// Capacities of a device that claims consume.
const (
	CapacitySM     resourceapi.QualifiedName = "sm"     // percent of the SMs
	CapacityMemory resourceapi.QualifiedName = "memory" // bytes of the device memory
	CapacityShares resourceapi.QualifiedName = "shares" // one for each claim, which bounds how many a device can hold at once
)

// TaintPrefix followed by a kube.Reason is the key of the taint of a device that takes no new claims.
const TaintPrefix = Driver + "/"

// Resources returns what the node offers to resource claims: one pool, named like the node, with a device for each of these slices (whole GPUs,
// MIG instances, or placements of MIG instances that are made on demand). A device may be allocated many times, and its request policies admit
// only amounts that the node can enforce. Each ResourceSlice has either devices or the counters that they consume, never both. The pool is
// published even if it is empty, to show that the driver runs.
func Resources(node string, offered []inventory.Slice) resourceslice.DriverResources {
	var pool resourceslice.Pool
	for sets := range slices.Chunk(counterSetsOf(offered), resourceapi.ResourceSliceMaxCounterSets) {
		pool.Slices = append(pool.Slices, resourceslice.Slice{SharedCounters: sets})
	}
	var devices []resourceapi.Device
	for _, s := range inAllocationOrder(offered) {
		devices = append(devices, deviceOf(s))
	}
	for part := range slices.Chunk(devices, resourceapi.ResourceSliceMaxDevicesWithAdvancedFeatures) {
		pool.Slices = append(pool.Slices, resourceslice.Slice{Devices: part})
	}
	if len(pool.Slices) == 0 {
		pool.Slices = []resourceslice.Slice{{}}
	}
	return resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{node: pool}}
}

// DeviceName returns the name of a slice's device in the pool of its node: the ID of the slice as a DNS label. The IDs of placements contain dots,
// which a label may not.
func DeviceName(slice string) string {
	name := strings.ReplaceAll(strings.ToLower(slice), ".", "-")
	if len(validation.IsDNS1123Label(name)) == 0 {
		return name
	}
	sum := sha256.Sum256([]byte(slice))
	return "device-" + hex.EncodeToString(sum[:16])
}

func deviceOf(s inventory.Slice) resourceapi.Device {
	return resourceapi.Device{
		Name: DeviceName(s.ID), AllowMultipleAllocations: new(true), Attributes: attributesOf(s), Capacity: capacityOf(s), Taints: taintsOf(s),
		ConsumesCounters: consumptionOf(s),
	}
}

// attributesOf returns the attributes by which a claim can select a device. It leaves out those about which the GPU driver says nothing.
func attributesOf(s inventory.Slice) map[resourceapi.QualifiedName]resourceapi.DeviceAttribute {
	text := func(value string) resourceapi.DeviceAttribute {
		return resourceapi.DeviceAttribute{StringValue: &value}
	}
	number := func(value int) resourceapi.DeviceAttribute {
		return resourceapi.DeviceAttribute{IntValue: new(int64(value))}
	}
	all := map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
		"model": text(s.Model), "sms": number(s.SMs), "isolation": text(string(isolationOf(s))),
	}
	if isPlacement(s) { // its instance has no UUID until it is made
		all["placementStart"] = number(bits.TrailingZeros8(s.Room))
	} else {
		all["uuid"] = text(s.ID)
	}
	if s.Profile != "" {
		all["profile"], all["parentUUID"] = text(s.Profile), text(s.Device)
	}
	for name, version := range map[resourceapi.QualifiedName]string{
		"driverVersion": s.DriverVersion, "cudaComputeCapability": s.ComputeCapability,
	} {
		if v, ok := semanticVersion(version); ok {
			all[name] = resourceapi.DeviceAttribute{VersionValue: &v}
		}
	}
	if s.NUMA != nil {
		all["numaNode"] = number(*s.NUMA)
	}
	return all
}

// isolationOf returns how shares of a slice are isolated from each other: by MPS, or not at all, so that each share must have the slice alone.
func isolationOf(s inventory.Slice) share.Isolation {
	if slices.Contains(s.Classes, share.MPS) {
		return share.MPS
	}
	return share.Exclusive
}

// semanticVersion converts a version of up to three numbers to the form that version attributes require: 580.65.06 becomes 580.65.6.
func semanticVersion(version string) (string, bool) {
	parts := strings.Split(version, ".")
	if len(parts) > 3 {
		return "", false
	}
	for i, part := range parts {
		n, err := strconv.ParseUint(part, 10, 32)
		if err != nil {
			return "", false
		}
		parts[i] = strconv.FormatUint(n, 10)
	}
	for len(parts) < 3 {
		parts = append(parts, "0")
	}
	return strings.Join(parts, "."), true
}

// tpcSMs is the step in which MPS limits the SMs of its clients: the number of SMs in a TPC.
const tpcSMs = 2

// capacityOf returns the capacities of a slice, which all claims on it consume together. A claim that does not say how much it wants gets all of
// them. Steps and minima are those that MPS enforces, so that a claim is never charged for less than it gets.
func capacityOf(s inventory.Slice) map[resourceapi.QualifiedName]resourceapi.DeviceCapacity {
	sm, memory := count(100), mebibytes(s.MemoryMiB)
	smPolicy, memoryPolicy := only(sm), only(memory)
	shares := int64(1)
	if isolationOf(s) == share.MPS {
		if least := int64((tpcSMs*100 + s.SMs - 1) / s.SMs); least < 100 {
			smPolicy = from(count(least), sm, count(1))
		}
		if s.MemoryMiB > 1 {
			memoryPolicy = from(mebibytes(1), memory, mebibytes(1))
		}
		shares = int64(s.MaxShares)
	}
	return map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{
		CapacitySM: {Value: sm, RequestPolicy: smPolicy}, CapacityMemory: {Value: memory, RequestPolicy: memoryPolicy},
		CapacityShares: {Value: count(shares), RequestPolicy: only(count(1))},
	}
}

func count(n int64) resource.Quantity { return *resource.NewQuantity(n, resource.DecimalSI) }

func mebibytes(n int64) resource.Quantity {
	return *resource.NewQuantity(n*int64(share.MiB), resource.BinarySI)
}

// only returns the request policy by which every claim consumes exactly this amount.
func only(amount resource.Quantity) *resourceapi.CapacityRequestPolicy {
	return &resourceapi.CapacityRequestPolicy{Default: &amount, ValidValues: []resource.Quantity{amount}}
}

// from returns the request policy by which a claim consumes least plus a whole number of steps, up to most, which is the default.
func from(least, most, step resource.Quantity) *resourceapi.CapacityRequestPolicy {
	return &resourceapi.CapacityRequestPolicy{
		Default: &most, ValidRange: &resourceapi.CapacityRequestPolicyRange{Min: &least, Max: &most, Step: &step},
	}
}

// taintsOf returns the taint of a slice that takes no new claims. Running pods stay: whether to stop using a failed GPU is for their owner to decide.
func taintsOf(s inventory.Slice) []resourceapi.DeviceTaint {
	if s.Healthy {
		return nil
	}
	reason := s.Reason
	if reason == "" {
		reason = kube.ReasonFault
	}
	return []resourceapi.DeviceTaint{{Key: TaintPrefix + string(reason), Effect: resourceapi.DeviceTaintEffectNoSchedule}}
}
