package store

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// world is what a store is compared with: the memory that a device has given, and what each client believes.
type world struct {
	memory  map[ID]share.Bytes     // that has been created and not released
	readers map[ID]map[Client]bool // who was told to read an entry, and has not ended
	writers map[ID]Client          // who put an entry
	wrong   map[ID]bool            // whose contents have another digest than their key
	waiting []ID                   // that are being verified
}

func (w *world) release(t *testing.T, dropped []Entry) {
	t.Helper()
	for _, e := range dropped {
		if _, ok := w.memory[e.ID]; !ok {
			t.Fatalf("entry %d was dropped twice", e.ID)
		}
		if len(w.readers[e.ID]) > 0 {
			t.Fatalf("entry %d was dropped in use by %v", e.ID, w.readers[e.ID])
		}
		delete(w.memory, e.ID)
	}
}

// check compares what the store says with the memory that was created for it.
func (w *world) check(t *testing.T, s *Store, capacity share.Bytes) {
	t.Helper()
	var sum share.Bytes
	for _, bytes := range w.memory {
		sum += bytes
	}
	if sum != s.used || sum > capacity {
		t.Fatalf("%d bytes of memory, the store says %d, it may have %d", sum, s.used, capacity)
	}
	entries, seen := s.Entries(), map[Key]bool{}
	for _, e := range entries {
		if w.memory[e.ID] != e.Size || seen[e.Key] {
			t.Fatalf("%+v has %d bytes of memory, or is there twice", e, w.memory[e.ID])
		}
		seen[e.Key] = true
		if e.State == Committed && w.wrong[e.ID] {
			t.Fatalf("%+v is committed with another digest", e)
		}
	}
	for c := range Client(6) {
		writes := slices.ContainsFunc(entries, func(e Entry) bool { return e.State == Writing && w.writers[e.ID] == c })
		if s.Writes(c) != writes {
			t.Fatalf("client %d writes: %t, want %t", c, !writes, writes)
		}
	}
	if len(seen) != len(w.memory) {
		t.Fatalf("%d entries, memory for %d", len(seen), len(w.memory))
	}
}

// step does something at random.
func (w *world) step(t *testing.T, s *Store, random *rand.Rand) {
	t.Helper()
	c, k := Client(random.IntN(6)), key(byte(random.IntN(8)))
	switch random.IntN(8) {
	case 0:
		if err := s.Open(c, team); err != nil {
			t.Fatal(err)
		}
	case 1, 2:
		if e, err := s.Get(c, k); err == nil {
			if e.State != Committed {
				t.Fatalf("client %d reads %+v", c, e)
			}
			w.readers[e.ID][c] = true
		}
	case 3, 4:
		if e, dropped, err := s.Put(c, k, share.Bytes(random.Int64N(int64(9*share.MiB)))); err == nil {
			w.release(t, dropped)
			w.memory[e.ID], w.readers[e.ID], w.wrong[e.ID] = e.Size, map[Client]bool{}, random.IntN(4) == 0
			w.writers[e.ID] = c
		}
	case 5:
		if e, err := s.Commit(c, k); err == nil {
			w.waiting = append(w.waiting, e.ID)
		}
	case 6:
		w.verify(t, s, random)
	case 7:
		for _, readers := range w.readers {
			delete(readers, c)
		}
		w.release(t, s.Close(c))
		w.release(t, s.Evict(share.Bytes(random.Int64N(int64(3*share.MiB)))-share.MiB))
	}
}

// verify answers one of the entries that wait for it.
func (w *world) verify(t *testing.T, s *Store, random *rand.Rand) {
	t.Helper()
	if len(w.waiting) == 0 {
		return
	}
	i := random.IntN(len(w.waiting))
	id := w.waiting[i]
	w.waiting = append(w.waiting[:i], w.waiting[i+1:]...)
	found := Digest{0xff}
	for _, e := range s.Entries() {
		if e.ID == id && !w.wrong[id] {
			found = e.Key.Digest
		}
	}
	e, err := s.Verified(id, found)
	if (err != nil) != w.wrong[id] {
		t.Fatalf("entry %d, wrong %v: %v", id, w.wrong[id], err)
	}
	if err != nil {
		w.release(t, []Entry{e})
	}
}

// TestRandom lets clients do what they like in any order: the memory is always that of the entries, within the store's capacity, is never dropped in
// use, and when all have ended the store can drop everything.
func TestRandom(t *testing.T) {
	const capacity = 20 * share.MiB
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 1))
		s := New(team, capacity)
		w := &world{memory: map[ID]share.Bytes{}, readers: map[ID]map[Client]bool{}, writers: map[ID]Client{}, wrong: map[ID]bool{}}
		for range 300 {
			w.step(t, s, random)
			w.check(t, s, capacity)
		}
		for c := range Client(6) {
			w.readers = map[ID]map[Client]bool{}
			w.release(t, s.Close(c))
		}
		for len(w.waiting) > 0 {
			w.verify(t, s, random)
		}
		w.release(t, s.Evict(capacity))
		w.check(t, s, capacity)
		if s.used != 0 {
			t.Fatalf("seed %d: %d bytes are left: %+v", seed, s.used, s.Entries())
		}
	}
}
