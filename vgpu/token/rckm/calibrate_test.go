package rckm

import (
	"testing"
	"time"
)

// TestCalibration checks that the blocks of a tick of device time are worth the cap, whatever slows the member down.
func TestCalibration(t *testing.T) {
	type span struct {
		blocks        int64
		device, ticks time.Duration // device time in ticks, tenths
	}
	play := func(c *calibration, spans ...span) {
		for _, s := range spans {
			c.addTicks(Launches{Blocks: s.blocks, Device: s.device * tick / 10}, s.ticks*tick, tick)
		}
	}
	for name, test := range map[string]struct {
		spans []span
		want  int64 // of the whole slice, for a cap of 800
	}{
		"nothing known":              {nil, uncalibrated},
		"too little":                 {[]span{{1200, 30, 3}}, uncalibrated},
		"no device time":             {[]span{{4000, 0, 10}}, uncalibrated},
		"launched before":            {[]span{{0, 40, 4}}, uncalibrated},
		"a single block before":      {[]span{{1, 0, 1}, {0, 40, 4}}, 1},
		"idle before":                {[]span{{0, 0, 10}, {1600, 80, 4}}, 500},
		"alone":                      {[]span{{1600, 40, 4}}, 500},
		"held to a fifth":            {[]span{{320, 8, 4}, {1280, 32, 16}}, 500},
		"told late":                  {[]span{{1600, 0, 4}, {0, 15, 3}, {0, 25, 3}}, 500},
		"two processes are one":      {[]span{{1600, 80, 4}}, 500},
		"a neighbour takes SMs":      {[]span{{1600, 40, 4}, {800, 40, 4}, {800, 40, 4}}, 500},
		"other kernels, more blocks": {[]span{{1600, 40, 4}, {12800, 40, 4}}, 4000},
		"endless":                    {[]span{{maxBlocks, 40, 4}}, maxBlocks / 800},
	} {
		t.Run(name, func(t *testing.T) {
			var c calibration
			play(&c, test.spans...)
			if got := c.wholeSlice(800); got != test.want {
				t.Errorf("got %d, want %d", got, test.want)
			}
		})
	}
	var c calibration
	play(&c, span{1600, 40, 4})
	for range maxSamples { // fewer blocks from then on
		play(&c, span{160, 40, 4})
	}
	if got := c.wholeSlice(800); got != 50 {
		t.Errorf("%d when the old kernels are forgotten, want 50", got)
	}
}

// TestLongKernels checks that kernels longer than a tick, launched before earlier ones finish, are not counted too early.
func TestLongKernels(t *testing.T) {
	const kernel, blocks = 8 * time.Millisecond, 64 // beneath a cap of 600
	want := int64(blocks) * int64(tick) * 1000 / (int64(kernel) * 600)
	for name, batch := range map[string]int{"batches of 8": 8, "without end": 1 << 30} {
		t.Run(name, func(t *testing.T) {
			var c calibration
			worst := int64(0)
			done, launched, since := 0, 0, time.Duration(0) // kernels, and time of the one that runs
			for n := range 4000 {
				l := Launches{}
				for launched < done+3 && launched < (done/batch+1)*batch { // two are launched ahead
					launched++
					l.Blocks += blocks
				}
				for since += tick; since >= kernel && done < launched; since -= kernel { // time is told when a kernel ends
					done++
					l.Device += kernel
				}
				if done == launched {
					since = 0 // the host launches the next ones in the next tick
				}
				l.Busy = done < launched
				c.addTicks(l, tick, tick)
				if n > 2*longSample {
					worst = max(worst, c.wholeSlice(600))
				}
			}
			if worst < want*95/100 || worst > want*112/100 {
				t.Errorf("at most %d blocks a tick, want about %d", worst, want)
			}
		})
	}
}
