// Package store makes the decisions of a slice's model store: which weights it has, who may write and read them, and which are dropped when
// memory is needed. A store belongs to one namespace. Its clients are connections, and a connection is a lease: what a client uses is not
// dropped until its connection ends.
//
// Weights are written once. The first client that asks for absent weights becomes their writer. When it commits them, their digest is
// verified, and from then on they can only be read. If a writer ends before it commits, its weights are dropped.
package store

import (
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// Granularity is the unit of physical device memory that can be exported; sizes are rounded up to it.
const Granularity = 2 * share.MiB

// MaxEntries is the maximum number of entries in a store. Each takes at least Granularity; the bound exists because operations take longer
// the more entries there are.
const MaxEntries = 1024

// Digest is the SHA-256 of weights as they lie in device memory.
type Digest [32]byte

// Key names weights within the store's namespace.
type Key struct {
	Digest Digest
	Layout string // how they lie in memory: what else a reader must agree on, such as which part of a split model; may be empty
}

func (k Key) String() string {
	if k.Layout == "" {
		return k.Digest.String()
	}
	return k.Digest.String() + " (" + k.Layout + ")"
}

// Client identifies a connection. Numbers are not reused.
type Client int64

// ID identifies an entry of the store. Numbers are not reused: weights that are stored again get another one.
type ID int64

// State is a stage in the life of an entry.
type State int

// The states, in the order in which an entry passes through them.
const (
	Writing   State = iota // one client may write it, and none may read it
	Verifying              // its digest is being computed
	Committed              // it may be read, but no longer written
)

func (s State) String() string { return [...]string{"writing", "verifying", "committed"}[s] }

// Entry describes weights in the store.
type Entry struct {
	ID    ID
	Key   Key
	State State
	Bytes share.Bytes // size of the weights
	Size  share.Bytes // device memory that they take: Bytes, rounded up to Granularity
	Users int         // number of clients with a lease of it

	Writer Client // valid while the state is Writing
}

type entry struct {
	Entry
	users map[Client]bool
	used  int64 // number of the store's event in which a client last began or ceased to use it
}

// The reasons why a store refuses a request.
var (
	ErrNamespace = errors.New("the store belongs to another namespace")
	ErrClient    = errors.New("the connection has not been opened")
	ErrAbsent    = errors.New("the store does not have these weights")
	ErrBusy      = errors.New("another client is storing these weights")
	ErrPresent   = errors.New("the store has these weights already")
	ErrSize      = errors.New("the size is not positive, or more than the store may have")
	ErrFull      = errors.New("the weights in use leave no room for these")
	ErrWriter    = errors.New("only the client that stores the weights may commit them, and once")
	ErrDigest    = errors.New("the weights have another digest than they were stored under")
)

// Store is the state of a store. It is not safe for concurrent use.
type Store struct {
	namespace string
	capacity  share.Bytes
	limits    map[Digest]share.Bytes // nil: only capacity limits
	held      map[Digest]share.Bytes // deducted from the limits; see Limit
	used      share.Bytes
	clients   map[Client]int // open clients, with how many entries each is writing
	entries   map[Key]*entry
	next      ID
	events    int64
}

// New returns an empty store of a namespace. Its weights may take up to capacity of device memory.
func New(namespace string, capacity share.Bytes) *Store {
	return &Store{namespace: namespace, capacity: capacity, clients: map[Client]int{}, entries: map[Key]*entry{}}
}

// Open admits a client, whose namespace the kernel and the agent have established. It returns ErrNamespace if the store belongs to another
// one.
func (s *Store) Open(c Client, namespace string) error {
	if namespace == "" || namespace != s.namespace {
		return ErrNamespace
	}
	s.clients[c] += 0 // keeps the count of a client that is open already
	return nil
}

func (s *Store) isOpen(c Client) bool {
	_, ok := s.clients[c]
	return ok
}

// Writes reports whether a client is the writer of weights that it has not committed.
func (s *Store) Writes(c Client) bool { return s.clients[c] > 0 }

// Get gives a client a lease of weights. It returns ErrClient, ErrAbsent or, while the weights are not committed, ErrBusy.
func (s *Store) Get(c Client, k Key) (Entry, error) {
	e := s.entries[k]
	switch {
	case !s.isOpen(c):
		return Entry{}, ErrClient
	case e == nil:
		return Entry{}, ErrAbsent
	case e.State != Committed:
		return Entry{}, ErrBusy
	}
	s.touch(e)
	e.users[c] = true
	return e.view(), nil
}

// Put makes a client the writer of absent weights. It also returns the entries that were dropped to make room; the caller must release
// their memory before it creates the new entry's. Errors are ErrClient, ErrPresent, ErrBusy, ErrSize and ErrFull; in that case nothing is
// dropped.
func (s *Store) Put(c Client, k Key, bytes share.Bytes) (_ Entry, dropped []Entry, _ error) {
	e := s.entries[k]
	switch {
	case !s.isOpen(c):
		return Entry{}, nil, ErrClient
	case e != nil && e.State == Committed:
		return Entry{}, nil, ErrPresent
	case e != nil:
		return Entry{}, nil, ErrBusy
	case bytes <= 0 || bytes > math.MaxInt64-Granularity:
		return Entry{}, nil, ErrSize
	}
	size := (bytes + Granularity - 1) / Granularity * Granularity
	if err := s.checkLimit(k.Digest, size); err != nil {
		return Entry{}, nil, err
	}
	if size > s.capacity {
		return Entry{}, nil, ErrSize
	}
	evictable, missing := s.Evictable(), s.used-(s.capacity-size)
	if len(s.entries) >= MaxEntries {
		missing = max(missing, 1) // one entry has to go
	}
	if missing > evictable {
		return Entry{}, nil, ErrFull
	}
	dropped = s.Evict(missing)
	s.next++
	e = &entry{Entry: Entry{ID: s.next, Key: k, Bytes: bytes, Size: size, Writer: c}, users: map[Client]bool{c: true}}
	s.entries[k] = e
	s.clients[c]++
	s.used += size
	s.touch(e)
	return e.view(), dropped, nil
}

// Commit ends the writing of an entry. The caller must then compute the entry's digest and call Verified. Errors are ErrAbsent and
// ErrWriter.
func (s *Store) Commit(c Client, k Key) (Entry, error) {
	e := s.entries[k]
	switch {
	case e == nil:
		return Entry{}, ErrAbsent
	case e.State != Writing || e.Writer != c:
		return Entry{}, ErrWriter
	}
	s.clients[c]--
	e.State, e.Writer = Verifying, 0
	return e.view(), nil
}

// Verified reports to the store which digest an entry in the state Verifying was found to have. If it matches the entry's key, the entry is
// committed. Otherwise the entry is dropped, the caller must release its memory, and the error is ErrDigest. The error is ErrAbsent if no
// such entry is being verified.
func (s *Store) Verified(id ID, found Digest) (Entry, error) {
	for _, e := range s.entries {
		if e.ID != id || e.State != Verifying {
			continue
		}
		if found != e.Key.Digest {
			s.drop(e)
			return e.view(), ErrDigest
		}
		e.State = Committed
		s.touch(e)
		return e.view(), nil
	}
	return Entry{}, ErrAbsent
}

// Discard drops an entry that is not committed, because its memory could not be created or its digest could not be computed. The error is
// ErrAbsent.
func (s *Store) Discard(id ID) (Entry, error) {
	for _, e := range s.entries {
		if e.ID == id && e.State != Committed {
			s.drop(e)
			return e.view(), nil
		}
	}
	return Entry{}, ErrAbsent
}

// Close ends a client and its leases. It returns the entries that the client was still writing, which are dropped.
func (s *Store) Close(c Client) (dropped []Entry) {
	delete(s.clients, c)
	for _, e := range s.sorted(func(e *entry) bool { return e.users[c] }) {
		if e.State == Writing { // its only user is the writer
			s.drop(e)
			dropped = append(dropped, e.view())
			continue
		}
		delete(e.users, c)
		s.touch(e)
	}
	return dropped
}

// Evict drops committed entries without users, least recently used first, until the given amount of memory has been freed or no such entry
// is left. It returns what it dropped. It drops nothing if bytes is not positive.
func (s *Store) Evict(bytes share.Bytes) (dropped []Entry) {
	if bytes <= 0 {
		return nil
	}
	for _, e := range s.sorted((*entry).evictable) {
		if bytes <= 0 {
			break
		}
		s.drop(e)
		bytes -= e.Size
		dropped = append(dropped, e.view())
	}
	return dropped
}

// Evictable returns the device memory of the entries that Evict may drop.
func (s *Store) Evictable() (sum share.Bytes) {
	for _, e := range s.entries {
		if e.evictable() {
			sum += e.Size
		}
	}
	return sum
}

// Entries returns all entries, least recently used first.
func (s *Store) Entries() (all []Entry) {
	for _, e := range s.sorted(func(*entry) bool { return true }) {
		all = append(all, e.view())
	}
	return all
}

func (e *entry) evictable() bool { return e.State == Committed && len(e.users) == 0 }

func (e *entry) view() Entry {
	v := e.Entry
	v.Users = len(e.users)
	return v
}

func (s *Store) touch(e *entry) {
	s.events++
	e.used = s.events
}

func (s *Store) drop(e *entry) {
	if e.State == Writing && s.isOpen(e.Writer) {
		s.clients[e.Writer]--
	}
	s.used -= e.Size
	delete(s.entries, e.Key)
}

// sorted returns the entries for which include is true, least recently used first.
func (s *Store) sorted(include func(*entry) bool) (all []*entry) {
	for _, e := range s.entries {
		if include(e) {
			all = append(all, e)
		}
	}
	slices.SortFunc(all, func(a, b *entry) int { return cmp.Or(cmp.Compare(a.used, b.used), cmp.Compare(a.ID, b.ID)) })
	return all
}

// ParseDigest parses a digest with its algorithm: sha256: and 64 lower-case hexadecimal digits.
func ParseDigest(text string) (d Digest, _ error) {
	digits, ok := strings.CutPrefix(text, "sha256:")
	if !ok || len(digits) != 2*len(d) || strings.ToLower(digits) != digits {
		return d, fmt.Errorf("digest %.100q: want sha256: and 64 hexadecimal digits in lower case", text)
	}
	if _, err := hex.Decode(d[:], []byte(digits)); err != nil {
		return d, fmt.Errorf("digest %.100q: %w", text, err)
	}
	return d, nil
}

// String returns the digest in the form that ParseDigest parses.
func (d Digest) String() string { return "sha256:" + hex.EncodeToString(d[:]) }
