package planning

import (
	"testing"

	"github.com/gshare-dev/gshare/vgpu/profile"
)

func TestBill(t *testing.T) {
	for name, c := range map[string]struct {
		quantum      Milliseconds
		takes, bills profile.Seconds
	}{
		"exact":              {0, 0.1234, 0.1234},
		"up":                 {100, 0.1001, 0.2},
		"a whole unit":       {100, 0.1, 0.1},
		"three units":        {100, 0.1 * 3, 0.3}, // a little above 0.3 as a float
		"six units":          {100, 0.6, 0.6},
		"less than a ns off": {1000, 1.0000000001, 1},
		"seconds":            {1000, 0.02, 1},
	} {
		t.Run(name, func(t *testing.T) {
			if got := c.quantum.roundUp(c.takes); got < c.bills-1e-12 || got > c.bills+1e-12 {
				t.Errorf("%v bills %v, want %v", c.takes, got, c.bills)
			}
		})
	}
}

// TestRates has PA-20's prices: a GB of a GPU is 3.4e-5 a second (P9), so 24 GB are 2.94 an hour.
func TestRates(t *testing.T) {
	b := alibaba()
	for name, c := range map[string]struct{ got, want Cost }{
		"2 vCPU":             {b.VCPU.rate(2000), 32_000},
		"512 MiB":            {b.Memory.rate(512 << 20), 1_200},
		"24 GB of a GPU":     {b.GPUMemory.rate(24), 816_000},
		"a tenth of a slice": {b.Slice.rate(500, 200), 30_000},
	} {
		t.Run(name, func(t *testing.T) {
			if c.got < c.want*(1-1e-12) || c.got > c.want*(1+1e-12) {
				t.Errorf("%v nano-units a second, want %v", c.got, c.want)
			}
		})
	}
}
