package enforce_test

import (
	"testing"

	"github.com/gshare-dev/gshare/test/enforce"
)

func TestSpans(t *testing.T) {
	s := enforce.Spans{{Start: 0, End: 2 * ms}, {Start: ms, End: 3 * ms}, {Start: 6 * ms, End: 8 * ms}}
	// The second and third kernels are launched while the first runs, the last one when 1 ms of the third is left.
	queue := enforce.Spans{{At: 0, Start: 0, End: 3 * ms}, {At: ms, Start: 3 * ms, End: 4 * ms}, {At: ms, Start: 4 * ms, End: 6 * ms}, {At: 5 * ms, Start: 6 * ms, End: 7 * ms}}
	for name, test := range map[string]struct{ got, want float64 }{
		"overlaps count once": {s.Busy(0, 10*ms), 0.5},
		"clipped":             {s.Busy(2*ms, 7*ms), 0.4},
		"nothing":             {s.Busy(4*ms, 5*ms), 0},
		"loss":                {enforce.Loss(s, 0, 5*ms, 5*ms), 0.5},
		"quantile":            {float64(enforce.Quantile(s.Stalls(0, 10*ms), 0.99)), float64(5 * ms)},
		"quantile of none":    {float64(enforce.Quantile(nil, 0.99)), 0},
		"silence is a stall":  {float64(enforce.Quantile(enforce.Spans{}.Stalls(0, 10*ms), 0.5)), float64(10 * ms)},
		"longest":             {float64(s.Longest()), float64(2 * ms)},
		"most":                {float64(s.Most(4*ms, 0)), float64(3 * ms)},
		"most, clipped":       {float64(s.Most(7*ms, 0)), float64(4 * ms)},
		"most, later":         {float64(s.Most(4*ms, ms)), float64(2 * ms)},
		"most of none":        {float64(s.Most(4*ms, 7*ms)), 0},
		"ahead":               {float64(queue.Ahead(0)), float64(3 * ms)},
		"ahead, later":        {float64(queue.Ahead(3 * ms)), float64(1 * ms)},
	} {
		t.Run(name, func(t *testing.T) {
			if test.got != test.want {
				t.Errorf("got %v, want %v", test.got, test.want)
			}
		})
	}
}

// TestChecks checks the checks themselves.
func TestChecks(t *testing.T) {
	half := enforce.Spans{{Start: 0, End: 50 * ms}, {Start: 100 * ms, End: 150 * ms}}
	for name, test := range map[string]struct {
		err  error
		want bool
	}{
		"accurate":   {enforce.Accurate(half, 500, 0, 200*ms), false},
		"too much":   {enforce.Accurate(half, 470, 0, 200*ms), true},
		"too little": {enforce.Accurate(half, 530, 0, 200*ms), true},
		"delivered":  {enforce.Delivered(half, 510, 0, 200*ms), false},
		"short":      {enforce.Delivered(half, 520, 0, 200*ms), true},
		"bounded":    {enforce.Bounded(half, 450, window, 5*ms, 0), false},
		"unbounded":  {enforce.Bounded(half, 440, window, 5*ms, 0), true},
		"prompt":     {enforce.Prompt(half, 500, window, turn, 50*ms, 0, 200*ms), false},
		"not prompt": {enforce.Prompt(half, 900, window, turn, 50*ms, 0, 200*ms), true},
	} {
		t.Run(name, func(t *testing.T) {
			if (test.err != nil) != test.want {
				t.Errorf("got %v, want an error: %v", test.err, test.want)
			}
		})
	}
}
