package process

import (
	"fmt"
	"os"
	"testing"
)

func TestParseBorn(t *testing.T) {
	const tail = " S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20"
	for _, name := range []string{"cat", "a b", ") R 1", ""} {
		if got, err := parseBorn("12 (" + name + ")" + tail); err != nil || got != 4711 {
			t.Errorf("%q: got %d, %v", name, got, err)
		}
	}
	for _, text := range []string{"", "12 (cat", "12 (cat) S 1 2"} {
		if got, err := parseBorn(text); err == nil {
			t.Errorf("%q: got %d", text, got)
		}
	}
	if own, err := Born(os.Getpid()); err != nil || own == 0 {
		t.Errorf("own process: %d, %v", own, err)
	}
}

// FuzzBorn: the name of a process may hold anything, and does not move the field.
func FuzzBorn(f *testing.F) {
	f.Add("cat", uint64(77))
	f.Add("a) S 1 2 (b", uint64(1<<63))
	f.Add(") ", uint64(0))
	f.Fuzz(func(t *testing.T, name string, start uint64) {
		got, err := parseBorn(fmt.Sprintf("12 (%s) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 %d 20", name, start))
		if err != nil || got != start {
			t.Errorf("got %d, %v; want %d", got, err, start)
		}
		_, _ = parseBorn(name) // whatever it says, it ends
	})
}
