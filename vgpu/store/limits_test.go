package store

import (
	"errors"
	"math"
	"testing"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// limited returns a store of a namespace with a client, and two digests.
func limited(t *testing.T, limits map[Digest]share.Bytes) *Store {
	t.Helper()
	s := New("team", 0)
	s.Limit(limits, nil)
	if err := s.Open(1, "team"); err != nil {
		t.Fatal(err)
	}
	return s
}

// stored stores weights and ends their lease.
func stored(t *testing.T, s *Store, c Client, k Key, bytes share.Bytes) {
	t.Helper()
	if err := s.Open(c, "team"); err != nil {
		t.Fatal(err)
	}
	e, _, err := s.Put(c, k, bytes)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Commit(c, k); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Verified(e.ID, k.Digest); err != nil {
		t.Fatal(err)
	}
}

func TestLimits(t *testing.T) {
	a, b := Digest{1}, Digest{2}
	for name, test := range map[string]struct {
		key   Key
		bytes share.Bytes
		want  error
	}{
		"what is declared":         {Key{a, ""}, 4 * share.MiB, nil},
		"less":                     {Key{a, ""}, 1, nil},
		"more":                     {Key{a, ""}, 4*share.MiB + 1, ErrSize},
		"not declared":             {Key{Digest{3}, ""}, 1, ErrSize},
		"beside another layout":    {Key{b, "half"}, 2 * share.MiB, nil},
		"too much in both layouts": {Key{b, "half"}, 2*share.MiB + 1, ErrSize},
		"overflow":                 {Key{a, ""}, math.MaxInt64, ErrSize},
	} {
		t.Run(name, func(t *testing.T) {
			s := limited(t, map[Digest]share.Bytes{a: 4 * share.MiB, b: 4 * share.MiB})
			stored(t, s, 2, Key{b, ""}, 2*share.MiB)
			if _, _, err := s.Put(1, test.key, test.bytes); !errors.Is(err, test.want) {
				t.Errorf("got %v, want %v", err, test.want)
			}
		})
	}
}

// TestTrim drops what no limit covers any more, once nobody uses it.
func TestTrim(t *testing.T) {
	a, b := Digest{1}, Digest{2}
	s := limited(t, map[Digest]share.Bytes{a: 2 * share.MiB, b: 2 * share.MiB})
	stored(t, s, 1, Key{a, ""}, 1)
	stored(t, s, 2, Key{b, ""}, 1)
	s.Close(2)
	if dropped := s.Trim(); dropped != nil {
		t.Errorf("dropped %v within the limits", dropped)
	}
	s.Limit(map[Digest]share.Bytes{}, nil)
	if dropped := s.Trim(); len(dropped) != 1 || dropped[0].Key.Digest != b {
		t.Errorf("dropped %v, want the weights without users", dropped)
	}
	s.Close(1)
	if dropped := s.Trim(); len(dropped) != 1 || s.used != 0 {
		t.Errorf("dropped %v, used %d", dropped, s.used)
	}
	free := New("team", 4*share.MiB) // has no limits
	stored(t, free, 1, Key{a, ""}, 1)
	free.Close(1)
	if dropped := free.Trim(); dropped != nil {
		t.Errorf("dropped %v of a store without limits", dropped)
	}
}

func TestLimitsDoNotOverflow(t *testing.T) {
	s := New("team", 0)
	s.Limit(map[Digest]share.Bytes{{1}: math.MaxInt64, {2}: math.MaxInt64, {3}: -1}, nil)
	if s.capacity != math.MaxInt64 {
		t.Errorf("capacity %d", s.capacity)
	}
}

// TestHeld keeps room for the copies of an earlier store that programs still have.
func TestHeld(t *testing.T) {
	a, b := Digest{1}, Digest{2}
	limits := map[Digest]share.Bytes{a: 4 * share.MiB, b: 4 * share.MiB}
	s := limited(t, limits)
	s.Limit(limits, map[Digest]share.Bytes{a: 4 * share.MiB})
	if _, _, err := s.Put(1, Key{a, ""}, 1); !errors.Is(err, ErrFull) {
		t.Errorf("weights of which there is a copy: %v", err)
	}
	if _, _, err := s.Put(1, Key{a, ""}, 5*share.MiB); !errors.Is(err, ErrSize) {
		t.Errorf("more than declared: %v", err)
	}
	stored(t, s, 2, Key{b, ""}, 4*share.MiB)
	s.Limit(limits, nil)
	stored(t, s, 3, Key{a, ""}, 4*share.MiB)
	if s.used != 8*share.MiB {
		t.Errorf("used %d", s.used)
	}
}
