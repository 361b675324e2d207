package kube

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

func placesOn(device string, sizes ...int) (slices []Slice) {
	for _, size := range sizes {
		for start := 0; start+size <= 8; start += size {
			slices = append(slices, Slice{
				ID: fmt.Sprintf("%s.%d.%d", device, size, start), Device: device, Model: "A100", Profile: fmt.Sprintf("%dg.%dgb", size, 10*size),
				Room: uint8((1<<size - 1) << start), SMs: 14, MemoryMiB: int64(1000 * size), Healthy: true,
			})
		}
	}
	return slices
}

func TestLeast(t *testing.T) {
	whole := Slice{ID: "g", Device: "g", Model: "A100", SMs: 108, MemoryMiB: 80000, Healthy: true}
	for name, test := range map[string]struct {
		slices                  []Slice
		deviceIDs, memory, time int64
	}{
		"whole":          {[]Slice{whole}, 16, 80000, 10000},
		"one profile":    {placesOn("a", 1), 8 * 16, 8000, 80000},
		"halves, parts":  {placesOn("a", 1, 4), 2 * 16, 8000, 20000},
		"whole or parts": {placesOn("a", 8, 1), 16, 8000, 10000},
		"two devices":    {append(placesOn("a", 2), placesOn("b", 4)...), 6 * 16, 16000, 60000},
		"beside a whole": {append(placesOn("a", 4), whole), 3 * 16, 88000, 30000},
	} {
		t.Run(name, func(t *testing.T) {
			inv := Inventory{Slices: test.slices}
			if err := (Inventory{Slices: withDefaults(test.slices)}).Validate(); err != nil {
				t.Errorf("%v", err)
			}
			has := NodeResources(inv)
			vgpu, memory, time := has[ResourceVGPU], has[ResourceMemory], has[ResourceSMTime]
			if vgpu.Value() != test.deviceIDs || memory.Value() != test.memory || time.Value() != test.time {
				t.Errorf("%d device IDs, %d MiB, %d sm-time", vgpu.Value(), memory.Value(), time.Value())
			}
		})
	}
	if err := (Inventory{Slices: withDefaults([]Slice{{ID: "g", Device: "g", Model: "A100", SMs: 1, MemoryMiB: 1, Room: 1}})}).Validate(); err == nil {
		t.Error("a whole GPU with a room is valid")
	}
}

// TestLeastIsLeast fills a device at random: whatever fills it has at least what is advertised.
func TestLeastIsLeast(t *testing.T) {
	places := placesOn("a", 1, 2, 4)
	for i := range places {
		places[i].MemoryMiB -= int64(37 * i) // not in proportion
	}
	promised, tight := minCapacity(places), false
	random := rand.New(rand.NewPCG(3, 3))
	for range 2000 {
		var taken uint8
		var has capacity
		for _, i := range random.Perm(len(places)) {
			if p := places[i]; p.Room&taken == 0 {
				taken |= p.Room
				has = capacity{has.slices + 1, has.memory + p.MemoryMiB}
			}
		}
		if has.slices < promised.slices || has.memory < promised.memory {
			t.Fatalf("%+v are less than %+v", has, promised)
		}
		tight = tight || has.slices == promised.slices
	}
	if !tight {
		t.Errorf("%+v is never all", promised)
	}
}
