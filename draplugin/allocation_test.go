package draplugin

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gshare-dev/gshare/node/inventory"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/share"
)

func result(device, sm, memory string) resourceapi.DeviceRequestAllocationResult {
	return resourceapi.DeviceRequestAllocationResult{
		Request: "gpu", Driver: Driver, Pool: "n", Device: device, ShareID: new(types.UID("s")),
		ConsumedCapacity: map[resourceapi.QualifiedName]resource.Quantity{
			CapacitySM: resource.MustParse(sm), CapacityMemory: resource.MustParse(memory), CapacityShares: resource.MustParse("1"),
		},
	}
}

func claimOf(results ...resourceapi.DeviceRequestAllocationResult) *resourceapi.ResourceClaim {
	return &resourceapi.ResourceClaim{Status: resourceapi.ResourceClaimStatus{Allocation: &resourceapi.AllocationResult{
		Devices: resourceapi.DeviceAllocationResult{Results: results},
	}}}
}

func fixed(slice string, class share.Isolation, sm share.PerMille, memory share.Bytes) kube.PlacedVGPU {
	return kube.PlacedVGPU{Slice: slice, Class: class, Priority: share.BestEffort, Share: share.Share{
		SMRequest: sm, SMLimit: sm, QuotaRequest: share.Whole, QuotaLimit: share.Whole, Memory: memory,
	}}
}

// TestPlaced goes from the claim that a scheduler has written to what the node grants.
func TestPlaced(t *testing.T) {
	offered := []inventory.Slice{sliceOf("GPU-A", 132, 81920, shared...), sliceOf("GPU-B", 132, 40960, shared...)}
	other := result("nic-0", "1", "1Mi")
	other.Driver = "nic.example.com"
	admin, elsewhere, silent, anonymous := result("gpu-a", "1", "1Gi"), result("gpu-a", "1", "1Gi"), result("gpu-a", "1", "1Gi"), result("gpu-a", "1", "1Gi")
	admin.AdminAccess, elsewhere.Pool, silent.ConsumedCapacity, anonymous.ShareID = new(true), "m", nil, nil
	configured := claimOf(result("gpu-a", "24", "16Gi"))
	configured.Status.Allocation.Devices.Config = []resourceapi.DeviceAllocationConfiguration{{DeviceConfiguration: resourceapi.DeviceConfiguration{
		Opaque: &resourceapi.OpaqueDeviceConfiguration{Driver: Driver},
	}}}
	for name, test := range map[string]struct {
		claim *resourceapi.ResourceClaim
		want  []kube.PlacedVGPU
		why   string // part of the error, if there is one
	}{
		"a part":               {claimOf(result("gpu-a", "24", "16Gi")), []kube.PlacedVGPU{fixed("GPU-A", share.MPS, 240, 16<<30)}, ""},
		"beside other drivers": {claimOf(other, result("gpu-b", "2", "1Mi")), []kube.PlacedVGPU{fixed("GPU-B", share.MPS, 20, 1<<20)}, ""},
		"all":                  {claimOf(result("gpu-b", "100", "40Gi")), []kube.PlacedVGPU{fixed("GPU-B", share.Exclusive, 1000, 40<<30)}, ""},
		"all SMs, some memory": {claimOf(result("gpu-b", "100", "39Gi")), []kube.PlacedVGPU{fixed("GPU-B", share.MPS, 1000, 39<<30)}, ""},
		"two devices": {claimOf(result("gpu-a", "100", "80Gi"), result("gpu-b", "100", "40Gi")),
			[]kube.PlacedVGPU{fixed("GPU-A", share.Exclusive, 1000, 40<<30), fixed("GPU-B", share.Exclusive, 1000, 40<<30)}, ""},
		"two parts":          {claimOf(result("gpu-a", "24", "1Gi"), result("gpu-b", "24", "1Gi")), nil, "one part of a device"},
		"a part and a whole": {claimOf(result("gpu-b", "100", "40Gi"), result("gpu-a", "24", "1Gi")), nil, "one part of a device"},
		"not allocated":      {&resourceapi.ResourceClaim{}, nil, "not allocated"},
		"only other drivers": {claimOf(other), nil, "no device of driver gshare.dev"},
		"other node":         {claimOf(elsewhere), nil, "pool"},
		"not offered":        {claimOf(result("gpu-c", "1", "1Gi")), nil, "not offered"},
		"admin access":       {claimOf(admin), nil, "admin access"},
		"gate is off":        {claimOf(silent), nil, "DRAConsumableCapacity"},
		"no share ID":        {claimOf(anonymous), nil, "DRAConsumableCapacity"},
		"parameters":         {configured, nil, "parameters"},
		"no SMs":             {claimOf(result("gpu-a", "0", "1Gi")), nil, "sm"},
		"too many SMs":       {claimOf(result("gpu-a", "101", "1Gi")), nil, "sm"},
		"half a percent":     {claimOf(result("gpu-a", "500m", "1Gi")), nil, "sm"},
		"too little memory":  {claimOf(result("gpu-a", "1", "1Ki")), nil, "memory"},
		"too much memory":    {claimOf(result("gpu-a", "1", "1Ei")), nil, "memory"},
	} {
		t.Run(name, func(t *testing.T) {
			var got []kube.PlacedVGPU
			parts, err := Parts(test.claim, "n")
			if err == nil {
				got, err = Placed(parts, offered)
			}
			if test.why != "" {
				if err == nil || !strings.Contains(err.Error(), test.why) {
					t.Fatalf("got %v, %v; want an error with %q", got, err, test.why)
				}
				return
			}
			if diff := cmp.Diff(test.want, got); err != nil || diff != "" {
				t.Fatalf("%v (-want +got):\n%s", err, diff)
			}
			p := kube.Placement{Node: "n", UID: "u", Model: kube.Slots, Containers: []kube.PlacedContainer{{Name: "main", VGPUs: got}}}
			if err := p.Validate(); err != nil {
				t.Errorf("the record of the grant cannot be written: %v", err)
			}
		})
	}
}
