package device_test

import (
	"testing"
	"time"

	"github.com/gshare-dev/gshare/vgpu/device"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// A kernel that may start on fewer SMs does so where enough are free, and then takes longer; else it waits as all do.
func TestMold(t *testing.T) {
	for name, test := range map[string]struct {
		least, limit share.PerMille
		start, end   time.Duration
	}{
		"waits for all":       {0, 1000, 2 * ms, 3 * ms},
		"half is enough":      {400, 1000, 0, 2 * ms},
		"too few are free":    {401, 1000, 2 * ms, 3 * ms},
		"its cap is narrower": {400, 200, 0, 4 * ms},
	} {
		t.Run(name, func(t *testing.T) {
			d := device.New()
			d.Attach(1, 1000)
			d.Attach(2, test.limit)
			d.Submit(&device.Work{Stream: device.Stream{Process: 1}, Duration: 2 * ms, Width: 600})
			w := &device.Work{Stream: device.Stream{Process: 2}, Duration: ms, Width: 800, Least: test.least}
			d.Submit(w)
			d.Advance(10 * ms)
			if w.Start != test.start || w.End != test.end {
				t.Errorf("ran from %v to %v, want %v to %v", w.Start, w.End, test.start, test.end)
			}
		})
	}
}
