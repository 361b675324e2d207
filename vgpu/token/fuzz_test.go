package token

import (
	"testing"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// FuzzEvents calls a slice with events in any order, including unknown members, invalid values and times that go backwards. Each
// event has four bytes: its kind, member, time and amount. Nothing may panic, live tokens never exceed the slice, and no member
// holds two tokens.
func FuzzEvents(f *testing.F) {
	f.Add(byte(0), []byte{0, 1, 1, 60, 1, 1, 0, 0, 0, 2, 0, 90, 1, 2, 5, 0, 5, 0, 90, 0, 4, 1, 3, 9, 5, 0, 200, 0})
	f.Add(byte(1), []byte{0, 1, 1, 200, 1, 1, 0, 0, 0, 2, 0, 201, 1, 2, 5, 0, 5, 0, 9, 0, 3, 1, 255, 0, 2, 2, 0, 0})
	f.Add(byte(2), []byte{1, 9, 9, 9, 5, 5, 5, 5, 4, 0, 255, 255})
	f.Add(byte(3), []byte{0, 3, 0, 255, 1, 3, 0, 0, 5, 0, 127, 0, 3, 3, 0, 0, 0, 3, 0, 1})
	f.Add(byte(0), []byte("07000%000000&0007701")) // reports open work long after it had a token
	f.Fuzz(func(t *testing.T, policy byte, events []byte) {
		s, err := New(Config{Policy: policies[int(policy)%len(policies)], Reserve: share.PerMille(policy)})
		if err != nil {
			t.Fatal(err)
		}
		live := map[ID]share.PerMille{}
		now, last := time.Duration(0), uint64(0)
		for ; len(events) >= 4; events = events[4:] {
			now += (time.Duration(events[2]) - 100) * ms / 7
			fuzzEvent(s, live, now, events)
			changes, next := s.Advance(now)
			if next <= s.now {
				t.Fatalf("at %v wants to be called at %v", s.now, next)
			}
			last = fuzzChanges(t, s, live, changes, last)
		}
	})
}

func fuzzEvent(s *Slice, live map[ID]share.PerMille, now time.Duration, e []byte) {
	id := ID(e[1] % 8)
	amount := share.PerMille(e[3]) * 4
	switch e[0] % 8 {
	case 0:
		_ = s.Join(now, Member{id, amount + 7, amount/2 + share.PerMille(e[1]), amount + share.PerMille(e[1])})
	case 1:
		_ = s.RequestToken(now, id)
	case 2:
		_ = s.ReleaseToken(now, id)
	case 3:
		if s.Leave(now, id) == nil {
			delete(live, id)
		}
	case 4:
		_ = s.Settle(now, id, (time.Duration(e[3])-20)*ms/3)
	case 7:
		_ = s.ReportOpenWork(now, id, OpenWork(e[3]%3))
	case 6:
		_ = s.RequestToken(Never-time.Duration(e[3]), id)
	}
}

func fuzzChanges(t *testing.T, s *Slice, live map[ID]share.PerMille, changes []Change, last uint64) uint64 {
	t.Helper()
	for _, c := range changes {
		_, was := live[c.ID]
		if was == (c.Kind == Grant) {
			t.Fatalf("%+v, live %v", c, was)
		}
		if c.Kind == Revoke {
			delete(live, c.ID)
			continue
		}
		if at, ok := s.members.find(c.ID); ok {
			live[c.ID] = s.members[at].SM
		}
		if c.Token.Amount <= 0 || c.Token.Deadline != s.now+time.Duration(c.Token.Amount) {
			t.Fatalf("token %+v at %v", c.Token, s.now)
		}
		last = max(last, c.Token.Sequence)
	}
	sum := share.PerMille(0)
	for _, sm := range live {
		sum += sm
	}
	if sum > share.Whole {
		t.Fatalf("live tokens hold %v SMs", sum)
	}
	return last
}
