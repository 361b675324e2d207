package store

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/gshare-dev/gshare/vgpu/share"
)

const team = "team"

func key(n byte) Key { return Key{Digest: Digest{n}} }

// opened returns a store of 10 MiB with the clients 1 to 4.
func opened(t *testing.T) *Store {
	t.Helper()
	s := New(team, 10*share.MiB)
	for c := range Client(4) {
		if err := s.Open(c+1, team); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// put stores weights and commits them.
func put(t *testing.T, s *Store, c Client, k Key, bytes share.Bytes) (dropped []Entry) {
	t.Helper()
	e, dropped, err := s.Put(c, k, bytes)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Commit(c, k); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Verified(e.ID, k.Digest); err != nil {
		t.Fatal(err)
	}
	return dropped
}

func TestRefusals(t *testing.T) {
	huge := Key{Digest: Digest{1}, Layout: "half"}
	for name, test := range map[string]struct {
		do   func(s *Store) error
		want error
	}{
		"another namespace": {func(s *Store) error { return s.Open(9, "others") }, ErrNamespace},
		"no namespace":      {func(s *Store) error { return New("", share.MiB).Open(9, "") }, ErrNamespace},
		"get, not open":     {func(s *Store) error { _, err := s.Get(9, key(1)); return err }, ErrClient},
		"put, not open":     {func(s *Store) error { _, _, err := s.Put(9, key(2), 1); return err }, ErrClient},
		"get, closed":       {func(s *Store) error { s.Close(2); _, err := s.Get(2, key(1)); return err }, ErrClient},
		"absent":            {func(s *Store) error { _, err := s.Get(1, key(2)); return err }, ErrAbsent},
		"another layout":    {func(s *Store) error { _, err := s.Get(1, huge); return err }, ErrAbsent},
		"present":           {func(s *Store) error { _, _, err := s.Put(2, key(1), 1); return err }, ErrPresent},
		"no size":           {func(s *Store) error { _, _, err := s.Put(2, key(2), 0); return err }, ErrSize},
		"negative size":     {func(s *Store) error { _, _, err := s.Put(2, key(2), -1); return err }, ErrSize},
		"too large":         {func(s *Store) error { _, _, err := s.Put(2, key(2), 10*share.MiB+1); return err }, ErrSize},
		"far too large":     {func(s *Store) error { _, _, err := s.Put(2, key(2), math.MaxInt64); return err }, ErrSize},
		"no room":           {func(s *Store) error { _, _, err := s.Put(2, key(2), 8*share.MiB+1); return err }, ErrFull},
		"written, get":      {func(s *Store) error { s.Put(2, key(2), 1); _, err := s.Get(1, key(2)); return err }, ErrBusy},
		"written, put":      {func(s *Store) error { s.Put(2, key(2), 1); _, _, err := s.Put(1, key(2), 1); return err }, ErrBusy},
		"verified, get":     {func(s *Store) error { s.Put(2, key(2), 1); s.Commit(2, key(2)); _, err := s.Get(1, key(2)); return err }, ErrBusy},
		"commit of another": {func(s *Store) error { s.Put(2, key(2), 1); _, err := s.Commit(1, key(2)); return err }, ErrWriter},
		"commit twice":      {func(s *Store) error { _, err := s.Commit(1, key(1)); return err }, ErrWriter},
		"commit of nothing": {func(s *Store) error { _, err := s.Commit(1, key(2)); return err }, ErrAbsent},
		"not verifying":     {func(s *Store) error { _, err := s.Verified(1, key(1).Digest); return err }, ErrAbsent},
	} {
		t.Run(name, func(t *testing.T) {
			s := opened(t)
			put(t, s, 1, key(1), 2*share.MiB)
			if err := test.do(s); !errors.Is(err, test.want) {
				t.Errorf("%v, want %v", err, test.want)
			}
			if e, err := s.Get(1, key(1)); err != nil || e.Size != 2*share.MiB {
				t.Errorf("afterwards the weights are %+v, %v", e, err)
			}
		})
	}
}

// TestWrongDigest checks that weights with another digest are gone, and can be stored again.
func TestWrongDigest(t *testing.T) {
	s := opened(t)
	e, _, err := s.Put(1, key(1), 3*share.MiB)
	if err != nil || e.Size != 4*share.MiB || s.used != 4*share.MiB {
		t.Fatalf("%+v, %v; %d used", e, err, s.used)
	}
	if _, err := s.Commit(1, key(1)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Verified(e.ID, Digest{2}); !errors.Is(err, ErrDigest) {
		t.Errorf("another digest: %v", err)
	}
	if _, err := s.Get(2, key(1)); !errors.Is(err, ErrAbsent) || s.used != 0 {
		t.Errorf("it is still there: %v, %d used", err, s.used)
	}
	put(t, s, 2, key(1), 1)
	if _, err := s.Verified(e.ID, key(1).Digest); !errors.Is(err, ErrAbsent) {
		t.Errorf("the answer for the old entry: %v", err)
	}
}

// TestDiscard checks that what is not committed can be dropped, and nothing else.
func TestDiscard(t *testing.T) {
	s := opened(t)
	written, _, err := s.Put(1, key(1), 1)
	if err != nil {
		t.Fatal(err)
	}
	if e, err := s.Discard(written.ID); err != nil || e.Key != key(1) || s.used != 0 {
		t.Errorf("%+v, %v, %d used", e, err, s.used)
	}
	if _, err := s.Discard(written.ID); !errors.Is(err, ErrAbsent) {
		t.Errorf("again: %v", err)
	}
	put(t, s, 1, key(1), 1)
	if _, err := s.Discard(s.Entries()[0].ID); !errors.Is(err, ErrAbsent) || s.used != 2*share.MiB {
		t.Errorf("committed: %v, %d used", err, s.used)
	}
}

// TestEviction checks that only weights without users are dropped, in the order in which they were last used, and no more than is needed.
func TestEviction(t *testing.T) {
	s := opened(t)
	for n := range byte(4) {
		put(t, s, Client(n)+1, key(n), 2*share.MiB)
	}
	s.Close(1)
	s.Close(2)
	s.Close(4)
	if err := s.Open(5, team); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get(5, key(0)); err != nil { // used later than the two that follow it
		t.Fatal(err)
	}
	s.Close(5)
	if s.Evictable() != 6*share.MiB {
		t.Errorf("%d evictable", s.Evictable())
	}
	dropped := put(t, s, 3, key(9), 5*share.MiB) // 8 of 10 MiB are used, and 6 needed
	if len(dropped) != 2 || dropped[0].Key != key(1) || dropped[1].Key != key(3) {
		t.Errorf("dropped %v", dropped)
	}
	if dropped := s.Evict(share.MiB); len(dropped) != 1 || dropped[0].Key != key(0) {
		t.Errorf("dropped %v", dropped)
	}
	if dropped := s.Evict(math.MaxInt64); dropped != nil || s.used != 8*share.MiB {
		t.Errorf("dropped %v in use", dropped)
	}
}

// TestMaxEntries checks that a store has so many weights at the most, and that those without users make room for others.
func TestMaxEntries(t *testing.T) {
	s := New(team, (MaxEntries+1)*Granularity)
	for c := range Client(2) {
		if err := s.Open(c, team); err != nil {
			t.Fatal(err)
		}
	}
	numbered := func(n int) Key { return Key{Digest: Digest{byte(n), byte(n >> 8)}} }
	put(t, s, 0, numbered(0), 1)
	for n := 1; n < MaxEntries; n++ {
		if _, dropped, err := s.Put(1, numbered(n), 1); err != nil || dropped != nil {
			t.Fatalf("number %d: %v, dropped %v", n, err, dropped)
		}
	}
	if _, _, err := s.Put(1, numbered(MaxEntries), 1); !errors.Is(err, ErrFull) {
		t.Errorf("one more: %v", err)
	}
	s.Close(0)
	if _, dropped, err := s.Put(1, numbered(MaxEntries), 1); err != nil || len(dropped) != 1 || dropped[0].Key != numbered(0) {
		t.Errorf("one more in place of another: %v, dropped %v", err, dropped)
	}
	if s.Close(1); s.used != 0 {
		t.Errorf("%d bytes are left", s.used)
	}
}

// TestWriterEnds checks that a writer that ends leaves nothing before its commit, and its weights after it.
func TestWriterEnds(t *testing.T) {
	s := opened(t)
	if _, _, err := s.Put(1, key(1), 1); err != nil {
		t.Fatal(err)
	}
	if dropped := s.Close(1); len(dropped) != 1 || dropped[0].Key != key(1) || s.used != 0 {
		t.Errorf("dropped %v, %d used", dropped, s.used)
	}
	e, _, err := s.Put(2, key(1), 1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Commit(2, key(1)); err != nil {
		t.Fatal(err)
	}
	if dropped := s.Close(2); dropped != nil {
		t.Errorf("dropped %v while it is being verified", dropped)
	}
	if e, err := s.Verified(e.ID, key(1).Digest); err != nil || e.Users != 0 {
		t.Errorf("%+v, %v", e, err)
	}
	if e, err := s.Get(3, key(1)); err != nil || e.Users != 1 {
		t.Errorf("%+v, %v", e, err)
	}
}

func TestParseDigest(t *testing.T) {
	want := Digest{0xab, 31: 1}
	if d, err := ParseDigest(want.String()); err != nil || d != want {
		t.Errorf("%v, %v", d, err)
	}
	digits := strings.Repeat("0f", 32)
	for name, text := range map[string]string{
		"none": "", "no algorithm": digits, "another one": "sha512:" + digits, "short": "sha256:" + digits[1:], "long": "sha256:" + digits + "0",
		"upper case": "sha256:" + strings.ToUpper(digits), "not hexadecimal": "sha256:" + digits[:63] + "g",
	} {
		if d, err := ParseDigest(text); err == nil {
			t.Errorf("%s: %v", name, d)
		}
	}
}
