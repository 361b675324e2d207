package scaling

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// ErrUnservable reports that no configuration meets the SLO. The function must not be scaled, but reported to its owner (F5).
var ErrUnservable = errors.New("no profiled configuration keeps the SLO")

func unservable(field, format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrUnservable, share.Invalid(field, format, args...))
}

// negligible is the rate up to which missing throughput is ignored: one request in eleven days (F2).
const negligible Rate = 1e-6

// Residual chooses the configuration of the one instance that serves r, the load left over by the most efficient instances. At
// least one of choices has a throughput above r.
type Residual func(r Rate, choices []Configuration) Configuration

// LeastArea is the default Residual. Of the configurations with a throughput of at least r (F4) it returns the one with the least
// SM-time, and of equal ones the one with the least throughput (F6). The most efficient configuration is among them, so one more of
// it is returned where that is cheapest (F7).
func LeastArea(r Rate, choices []Configuration) Configuration {
	return slices.MinFunc(serving(choices, func(t Rate) bool { return t >= r }), func(a, b Configuration) int {
		return cmp.Or(cmp.Compare(a.area(), b.area()), cmp.Compare(a.Throughput, b.Throughput), byShare(a, b))
	})
}

// LeastThroughput is the Residual that the FaST-GShare paper prints: the slowest configuration with a throughput above r, whatever
// its SM-time (FG-94). Simulations compare LeastArea with it.
func LeastThroughput(r Rate, choices []Configuration) Configuration {
	return slices.MinFunc(serving(choices, func(t Rate) bool { return t > r }), func(a, b Configuration) int {
		return cmp.Or(cmp.Compare(a.Throughput, b.Throughput), cmp.Compare(a.area(), b.area()), byShare(a, b))
	})
}

// serving returns the choices whose throughput is enough.
func serving(choices []Configuration, enough func(Rate) bool) []Configuration {
	var found []Configuration
	for _, c := range choices {
		if enough(c.Throughput) {
			found = append(found, c)
		}
	}
	return found
}

// ScaleUp returns the configurations to add for a load that exceeds the throughput by gap: as many of the most efficient as the gap
// fills, and one chosen by residual for the rest (FaST-GShare Algorithm 1, lines 4-12; FG-93, FG-94). It returns at most `most`
// configurations; with fewer, they serve the whole gap. Without a gap it returns none (F2, F3).
//
// The errors are *share.FieldError; without choices, ErrUnservable too.
func ScaleUp(gap Rate, choices []Configuration, residual Residual, most int) ([]Configuration, error) {
	efficient, err := MostEfficient(choices)
	if err != nil {
		return nil, err
	}
	if err := checkNumber("gap", gap); err != nil {
		return nil, err
	}
	if gap <= negligible || most <= 0 {
		return nil, nil
	}
	whole := math.Floor(float64(gap / efficient.Throughput))
	if whole >= float64(most) {
		return slices.Repeat([]Configuration{efficient}, most), nil
	}
	added := slices.Repeat([]Configuration{efficient}, int(whole))
	// Rounding may put the rest a little outside of [0, T_eff), where no configuration need serve it.
	rest := min(gap-Rate(whole)*efficient.Throughput, Rate(math.Nextafter(float64(efficient.Throughput), 0)))
	if rest > negligible {
		added = append(added, residual(rest, choices))
	}
	return added, nil
}

// ScaleDown returns how many instances to remove from the front of queue, which holds their throughputs, least efficient first. The
// throughput exceeds the load by -gap. Instances are removed while the rest still serves the load (FaST-GShare Algorithm 1, lines
// 13-21; FG-96, FG-98). It stops at the first that is needed, so that no instance is removed before a less efficient one (F1).
func ScaleDown(gap Rate, queue []Rate) int {
	for n, throughput := range queue {
		if gap+throughput > 0 {
			return n
		}
		gap += throughput
	}
	return len(queue)
}

func checkNumber(field string, r Rate) error {
	if math.IsNaN(float64(r)) || math.IsInf(float64(r), 0) {
		return share.Invalid(field, "%v requests/s is not a number", float64(r))
	}
	return nil
}
