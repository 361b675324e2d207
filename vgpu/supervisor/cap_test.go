package supervisor_test

import (
	"fmt"
	"testing"

	"github.com/gshare-dev/gshare/vgpu/share"
	"github.com/gshare-dev/gshare/vgpu/supervisor"
)

func TestCap(t *testing.T) {
	for _, test := range []struct {
		part share.PerMille
		sms  int
		want int
	}{
		{250, 188, 46}, {500, 188, 94}, {750, 188, 140}, {1000, 188, 188}, // as measured
		{120, 132, 14}, {10, 132, 2}, {1, 14, 2}, {1000, 1, 1}, {990, 132, 130},
	} {
		t.Run(fmt.Sprintf("%d per mille of %d SMs", test.part, test.sms), func(t *testing.T) {
			if got := supervisor.Cap(test.part, test.sms); got != test.want {
				t.Errorf("%d SMs, want %d", got, test.want)
			}
		})
	}
}

// TestCapIsMonotone: a larger part never has fewer SMs, and none but the smallest has more than its part.
func TestCapIsMonotone(t *testing.T) {
	for _, sms := range []int{2, 14, 16, 108, 132, 188} {
		last := 0
		for part := share.PerMille(1); part <= share.Whole; part++ {
			got := supervisor.Cap(part, sms)
			if got < last || got > max(2, int(part)*sms/1000) {
				t.Fatalf("%d per mille of %d SMs: %d after %d", part, sms, got, last)
			}
			last = got
		}
	}
}
