// Package bounds checks in tests that validation accepts the least and the most of a number, and refuses what lies beyond with the name of
// the field.
package bounds

import (
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// Field is a bounded number of a T.
type Field[T any, N int64 | float64] struct {
	name        string
	least, most N
	set         func(*T, N)
}

// Of returns the field that errors state by the given name. The least and the most are valid; the next smaller and the next larger number
// are not. A number without a bound has the smallest or largest int64, or an infinity, in its place.
func Of[T any, N int64 | float64](name string, least, most N, set func(*T, N)) Field[T, N] {
	return Field[T, N]{name, least, most, set}
}

// Check reports as errors of the test which bounds of the fields validate does not keep. Only the field under test differs from the value
// that valid returns.
func Check[T any, N int64 | float64](t *testing.T, valid func() T, validate func(*T) error, fields ...Field[T, N]) {
	t.Helper()
	for _, f := range fields {
		check := func(n N, ok bool) {
			t.Helper()
			v := valid()
			f.set(&v, n)
			err := validate(&v)
			if ok && err != nil {
				t.Errorf("%s: %v is refused: %v", f.name, n, err)
			}
			if refusal, is := errors.AsType[*share.FieldError](err); !ok && (!is || refusal.Field != f.name) {
				t.Errorf("%s: %v is not refused for this field: %v", f.name, n, err)
			}
		}
		check(f.least, true)
		check(f.most, true)
		if n := beyond(f.least, -1); n < f.least {
			check(n, false)
		}
		if n := beyond(f.most, 1); n > f.most {
			check(n, false)
		}
		if nan, ok := any(math.NaN()).(N); ok {
			check(nan, false)
		}
	}
}

// beyond returns the next number in a direction, 1 or -1. It wraps around, or stays, where there is none.
func beyond[N int64 | float64](n N, direction int) N {
	switch n := any(n).(type) {
	case int64:
		return N(n + int64(direction))
	case float64:
		return N(math.Nextafter(n, math.Inf(direction)))
	}
	panic(fmt.Sprintf("%T is no number", n))
}
