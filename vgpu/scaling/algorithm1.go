package scaling

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// ErrUnservable says that no configuration keeps the SLO: the function must not be scaled but reported (F5).
var ErrUnservable = errors.New("no profiled configuration keeps the SLO")

func unservable(field, format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrUnservable, share.Invalid(field, format, args...))
}

// negligible is a rate below which nothing is missing: a request in eleven days (F2).
const negligible Rate = 1e-6

// Residual chooses the instance for the rate r that the efficient instances leave over. One of choices is faster than r.
type Residual func(r Rate, choices []Configuration) Configuration

// LeastArea takes, of the configurations that serve r (T >= r, F4), the one of least SM-time and then of least
// throughput (F6). The efficient configuration is one of them, so one more of it is taken where that is cheaper (F7).
func LeastArea(r Rate, choices []Configuration) Configuration {
	return slices.MinFunc(serving(choices, func(t Rate) bool { return t >= r }), func(a, b Configuration) int {
		return cmp.Or(cmp.Compare(a.area(), b.area()), cmp.Compare(a.Throughput, b.Throughput), byShare(a, b))
	})
}

// LeastThroughput is the rule as printed: of the configurations with T > r the slowest, whatever it costs (FG-94). It is
// kept to compare with.
func LeastThroughput(r Rate, choices []Configuration) Configuration {
	return slices.MinFunc(serving(choices, func(t Rate) bool { return t > r }), func(a, b Configuration) int {
		return cmp.Or(cmp.Compare(a.Throughput, b.Throughput), cmp.Compare(a.area(), b.area()), byShare(a, b))
	})
}

func serving(choices []Configuration, enough func(Rate) bool) []Configuration {
	var found []Configuration
	for _, c := range choices {
		if enough(c.Throughput) {
			found = append(found, c)
		}
	}
	return found
}

// ScaleUp lists at most most configurations to add for a load that exceeds the throughput by gap: as many of the most
// efficient as it fills, and one for the rest (FaST-GShare Alg. 1, lines 4-12; FG-93, FG-94). Unless most cuts it
// short, the list serves the gap. At a gap of nothing it is empty (F2, F3).
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

// ScaleDown counts how many instances from the front of queue are to go, where the throughput exceeds the load by -gap:
// the least efficient go while the rest still serves the load (Alg. 1, lines 13-21; FG-96, FG-98). It ends at the first
// that is needed: looking past it would end a more efficient one before a less efficient (F1).
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
