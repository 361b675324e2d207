package batching

import (
	"testing"
	"time"
)

// TestExpect checks how many answers it takes to change what is expected of a replica.
func TestExpect(t *testing.T) {
	const ms = time.Millisecond
	answers := func(expected, took time.Duration, until func(time.Duration) bool) (n int) {
		for ; !until(expected) && n < 1000; n++ {
			expected = Expect(expected, took)
		}
		return n
	}
	for name, test := range map[string]struct {
		expected, took time.Duration
		until          func(time.Duration) bool
		most, least    int
	}{
		"twice as slow is noticed in a few":      {10 * ms, 20 * ms, func(d time.Duration) bool { return d > 18*ms }, 7, 3},
		"a hundred times as slow is noticed":     {10 * ms, 1000 * ms, func(d time.Duration) bool { return d > 500*ms }, 8, 5},
		"one alone does not double it":           {10 * ms, time.Hour, func(d time.Duration) bool { return d >= 20*ms }, 2, 2},
		"quick ones are believed slowly":         {100 * ms, 10 * ms, func(d time.Duration) bool { return d < 20*ms }, 80, 50},
		"the first is as others":                 {0, 100 * ms, func(d time.Duration) bool { return d >= 30*ms }, 1, 1},
		"what is as expected does not change it": {10 * ms, 10 * ms, func(d time.Duration) bool { return d != 10*ms }, 1000, 1000},
	} {
		t.Run(name, func(t *testing.T) {
			if n := answers(test.expected, test.took, test.until); n < test.least || n > test.most {
				t.Errorf("%d answers, want %d to %d", n, test.least, test.most)
			}
		})
	}
}
