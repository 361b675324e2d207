package token

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

func TestConfig(t *testing.T) {
	for name, c := range map[string]Config{
		"policy":            {Policy: Queue{Name: "empty"}},
		"window, uneven":    {Window: 300 * ms},
		"window, short":     {Window: ms},
		"turn, long":        {Turn: 200 * ms},
		"turn, negative":    {Turn: -1},
		"floor above turn":  {Floor: 5*ms + 1},
		"floor, negative":   {Floor: -1},
		"reserve, negative": {Reserve: -1},
		"reserve, all":      {Reserve: 1000},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := New(c); err == nil {
				t.Errorf("%+v accepted", c)
			}
		})
	}
	for name, c := range map[string]Config{
		"the zero value": {}, "shortest window": {Window: 10 * ms}, "turn as long as the window": {Turn: 100 * ms}, "floor as long as the turn": {Floor: 5 * ms},
		"longest window": {Window: time.Second}, "most reserve": {Reserve: 999}, "shortest floor": {Floor: 1}, "shortest turn": {Turn: 1, Floor: 1},
	} {
		if _, err := New(c); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := New(Config{Window: 10*ms - 1}); err == nil {
		t.Error("a window below 10 ms is accepted")
	}
}

func TestMembers(t *testing.T) {
	s, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	for name, m := range map[string]Member{
		"no SMs":              {1, 0, 500, 500},
		"too many SMs":        {1, 1001, 500, 500},
		"negative quota":      {1, 500, -1, 500},
		"no limit":            {1, 500, 0, 0},
		"limit below request": {1, 500, 500, 400},
		"limit above all":     {1, 500, 500, 1001},
	} {
		t.Run(name, func(t *testing.T) {
			if s.Join(0, m) == nil {
				t.Errorf("%+v accepted", m)
			}
		})
	}
	if err := s.Join(0, Member{1, 600, 600, 600}); err != nil {
		t.Fatal(err)
	}
	if err := s.Join(0, Member{1, 100, 100, 100}); !errors.Is(err, ErrKnown) {
		t.Errorf("a second member 1: %v", err)
	}
	if err := s.Join(0, Member{2, 600, 600, 600}); !errors.Is(err, ErrDoesNotFit) {
		t.Errorf("120 %% of a window: %v", err)
	}
	for _, do := range []func(time.Duration, ID) error{s.Leave, s.RequestToken, s.ReleaseToken} {
		if err := do(0, 2); !errors.Is(err, ErrUnknown) {
			t.Errorf("unknown member: %v", err)
		}
	}
	if err := s.Settle(0, 2, ms); !errors.Is(err, ErrUnknown) {
		t.Errorf("unknown member: %v", err)
	}
}

// TestTimeGoesBackwards checks that time stands still when it goes backwards, and no member gains by it.
func TestTimeGoesBackwards(t *testing.T) {
	s, err := New(Config{Policy: Fast})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.Join(0, Member{1, 500, 500, 500}), s.RequestToken(10*ms, 1)); err != nil {
		t.Fatal(err)
	}
	changes, _ := s.Advance(5 * ms)
	if len(changes) != 1 || changes[0].Token.Deadline != 15*ms {
		t.Errorf("Advance = %+v, want a grant from 10 ms on", changes)
	}
}

// TestLongKernels checks kernels that are much longer than the quota: debt is bounded and paid in the end, so that the average is
// the request.
func TestLongKernels(t *testing.T) {
	ref, err := newReferee(Config{}, func() time.Duration { return 10 * ms })
	if err != nil {
		t.Fatal(err)
	}
	p := ref.join(Member{1, 600, 40, 40})
	ref.want(ref.join(Member{2, 600, 900, 900}), true)
	ref.want(p, true)
	ref.until(10 * time.Second)
	if got := p.got(0, ref.now); ref.fault != nil || got > 414*ms || got < 380*ms {
		t.Errorf("%v in 10 s, want 400 ms and at most one kernel more: %v", got, ref.fault)
	}
}

// TestIdleTimeBesideLongKernels checks that a share gets idle time up to its limit, whatever its kernels overrun, also beside a share whose quota is the whole
// window and that leaves enough SMs.
func TestIdleTimeBesideLongKernels(t *testing.T) {
	for _, limit := range []share.PerMille{400, 800} {
		for _, kernel := range []time.Duration{0, 12500 * time.Microsecond} {
			for _, busy := range []bool{false, true} {
				t.Run(fmt.Sprintf("limit %v, kernels of %v, other busy %v", limit, kernel, busy), func(t *testing.T) {
					ref, err := newReferee(Config{}, func() time.Duration { return kernel })
					if err != nil {
						t.Fatal(err)
					}
					ref.reports = true
					p, other := ref.join(Member{1, 240, 400, limit}), ref.join(Member{2, 300, 1000, 1000})
					ref.want(p, true)
					ref.want(other, busy)
					ref.until(10 * time.Second)
					want := 10 * time.Duration(limit) * ms
					if got := p.got(0, ref.now); ref.fault != nil || got < want || got > want+kernel+ms {
						t.Errorf("%v in 10 s, want %v and at most one kernel more: %v", got, want, ref.fault)
					}
				})
			}
		}
	}
}

// TestUntil checks that a token's Until is the end of the member's own time, beyond the turn that ends the token.
func TestUntil(t *testing.T) {
	s, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range []Member{{1, 500, 900, 900}, {2, 500, 450, 450}, {3, 500, 450, 450}} {
		if s.Join(0, m) != nil || s.RequestToken(0, m.ID) != nil {
			t.Fatalf("member %d", m.ID)
		}
	}
	var tokens []Token
	for now := time.Duration(0); now < 100*ms; {
		var changes []Change
		changes, now = s.Advance(now)
		for _, c := range changes {
			if c.ID == 1 && c.Kind != Revoke {
				tokens = append(tokens, c.Token)
			}
		}
	}
	if len(tokens) != 2 || tokens[0].Until != tokens[1].Deadline || tokens[1].Until != tokens[1].Deadline || tokens[0].Until == tokens[0].Deadline {
		t.Errorf("tokens of two consecutive turns: %+v", tokens)
	}
}

// TestFastAcceptsMore checks that a slice with FaST-GShare's queue accepts shares that no slot table holds, as its node has to accept what
// the scheduler binds.
func TestFastAcceptsMore(t *testing.T) {
	for name, want := range map[string]error{"table": ErrDoesNotFit, "fast": nil} {
		t.Run(name, func(t *testing.T) {
			policy, err := ParsePolicy(name)
			if err != nil {
				t.Fatal(err)
			}
			s, err := New(Config{Policy: policy})
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Join(0, Member{1, 600, 600, 600}); err != nil {
				t.Fatal(err)
			}
			if err := s.Join(0, Member{2, 600, 600, 600}); !errors.Is(err, want) {
				t.Errorf("got %v, want %v", err, want)
			}
		})
	}
}
