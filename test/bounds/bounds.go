// Package bounds lets tests check that a validation accepts the minimum and the maximum of a number, and refuses values beyond them with
// an error that names the field.
package bounds

import (
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// Field is a numeric field of T with bounds.
type Field[T any, N int64 | float64] struct {
	name        string
	least, most N
	set         func(*T, N)
}

// Of returns the field that errors call by the given name. The values least and most are valid; the next smaller and the next larger
// number are not. If there is no bound, pass the smallest or largest int64, or an infinity.
func Of[T any, N int64 | float64](name string, least, most N, set func(*T, N)) Field[T, N] {
	return Field[T, N]{name, least, most, set}
}

// Check reports a test error for each bound that validate does not enforce. Only the field under test differs from the value that valid
// returns.
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

// beyond returns the next number in a direction, 1 or -1. At the end of the type's range, an int64 wraps around and an infinity stays the
// same.
func beyond[N int64 | float64](n N, direction int) N {
	switch n := any(n).(type) {
	case int64:
		return N(n + int64(direction))
	case float64:
		return N(math.Nextafter(n, math.Inf(direction)))
	}
	panic(fmt.Sprintf("%T is no number", n))
}
