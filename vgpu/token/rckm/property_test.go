package rckm

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
	"github.com/gshare-dev/gshare/vgpu/token"
)

// random returns a slice with some members whose loads start and stop. Their requests fit together.
func random(t *testing.T, r *rand.Rand, length time.Duration) (*machine, []Member) {
	t.Helper()
	m := newMachine(t, Config{})
	m.kernel = 1 + r.Int64N(300)
	var members []Member
	for id := range token.ID(2 + r.IntN(3)) {
		request := share.PerMille(50 + r.IntN(200))
		member := Member{ID: id, Priority: share.BestEffort, Request: request, Limit: request + share.PerMille(r.IntN(300)), MaxTokens: 1000}
		if r.IntN(2) == 0 {
			member.Priority = share.SLO
		}
		members = append(members, member)
		batch := time.Duration(r.IntN(2)) * time.Duration(5+r.IntN(20)) * ms // half of the hosts report batches
		if err := m.Join(0, member); err != nil {
			t.Fatal(err)
		}
		for at := time.Duration(0); at < length; {
			from := at + time.Duration(r.Int64N(int64(100*ms)))
			at = from + time.Duration(r.Int64N(int64(80*ms)))
			m.loads = append(m.loads, load{id, r.Int64N(2000), from, at, batch})
		}
	}
	m.advance(0)
	return m, members
}

// TestLimit checks that in any run of ticks no member launches more than its limit is worth, plus one kernel. As a control, clients
// that ignore their credit do.
func TestLimit(t *testing.T) {
	wild := int64(0)
	for seed := range uint64(60) {
		if over := overLimit(t, seed, false); over > 0 {
			t.Errorf("seed %d: %d blocks over a limit and a kernel", seed, over)
		}
		wild = max(wild, overLimit(t, seed, true))
	}
	if wild <= 0 {
		t.Error("clients without credit stay within their limits: the check sees nothing")
	}
}

// overLimit returns by how much a member exceeds its limit and one kernel, in the worst run of ticks.
func overLimit(t *testing.T, seed uint64, wild bool) int64 {
	t.Helper()
	m, members := random(t, rand.New(rand.NewPCG(seed, 0)), time.Second)
	m.wild = wild
	worst, excess := map[token.ID]int64{}, -m.kernel // worst: beyond the limit in the runs of ticks that end now
	m.until(time.Second, func(time.Duration) {
		for _, member := range members {
			worst[member.ID] = max(0, worst[member.ID]) + m.launched[member.ID] - int64(member.Limit)
			m.launched[member.ID] = 0
			excess = max(excess, worst[member.ID]-m.kernel)
		}
	})
	return excess
}

// TestOwners checks that the slice is in EMERGENCY as long as one of its members is, and that only the own cycles, silence or death
// of that member end it. Best effort always has tokens or pays a debt.
func TestOwners(t *testing.T) {
	emergencies := 0
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 1))
		m, _ := random(t, r, 2*time.Second)
		m.kernel = 0
		before := map[token.ID]State{}
		m.until(2*time.Second, func(now time.Duration) {
			worst := Recovery
			for _, member := range m.members {
				if member.Priority == share.BestEffort && member.last < 1 {
					t.Fatalf("seed %d: member %d has no tokens at %v", seed, member.ID, now)
				}
				if member.Priority != share.SLO {
					continue
				}
				worst = max(worst, member.state)
				ratio, stretch := member.cycles.ratios()
				if before[member.ID] == Emergency && member.state != Emergency && !member.isQuiet() && ratio >= violationRatio && stretch >= recoveredRatio {
					t.Fatalf("seed %d: at %v member %d left its EMERGENCY at a ratio of %d", seed, now, member.ID, ratio)
				}
				before[member.ID] = member.state
			}
			if got := m.Pressure(); len(m.members) > 1 && got.State != worst {
				t.Fatalf("seed %d: the slice is in %v at %v, want %v", seed, got.State, now, worst)
			}
			if worst == Emergency {
				emergencies++
			}
		})
	}
	if emergencies < 100 {
		t.Errorf("only %d ticks in EMERGENCY: the loads test nothing", emergencies)
	}
}

