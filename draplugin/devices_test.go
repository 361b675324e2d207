package draplugin

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/gshare-dev/gshare/node/gpu"
	"github.com/gshare-dev/gshare/node/inventory"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/share"
	"github.com/gshare-dev/gshare/vgpu/supervisor"
)

var shared = []share.Isolation{share.Exclusive, share.MPS}

func sliceOf(id string, sms int, memoryMiB int64, classes ...share.Isolation) inventory.Slice {
	return inventory.Slice{Claims: true, Slice: kube.Slice{
		ID: id, Device: id, Model: "H200", SMs: sms, MemoryMiB: memoryMiB, Classes: classes, Healthy: true, MaxShares: 16,
	}}
}

// text describes the attributes, capacities and taints of a device in one line each.
func text(d resourceapi.Device) map[string]string {
	all := map[string]string{}
	for name, a := range d.Attributes {
		switch {
		case a.StringValue != nil:
			all[string(name)] = *a.StringValue
		case a.IntValue != nil:
			all[string(name)] = fmt.Sprint(*a.IntValue)
		case a.VersionValue != nil:
			all[string(name)] = "v" + *a.VersionValue
		}
	}
	for name, c := range d.Capacity {
		p := c.RequestPolicy
		all["capacity "+string(name)] = c.Value.String() + ": " + p.Default.String()
		if r := p.ValidRange; r != nil {
			all["capacity "+string(name)] += fmt.Sprintf(" of %s to %s by %s", r.Min, r.Max, r.Step)
		}
		for _, v := range p.ValidValues {
			all["capacity "+string(name)] += " of " + v.String()
		}
	}
	for _, t := range d.Taints {
		all["taint"] += t.Key + ":" + string(t.Effect)
	}
	return all
}

func TestDevices(t *testing.T) {
	properties := gpu.Properties{DriverVersion: "580.65.06", ComputeCapability: "9.0"}
	known := sliceOf("GPU-0a", 132, 143771, shared...)
	known.Properties, known.NUMA = properties, new(1)
	part := sliceOf("MIG-1b", 14, 9728, shared...)
	part.Device, part.Profile = "GPU-9", "1g.10gb"
	failed, cordoned := sliceOf("GPU-0a", 132, 1, shared...), sliceOf("GPU-0a", 1, 2, shared...)
	failed.Healthy, failed.Reason = false, kube.ReasonFault
	cordoned.Healthy, cordoned.Reason = false, kube.ReasonCordoned
	for name, test := range map[string]struct {
		slice inventory.Slice
		want  map[string]string
	}{
		"everything known": {known, map[string]string{
			"model": "H200", "uuid": "GPU-0a", "sms": "132", "isolation": "mps", "driverVersion": "v580.65.6", "cudaComputeCapability": "v9.0.0",
			"numaNode": "1", "capacity sm": "100: 100 of 2 to 100 by 1", "capacity memory": "143771Mi: 143771Mi of 1Mi to 143771Mi by 1Mi",
			"capacity shares": "16: 1 of 1",
		}},
		"MIG instance": {part, map[string]string{
			"model": "H200", "uuid": "MIG-1b", "sms": "14", "isolation": "mps", "profile": "1g.10gb", "parentUUID": "GPU-9",
			"capacity sm": "100: 100 of 15 to 100 by 1", "capacity memory": "9728Mi: 9728Mi of 1Mi to 9728Mi by 1Mi", "capacity shares": "16: 1 of 1",
		}},
		"no MPS: only whole": {sliceOf("GPU-0a", 132, 2048, share.Exclusive), map[string]string{
			"model": "H200", "uuid": "GPU-0a", "sms": "132", "isolation": "exclusive", "capacity sm": "100: 100 of 100",
			"capacity memory": "2Gi: 2Gi of 2Gi", "capacity shares": "1: 1 of 1",
		}},
		"failed, and too small for a step": {failed, map[string]string{
			"model": "H200", "uuid": "GPU-0a", "sms": "132", "isolation": "mps", "capacity sm": "100: 100 of 2 to 100 by 1",
			"capacity memory": "1Mi: 1Mi of 1Mi", "capacity shares": "16: 1 of 1", "taint": "gshare.dev/fault:NoSchedule",
		}},
		"cordoned, with one SM": {cordoned, map[string]string{
			"model": "H200", "uuid": "GPU-0a", "sms": "1", "isolation": "mps", "capacity sm": "100: 100 of 100",
			"capacity memory": "2Mi: 2Mi of 1Mi to 2Mi by 1Mi", "capacity shares": "16: 1 of 1", "taint": "gshare.dev/cordoned:NoSchedule",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			pool := Resources("n", []inventory.Slice{test.slice}).Pools["n"]
			d := pool.Slices[0].Devices[0]
			if diff := cmp.Diff(test.want, text(d)); diff != "" || d.Name != strings.ToLower(test.slice.ID) || !*d.AllowMultipleAllocations {
				t.Errorf("device %s (-want +got):\n%s", d.Name, diff)
			}
		})
	}
}

func TestSemanticVersion(t *testing.T) {
	for version, want := range map[string]string{
		"580.65.06": "580.65.6", "9.0": "9.0.0", "580": "580.0.0", "0.0.0": "0.0.0", "": "", "1.2.3.4": "", "580.x": "", "-1.0": "", "1..2": "",
	} {
		if got, ok := semanticVersion(version); got != want || ok != (want != "") {
			t.Errorf("%q: got %q, %v; want %q", version, got, ok, want)
		}
	}
}

func TestDeviceNames(t *testing.T) {
	for uuid, want := range map[string]string{
		"GPU-1B2C": "gpu-1b2c", "MIG-0": "mig-0", "1B2C.c1m1.0": "1b2c-c1m1-0", "GPU_0": "device-", "": "device-", strings.Repeat("a", 64): "device-",
	} {
		if got := DeviceName(uuid); got != want && (want != "device-" || !strings.HasPrefix(got, want) || len(got) != len(want)+32) {
			t.Errorf("%q: got %q, want %q", uuid, got, want)
		}
	}
	if DeviceName("a_") == DeviceName("a__") {
		t.Error("two slices have one name")
	}
}

// TestPools: as many slices as needed, none too large; one that is empty shows that the driver runs.
func TestPools(t *testing.T) {
	for devices, want := range map[int][]int{0: {0}, 1: {1}, 64: {64}, 65: {64, 1}, 130: {64, 64, 2}} {
		var offered []inventory.Slice
		for i := range devices {
			offered = append(offered, sliceOf(fmt.Sprint("GPU-", i), 132, 1024, shared...))
		}
		var got []int
		for _, s := range Resources("n", offered).Pools["n"].Slices {
			got = append(got, len(s.Devices))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%d devices: %s", devices, diff)
		}
	}
}

// TestCharged: MPS gives no claim more SMs than it is charged for, by the least that a request policy admits and each step.
func TestCharged(t *testing.T) {
	for _, sms := range []int{1, 2, 7, 14, 26, 40, 84, 108, 132, 148} {
		policy := capacityOf(sliceOf("GPU-0", sms, 1024, shared...))[CapacitySM].RequestPolicy
		admitted := policy.ValidValues
		if r := policy.ValidRange; r != nil {
			for n := r.Min.Value(); n <= r.Max.Value(); n += r.Step.Value() {
				admitted = append(admitted, count(n))
			}
		}
		for _, percent := range admitted {
			if given := supervisor.Cap(share.PerMille(percent.Value()*10), sms); int64(given)*100 > percent.Value()*int64(sms) {
				t.Errorf("%d SMs: a claim of %s%% gets %d", sms, &percent, given)
			}
		}
	}
}
