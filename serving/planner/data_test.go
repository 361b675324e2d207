package planner

import (
	"errors"
	"testing"
)

// TestReading: what takes long to make of texts, or cannot be made of them, is made once for the same texts.
func TestReading(t *testing.T) {
	made, fails := 0, errors.New("not valid")
	var r reading[int]
	read := func(err error, texts ...string) (int, error) {
		return r.of(func() (int, error) { made++; return made, err }, texts...)
	}
	for _, step := range []struct {
		err   error
		texts []string
		want  int
	}{
		{nil, []string{"a", "b"}, 1},
		{nil, []string{"a", "b"}, 1},
		{fails, []string{"ab", ""}, 2},
		{fails, []string{"ab", ""}, 2},
		{nil, []string{"a", "b"}, 3},
	} {
		if got, err := read(step.err, step.texts...); got != step.want || err != step.err {
			t.Errorf("%q: %d, %v, want %d, %v", step.texts, got, err, step.want, step.err)
		}
	}
}
