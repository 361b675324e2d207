package fleet

import (
	"slices"
	"testing"

	"github.com/gshare-dev/gshare/serving/gateway"
	"github.com/gshare-dev/gshare/serving/rules/scaling"
)

// TestRateBesideReports makes every other report of a gateway arrive just after the tick for its second, as happens for hours if the two clocks tick at
// about the same time. The rate is still that of the requests, since the gateway counts them by seconds; the difference of two totals would not be.
func TestRateBesideReports(t *testing.T) {
	const perSecond = 50
	for name, test := range map[string]struct {
		bySeconds bool
		want      []scaling.Rate
	}{
		"by seconds": {true, []scaling.Rate{50, 50, 50, 50, 50, 50}},
		"counters":   {false, []scaling.Rate{100, 0, 100, 0, 100, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			fn := &function{}
			var rates []scaling.Rate
			for _, seconds := range []uint64{2, 2, 4, 4, 6, 6} { // reported by each tick
				l := gateway.Load{Received: perSecond * seconds, LastSecond: gateway.LastSecond{Received: perSecond, Known: test.bySeconds}}
				rates = append(rates, fn.rate(l))
				fn.addLoad(l)
			}
			if !slices.Equal(rates, test.want) {
				t.Errorf("rates %v, want %v", rates, test.want)
			}
		})
	}
}
