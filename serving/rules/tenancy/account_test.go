package tenancy

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// one is what a pod of these tests holds.
var one = Amount{Replicas: 1, Area: 1, Memory: 1}

func TestAccount(t *testing.T) {
	p, q := Pod{"ml", "a-1"}, Pod{"ml", "b-1"}
	start := time.Unix(0, 0)
	limits := []Limit{{Policy: "gold", Replicas: new(1)}}
	taken := func(a *Account, p Pod) bool { return len(a.Reserve(p, one, limits, start)) == 0 }
	for name, test := range map[string]struct {
		do   func(*Account)
		held int
		room bool // for q
	}{
		"nothing":                        {func(*Account) {}, 0, true},
		"reserved":                       {func(a *Account) { taken(a, p) }, 1, false},
		"reserved twice":                 {func(a *Account) { taken(a, p); taken(a, p) }, 1, false},
		"released":                       {func(a *Account) { taken(a, p); a.Release(p) }, 0, true},
		"refused after no answer":        {func(a *Account) { taken(a, p); taken(a, p); a.Release(p) }, 1, false},
		"forgotten after no answer":      {func(a *Account) { taken(a, p); taken(a, p); a.Forget(p) }, 0, true},
		"of another namespace":           {func(a *Account) { taken(a, Pod{"other", "a-1"}) }, 0, true},
		"created":                        {func(a *Account) { taken(a, p); a.Created(p, "1") }, 1, false},
		"created and seen":               {func(a *Account) { taken(a, p); a.Created(p, "1"); a.Seen(p, "1", one) }, 1, false},
		"seen before it is created":      {func(a *Account) { taken(a, p); a.Seen(p, "1", one); a.Created(p, "1") }, 1, false},
		"created and gone":               {func(a *Account) { taken(a, p); a.Created(p, "1"); a.Seen(p, "1", one); a.Gone(p, "1") }, 0, true},
		"gone and never seen":            {func(a *Account) { taken(a, p); a.Created(p, "1"); a.Gone(p, "1") }, 0, true},
		"seen":                           {func(a *Account) { a.Seen(p, "1", one) }, 1, false},
		"one of before is gone":          {func(a *Account) { a.Seen(p, "2", one); a.Gone(p, "1") }, 1, false},
		"the name again":                 {func(a *Account) { a.Seen(p, "1", one); taken(a, p) }, 1, false},
		"the name again, the first gone": {func(a *Account) { a.Seen(p, "1", one); taken(a, p); a.Gone(p, "1") }, 1, false},
		"the name again, the first seen": {func(a *Account) {
			a.Seen(p, "1", one)
			taken(a, p)
			a.Created(p, "2")
			a.Seen(p, "1", one)
			a.Gone(p, "1")
		}, 1, false},
		"the name again, then gone": {func(a *Account) {
			a.Seen(p, "1", one)
			taken(a, p)
			a.Created(p, "2")
			a.Gone(p, "1")
			a.Seen(p, "2", one)
			a.Gone(p, "2")
		}, 0, true},
		"created without a reservation": {func(a *Account) { a.Created(p, "1") }, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			a := NewAccount()
			test.do(a)
			if got := a.Held("ml"); got != (Amount{test.held, share.Area(test.held), MiB(test.held)}) {
				t.Errorf("held %+v, want that of %d", got, test.held)
			}
			if got := taken(a, q); got != test.room {
				t.Errorf("room for another: %v", got)
			}
		})
	}
}

func TestUnconfirmed(t *testing.T) {
	a, start := NewAccount(), time.Unix(100, 0)
	p := Pod{"ml", "a-1"}
	a.Seen(Pod{"ml", "b-1"}, "1", one)
	a.Reserve(p, one, nil, start)
	if got := a.Unconfirmed(start); len(got) > 0 {
		t.Errorf("%v at once", got)
	}
	later := start.Add(time.Second)
	if got := a.Unconfirmed(later); len(got) != 1 || got[0] != p {
		t.Errorf("%v, want %v", got, p)
	}
	a.Created(p, "2")
	a.Seen(p, "2", one)
	if got := a.Unconfirmed(later); len(got) > 0 {
		t.Errorf("%v although it was seen", got)
	}
}