// newPair returns an SLO share, 1, beside a best-effort share, 2, with the given request and the given number of blocks that fill the slice.
func newPair(t *testing.T, request share.PerMille, whole int64) *machine {
	t.Helper()
	m := newMachine(t, Config{})
	for _, member := range []Member{
		{ID: 1, Priority: share.SLO, Request: 300, Limit: 600, MaxTokens: whole},
		{ID: 2, Priority: share.BestEffort, Request: request, Limit: 900, MaxTokens: whole},
	} {
		if err := m.Join(0, member); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

// taught returns an SLO member with a reference, for cycles of 25 ms every 100 ms, beside a busy trainer.
func taught(t *testing.T) *machine {
	t.Helper()
	m := newPair(t, 500, 1000)
	m.loads = []load{{2, 1000, 0, 10 * time.Second, 0}}
	for k := range 20 {
		from := time.Duration(k) * 100 * ms
		m.loads = append(m.loads, load{1, 200, from, from + 25*ms, 0})
	}
	m.advance(0)
	m.until(2*time.Second, func(time.Duration) {})
	return m
}

// TestReaction checks that an SLO member in a burst always has its limit, that best effort is cut within three ticks of the
// violation, and that it has its limit again within a second after the burst.
func TestReaction(t *testing.T) {
	m := taught(t)
	from, to := 2*time.Second, 2100*ms
	m.loads = append(m.loads, load{1, 900, from, to, 0})
	var cut, back time.Duration
	m.until(5*time.Second, func(now time.Duration) {
		if now > from && m.grants[1] != 600 {
			t.Fatalf("at %v the owner has %d", now, m.grants[1])
		}
		if cut == 0 && m.grants[2] < 500 {
			cut = now
		}
		if now > to && back == 0 && m.grants[2] == 900 {
			back = now
		}
	})
	if late := cut - (from + 40*ms); late < 0 || late > 3*tick {
		t.Errorf("best effort was cut %v after the stretch of 1.6", late)
	}
	if after := back - to; after <= 0 || after > time.Second {
		t.Errorf("best effort had its limit again %v after the burstRatio", after)
	}
}

// TestDeath checks that an owner that leaves or falls silent does not keep the slice in EMERGENCY.
func TestDeath(t *testing.T) {
	for name, leaves := range map[string]bool{"leaves": true, "falls silent": false} {
		t.Run(name, func(t *testing.T) {
			m := taught(t)
			m.loads = append(m.loads, load{1, 900, 2 * time.Second, 2050 * ms, 0})
			m.until(2050*ms, func(time.Duration) {})
			if m.Pressure().State != Emergency {
				t.Fatal("there is no EMERGENCY")
			}
			if leaves {
				if err := m.Leave(2050*ms, 1); err != nil {
					t.Fatal(err)
				}
			}
			var released time.Duration
			m.until(3*time.Second, func(now time.Duration) {
				if released == 0 && m.Pressure().State != Emergency {
					released = now
				}
			})
			if late := released - 2050*ms; late <= 0 || late > (quietAfter+2)*tick || leaves && late > tick {
				t.Errorf("released after %v", late)
			}
		})
	}
}

// TestNobodyStarves checks that best effort launches something in every second of an endless burst, even with kernels larger than
// the tokens of a tick.
func TestNobodyStarves(t *testing.T) {
	for _, kernel := range []int64{0, 100, 5000, 1_000_000} {
		t.Run(fmt.Sprint(kernel), func(t *testing.T) {
			m := taught(t)
			m.kernel = kernel
			for k := range 200 { // batches of rising length keep the owner in its EMERGENCY
				from := 2*time.Second + time.Duration(k)*40*ms
				m.loads = append(m.loads, load{1, 1000, from, from + 39*ms + time.Duration(k)*100*time.Microsecond, 0})
			}
			m.launched[2] = 0
			for second := range 8 {
				m.until(time.Duration(3+second)*time.Second, func(time.Duration) {})
				if m.launched[2] == 0 {
					t.Errorf("nothing in second %d", 2+second)
				}
				m.launched[2] = 0
			}
		})
	}
}

// TestRestart checks that a new server blocks no member: all have tokens at once, and a member whose reports come late or all at
// once continues.
func TestRestart(t *testing.T) {
	m := newMachine(t, Config{})
	for id := range token.ID(3) {
		if err := m.Join(7*time.Hour, Member{ID: id, Priority: share.SLO, Request: 100, Limit: 200}); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range m.advance(7 * time.Hour) {
		if c.Kind != token.Grant || c.Token.Amount < 1 || c.Token.Unit != token.Blocks {
			t.Errorf("%+v, want a token", c)
		}
	}
	if len(m.credit) != 3 {
		t.Errorf("%d members have tokens", len(m.credit))
	}
	if err := m.Report(8*time.Hour, 1, Launches{Blocks: 1 << 62, Last: 9 * time.Hour}); err != nil {
		t.Fatal(err)
	}
	m.advance(8 * time.Hour)
	m.until(8*time.Hour+time.Second, func(time.Duration) {})
	if m.credit[1] < 1 {
		t.Errorf("member 1 is shut out with %d", m.credit[1])
	}
}

// TestFloor checks that best effort is never cut below a hundredth of its request.
func TestFloor(t *testing.T) {
	s, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	m := newMember(Member{ID: 1, Priority: share.BestEffort, Request: 500, Limit: 900, MaxTokens: 10_000})
	m.last = 1
	for state := Contention; state <= Emergency; state++ {
		s.pressure = Pressure{State: state, Severity: 3000}
		if got := s.bestEffortTokens(m); got != 50 {
			t.Errorf("%v leaves %d tokens of 5000", state, got)
		}
	}
}

// TestSuddenBurst checks a first cycle longer than four short batches, whose batches are slow: it is an EMERGENCY as severe as the cycle
// was long until it was above four times the reference. If its batches are not slow, it is none.
func TestSuddenBurst(t *testing.T) {
	for name, c := range map[string]struct {
		batch time.Duration
		want  State
	}{"slow": {1300 * us, Emergency}, "not slow": {1100 * us, None}} {
		t.Run(name, func(t *testing.T) {
			m := taught(t)
			for k := range 40 {
				from := 2*time.Second + time.Duration(k)*100*ms
				m.loads = append(m.loads, load{1, 200, from, from + 6*ms, ms})
			}
			m.loads = append(m.loads, load{1, 200, 8 * time.Second, 8100 * ms, c.batch})
			var got Pressure
			m.until(8100*ms, func(now time.Duration) {
				if p := m.Pressure(); now > 8*time.Second && p.State == Emergency && got.State == None {
					got = p
				}
			})
			if got.State != c.want || got.State == Emergency && (got.Owner != 1 || got.Severity != 2600) || m.grants[1] != 600 {
				t.Errorf("%+v, with %d tokens", got, m.grants[1])
			}
		})
	}
}

// TestSeverity checks that a larger severity leaves neighbours fewer tokens (D12). As the paper prints it, they have more than before
// up to a stretch of two.
func TestSeverity(t *testing.T) {
	for name, algorithm := range map[string]Algorithm{"corrected": nil, "printed": Printed} {
		t.Run(name, func(t *testing.T) {
			at := func(severity share.PerMille) int64 {
				s, err := New(Config{Algorithm: algorithm})
				if err != nil {
					t.Fatal(err)
				}
				m := newMember(Member{ID: 1, Priority: share.BestEffort, Request: 500, Limit: 900, MaxTokens: 1000})
				s.pressure = Pressure{State: Emergency, Severity: severity}
				if algorithm != nil {
					_, tokens := algorithm(s.pressure, []Observation{m.observation()})
					return tokens[0]
				}
				return s.bestEffortTokens(m)
			}
			for severity := share.PerMille(1600); severity < 1900; severity += 100 {
				if rises := at(severity) > 500; rises != (algorithm != nil) {
					t.Errorf("%d tokens of 500 at a stretch of %d", at(severity), severity)
				}
			}
			if at(3000) >= at(1600) {
				t.Error("a larger severity leaves more tokens")
			}
		})
	}
}

// TestCut checks that the cut depends on the severity and not on the number of ticks: repeating it changes nothing, and a share that
// already has less keeps what it has.
func TestCut(t *testing.T) {
	s, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	s.pressure = Pressure{State: Emergency, Severity: 1600}
	m := newMember(Member{ID: 1, Priority: share.BestEffort, Request: 1000, Limit: 1000, MaxTokens: 1000})
	for _, c := range []struct{ last, want int64 }{{800, 625}, {625, 625}, {100, 100}} {
		if m.last = c.last; s.tokensInEmergency(m) != c.want {
			t.Errorf("%d tokens after %d, want %d", s.tokensInEmergency(m), c.last, c.want)
		}
	}
}
