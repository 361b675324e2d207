package device_test

import (
	"testing"
	"time"

	"github.com/gshare-dev/gshare/vgpu/device"
)

// TestWaves checks that the next wave of a kernel runs before a kernel that was launched later, unless its process yields.
func TestWaves(t *testing.T) {
	for name, test := range map[string]struct {
		follows, yields, both bool
		want                  time.Duration // start of the later kernel
	}{
		"each wave for itself":    {false, false, false, ms},
		"one kernel":              {true, false, false, 3 * ms},
		"one kernel that yields":  {true, true, false, ms},
		"both yield: as if none":  {true, true, true, 3 * ms},
		"waves for itself, yield": {false, true, false, ms},
	} {
		t.Run(name, func(t *testing.T) {
			d := device.New()
			d.Attach(1, 1000)
			d.Attach(2, 1000)
			if test.yields {
				d.LowerPriority(1)
			}
			if test.both {
				d.LowerPriority(2)
			}
			for n := range 3 {
				d.Submit(&device.Work{Stream: device.Stream{Process: 1}, Duration: ms, Width: 700, Follows: test.follows && n > 0})
			}
			later := &device.Work{Stream: device.Stream{Process: 2}, At: ms / 2, Duration: ms, Width: 500}
			d.Submit(later)
			done := len(d.Advance(10 * ms))
			if later.Start != test.want || done != 4 {
				t.Errorf("it starts at %v, want %v; %d of 4 are done", later.Start, test.want, done)
			}
		})
	}
}