// simulation is an API server whose pods are seen late, and one that creates them by the account.
type simulation struct {
	account  *Account
	random   *rand.Rand
	limits   []Limit
	pods     map[Pod]string // UIDs of those that there are
	amounts  map[string]Amount
	unseen   []func() // what happened, in order
	answers  []func() // of requests to create, in any order
	last     int
	creating map[Pod]bool
}

// create asks for a pod. The API server may take the request or not, and its answer may be lost.
func (s *simulation) create(p Pod, amount Amount) {
	if s.creating[p] || len(s.account.Reserve(p, amount, s.limits, time.Unix(0, 0))) > 0 {
		return
	}
	s.creating[p] = true
	lost, refused := s.random.IntN(8) == 0, s.random.IntN(8) == 0
	if s.pods[p] != "" || refused {
		exists := s.pods[p]
		s.answers = append(s.answers, func() {
			s.creating[p] = false
			switch {
			case exists != "" && !refused:
				s.account.Created(p, exists)
			case !lost:
				s.account.Release(p)
			}
		})
		return
	}
	s.last++
	uid := fmt.Sprint(s.last)
	s.pods[p], s.amounts[uid] = uid, amount
	s.unseen = append(s.unseen, func() { s.account.Seen(p, uid, amount) })
	s.answers = append(s.answers, func() {
		s.creating[p] = false
		if !lost {
			s.account.Created(p, uid)
		}
	})
}

// TestAccountIsNeverBehind creates and deletes pods in random orders, with events that come late, answers that come after them and answers that are
// lost: no namespace ever has more than its limits, and in the end the account holds what there is.
func TestAccountIsNeverBehind(t *testing.T) {
	for seed := range uint64(2000) {
		random := rand.New(rand.NewPCG(seed, 0))
		s := &simulation{account: NewAccount(), random: random, pods: map[Pod]string{}, amounts: map[string]Amount{}, creating: map[Pod]bool{}}
		s.limits = []Limit{{Policy: "gold", Replicas: new(random.IntN(4)), Memory: new(MiB(random.IntN(8)))}}
		for range 200 {
			p := Pod{"ml", fmt.Sprint(random.IntN(6))}
			switch random.IntN(5) {
			case 0, 1:
				s.create(p, Amount{Replicas: 1, Memory: MiB(1 + random.IntN(3))})
			case 2:
				if uid := s.pods[p]; uid != "" {
					delete(s.pods, p)
					s.unseen = append(s.unseen, func() { s.account.Gone(p, uid) })
				}
			case 3:
				if len(s.unseen) > 0 {
					s.unseen[0]()
					s.unseen = s.unseen[1:]
				}
			case 4:
				if n := len(s.answers); n > 0 {
					at := random.IntN(n)
					s.answers[at]()
					s.answers = append(s.answers[:at], s.answers[at+1:]...)
				}
			}
			if there := s.there(); there.Replicas > *s.limits[0].Replicas || there.Memory > *s.limits[0].Memory {
				t.Fatalf("seed %d: %+v are there, more than %d and %d", seed, there, *s.limits[0].Replicas, *s.limits[0].Memory)
			} else if held := s.account.Held("ml"); greater(held, there) != held {
				t.Fatalf("seed %d: %+v are there, and the account has %+v", seed, there, held)
			}
		}
		for _, happens := range append(s.answers, s.unseen...) {
			happens()
		}
		for _, p := range s.account.Unconfirmed(time.Unix(1, 0)) {
			if uid := s.pods[p]; uid == "" {
				s.account.Forget(p)
			} else {
				s.account.Created(p, uid)
			}
		}
		if held, there := s.account.Held("ml"), s.there(); held != there {
			t.Fatalf("seed %d: the account has %+v in the end, want %+v", seed, held, there)
		}
	}
}

func (s *simulation) there() (sum Amount) {
	for _, uid := range s.pods {
		sum = sum.Plus(s.amounts[uid])
	}
	return sum
}
