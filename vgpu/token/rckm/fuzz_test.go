package rckm

import (
	"testing"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
	"github.com/gshare-dev/gshare/vgpu/token"
)

// FuzzSlice plays events in any order, including invalid reports and jumps of time. After each tick every member has between one
// block and its limit (without a bound under the printed algorithm), the server's state is right, and equal inputs give equal
// outputs.
func FuzzSlice(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, false)
	f.Add([]byte("some members come and go, launch and wait"), true)
	f.Fuzz(func(t *testing.T, script []byte, printed bool) {
		var c Config
		if printed {
			c.Algorithm = Printed
		}
		a, b := newMachine(t, c), newMachine(t, c)
		now := time.Duration(0)
		for len(script) >= 4 {
			now += time.Duration(script[0]) * time.Duration(script[0]) * 100 * time.Microsecond
			eventOf(a, now, script)
			eventOf(b, now, script)
			first, second := a.advance(now), b.advance(now)
			if len(first) != len(second) || len(first) > 0 && first[0] != second[0] {
				t.Fatalf("%v and %v", first, second)
			}
			check(t, a, first, printed)
			script = script[4:]
		}
	})
}

func eventOf(m *machine, now time.Duration, script []byte) {
	id := token.ID(script[1] % 4)
	amount := int64(script[2]) << (script[3] % 56)
	switch script[1] / 4 % 8 {
	case 0:
		request := share.PerMille(1 + int(script[2])*3)
		_ = m.Join(now, Member{ID: id, Priority: [...]share.Priority{share.SLO, share.BestEffort}[script[3]%2],
			Request: request, Limit: min(share.Whole, request+share.PerMille(script[3])), MaxTokens: int64(script[3]) % 64 * 100})
	case 1:
		_ = m.Leave(now, id)
	case 2:
		_ = m.Resize(now, id, share.PerMille(script[2])*4)
	default:
		_ = m.Report(now, id, Launches{Blocks: amount, First: now - time.Duration(script[3])*ms, Last: now - time.Duration(script[2])*ms, Busy: script[3]%3 == 0, Device: time.Duration(amount), Batch: time.Duration(script[3]/8) * ms})
	}
}

func check(t *testing.T, m *machine, changes []token.Change, printed bool) {
	t.Helper()
	for _, c := range changes {
		if (c.Kind == token.Revoke) != (c.Token.Amount == 0) {
			t.Fatalf("%+v", c)
		}
	}
	for _, member := range m.members {
		if member.last < 1 || member.hasToken != (member.balance > 0) || member.balance > max(member.last, 0) {
			t.Fatalf("%+v", member)
		}
		if limit := member.blocksOf(member.cap); !printed && member.MaxTokens > 0 && member.last > limit {
			t.Fatalf("member %d has %d of %d", member.ID, member.last, limit)
		}
	}
	if p := m.Pressure(); !printed && p.State == Emergency && p.Severity < recoveredRatio {
		t.Fatalf("%+v", p)
	}
	if m.next <= m.now {
		t.Fatalf("at %v it wants to be called at %v", m.now, m.next)
	}
}
