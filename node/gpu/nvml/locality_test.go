package nvml

import (
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
	"github.com/google/go-cmp/cmp"
)

func TestLinkedSets(t *testing.T) {
	pairs := func(i, j int) bool { return i/2 == j/2 }
	cases := map[string]struct {
		gpus   int
		joined func(i, j int) bool
		want   []int
	}{
		"none":      {0, nil, []int{}},
		"one":       {1, nil, []int{0}},
		"no links":  {3, func(int, int) bool { return false }, []int{0, 0, 0}},
		"a switch":  {4, func(int, int) bool { return true }, []int{1, 1, 1, 1}},
		"bridges":   {6, pairs, []int{1, 1, 2, 2, 3, 3}},
		"odd one":   {3, pairs, []int{1, 1, 0}},
		"every 2nd": {4, func(i, j int) bool { return i%2 == j%2 }, []int{1, 2, 1, 2}},
		// DGX-1: two quads, and each GPU of one is joined to one of the other.
		"cube mesh": {8, func(i, j int) bool { return i/4 == j/4 || i%4 == j%4 }, []int{1, 1, 1, 1, 2, 2, 2, 2}},
		"a ring":    {4, func(i, j int) bool { return (i+1)%4 == j || (j+1)%4 == i }, []int{1, 1, 2, 2}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, linkedSets(c.gpus, c.joined)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestLocality: the list of devices says where each is, as far as the driver does; a GPU in MIG mode is nowhere.
func TestLocality(t *testing.T) {
	devices := []*mock.Device{device("GPU-0"), device("GPU-1"), nil, device("GPU-3"), device("GPU-4")}
	masks := map[int][]uint{0: {1}, 1: {0, 2}, 3: {3}} // of NUMA nodes: 0; 65; 0 and 1
	links := map[[2]int]nvml.GpuP2PStatus{{0, 1}: nvml.P2P_STATUS_OK, {1, 0}: nvml.P2P_STATUS_OK, {3, 4}: nvml.P2P_STATUS_OK, {4, 3}: nvml.P2P_STATUS_DISABLED_BY_REGKEY}
	index := map[nvml.Device]int{}
	for i, d := range devices {
		if d == nil {
			continue
		}
		index[d] = i
		d.GetMemoryAffinityFunc = func(int, nvml.AffinityScope) ([]uint, nvml.Return) {
			if mask, ok := masks[i]; ok {
				return mask, nvml.SUCCESS
			}
			return nil, nvml.ERROR_NOT_SUPPORTED
		}
		d.GetP2PStatusFunc = func(other nvml.Device, caps nvml.GpuP2PCapsIndex) (nvml.GpuP2PStatus, nvml.Return) {
			status, ok := links[[2]int{i, index[other]}]
			if !ok || caps != nvml.P2P_CAPS_INDEX_NVLINK {
				return nvml.P2P_STATUS_UNKNOWN, nvml.ERROR_UNKNOWN
			}
			return status, nvml.SUCCESS
		}
	}
	s := New(library(devices...))
	wantNUMA := map[string]*int{"GPU-0": new(0), "GPU-1": new(65)}
	wantLink := map[string]int{"GPU-0": 1, "GPU-1": 1}
	for range 2 {
		for _, d := range list(t, s, 4) {
			if d.Fault != "" || !cmp.Equal(d.NUMA, wantNUMA[d.UUID]) || d.NVLink != wantLink[d.UUID] {
				t.Errorf("%+v: NUMA node %v, want %v, NVLink set %d", d, d.NUMA, wantNUMA[d.UUID], wantLink[d.UUID])
			}
		}
	}
	devices[0].GetMigModeFunc = func() (int, int, nvml.Return) { return nvml.DEVICE_MIG_ENABLE, 1, nvml.SUCCESS }
	devices[0].GetMaxMigDeviceCountFunc = func() (int, nvml.Return) { return 0, nvml.SUCCESS }
	if d := list(t, s, 4)[0]; !d.MIG || d.NUMA != nil || d.NVLink != 0 {
		t.Errorf("in MIG mode: %+v", d)
	}
}
