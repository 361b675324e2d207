package residency

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/gshare-dev/gshare/vgpu/share"
)

func TestHostMemoryFits(t *testing.T) {
	held := HostMemory{"a": 3, "b": 4}
	for name, c := range map[string]struct {
		id           string
		bytes, limit share.Bytes
		want         bool
	}{
		"no limit":    {"c", math.MaxInt64, 0, true},
		"to the byte": {"c", 3, 10, true},
		"one more":    {"c", 4, 10, false},
		"itself":      {"a", 6, 10, true},
		"very large":  {"c", math.MaxInt64, 10, false},
		"nothing":     {"c", 0, 7, true},
		"over it now": {"c", 0, 6, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := held.Fits(c.id, c.bytes, c.limit); got != c.want {
				t.Errorf("fits: %t, want %t", got, c.want)
			}
		})
	}
}

// TestHostMemoryProperty: whoever is parked where Fits allows it, and woken at any time, the sum never exceeds the limit.
func TestHostMemoryProperty(t *testing.T) {
	random, refused := rand.New(rand.NewPCG(1, 2)), 0
	held, limit := HostMemory{}, share.Bytes(100)
	for range 10_000 {
		id := string(rune('a' + random.IntN(12)))
		switch bytes := share.Bytes(random.IntN(40)); {
		case random.IntN(3) == 0:
			delete(held, id)
		case held.Fits(id, bytes, limit):
			held[id] = bytes
		default:
			refused++
		}
		if held.Sum() > limit {
			t.Fatalf("%v holds %d", held, held.Sum())
		}
	}
	if refused < 1000 {
		t.Errorf("only %d were refused", refused)
	}
}
