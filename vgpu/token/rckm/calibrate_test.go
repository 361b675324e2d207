package rckm

import (
	"testing"
	"time"
)

// TestCalibration: blocks for a tick of device time are worth the cap, whatever holds the member back.
func TestCalibration(t *testing.T) {
	type span struct {
		blocks        int64
		device, ticks time.Duration // device time in ticks, tenths
	}
	play := func(c *calibration, spans ...span) {
		for _, s := range spans {
			c.observe(Launches{Blocks: s.blocks, Device: s.device * tick / 10}, s.ticks*tick, tick)
		}
	}
	for name, test := range map[string]struct {
		spans []span
		want  int64 // of the whole slice, for a cap of 800
	}{
		"nothing known":              {nil, fallback},
		"too little":                 {[]span{{1200, 30, 3}}, fallback},
		"no device time":             {[]span{{4000, 0, 10}}, fallback},
		"launched before":            {[]span{{0, 40, 4}}, fallback},
		"alone":                      {[]span{{1600, 40, 4}}, 500},
		"held to a fifth":            {[]span{{320, 8, 4}, {1280, 32, 16}}, 500},
		"told late":                  {[]span{{1600, 0, 4}, {0, 15, 3}, {0, 25, 3}}, 500},
		"two processes are one":      {[]span{{1600, 80, 4}}, 500},
		"a neighbour takes SMs":      {[]span{{1600, 40, 4}, {800, 40, 4}, {800, 40, 4}}, 500},
		"other kernels, more blocks": {[]span{{1600, 40, 4}, {12800, 40, 4}}, 4000},
		"endless":                    {[]span{{most, 40, 4}}, most / 800},
	} {
		var c calibration
		play(&c, test.spans...)
		if got := c.saturation(800); got != test.want {
			t.Errorf("%s: %d, want %d", name, got, test.want)
		}
	}
	var c calibration
	play(&c, span{1600, 40, 4})
	for range remembered { // fewer blocks from then on
		play(&c, span{160, 40, 4})
	}
	if got := c.saturation(800); got != 50 {
		t.Errorf("%d when the old kernels are forgotten, want 50", got)
	}
}
