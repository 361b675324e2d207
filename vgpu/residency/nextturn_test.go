package residency_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/gshare-dev/gshare/vgpu/residency"
)

var turnPolicy = residency.TurnPolicy{For: 10 * time.Second, Idle: time.Second, Begin: time.Minute, Start: 30 * time.Second}

func TestNextTurn(t *testing.T) {
	const now = 100 * time.Second
	since := func(ago time.Duration) time.Duration { return now - ago }
	waits := func(id string, requests int, due time.Duration) residency.InTurn {
		return residency.InTurn{ID: id, Waiting: requests, Due: due, Used: 1}
	}
	has := func(s residency.Stage, ago time.Duration, requests int) residency.InTurn {
		return residency.InTurn{ID: "has", Stage: s, Since: since(ago), InFlight: requests, Used: 1}
	}
	loads := func(ago, allowed time.Duration) residency.InTurn {
		one := has(residency.Beginning, ago, 0)
		one.Begin = allowed
		return one
	}
	started := func(id string) residency.InTurn { return residency.InTurn{ID: id} }
	for name, test := range map[string]struct {
		all  []residency.InTurn
		want string // empty: nobody
	}{
		"none":                         {nil, ""},
		"nobody needs it":              {[]residency.InTurn{waits("a", 0, 0)}, ""},
		"one waits":                    {[]residency.InTurn{waits("a", 0, 0), waits("b", 1, 5)}, "b"},
		"due first":                    {[]residency.InTurn{waits("a", 9, 6), waits("b", 1, 5)}, "b"},
		"requests before a start":      {[]residency.InTurn{started("a"), waits("b", 1, 5)}, "b"},
		"a start":                      {[]residency.InTurn{waits("a", 0, 0), started("b"), started("c")}, "b"},
		"serves alone":                 {[]residency.InTurn{has(residency.Serving, time.Hour, 0), waits("a", 0, 0)}, "has"},
		"serves, another waits":        {[]residency.InTurn{has(residency.Serving, 9*time.Second, 1), waits("a", 1, 0)}, "has"},
		"has served":                   {[]residency.InTurn{has(residency.Serving, 10*time.Second, 1), waits("a", 1, 0)}, ""},
		"serves nobody, another waits": {[]residency.InTurn{has(residency.Serving, time.Second, 0), waits("a", 1, 0)}, ""},
		"has just come":                {[]residency.InTurn{has(residency.Serving, 0, 0), waits("a", 1, 0)}, "has"},
		"serves, another would start":  {[]residency.InTurn{has(residency.Serving, time.Hour, 1), started("a")}, "has"},
		"idle, another would start":    {[]residency.InTurn{has(residency.Serving, time.Second, 0), started("a")}, ""},
		"begins":                       {[]residency.InTurn{has(residency.Beginning, 59*time.Second, 0), waits("a", 1, 0)}, "has"},
		"does not get on":              {[]residency.InTurn{has(residency.Beginning, time.Minute, 0), waits("a", 1, 0)}, ""},
		"does not get on, alone":       {[]residency.InTurn{has(residency.Beginning, time.Hour, 0)}, "has"},
		"leaves":                       {[]residency.InTurn{has(residency.Leaving, time.Hour, 0), waits("a", 1, 0)}, ""},
		"leaves, alone":                {[]residency.InTurn{has(residency.Leaving, 0, 0)}, ""},
		"loads for long":               {[]residency.InTurn{loads(80*time.Second-1, 20*time.Second), waits("a", 1, 0)}, "has"},
		"has loaded for too long":      {[]residency.InTurn{loads(80*time.Second, 20*time.Second), waits("a", 1, 0)}, ""},
		"may load for days":            {[]residency.InTurn{loads(90*time.Second, 48*time.Hour), waits("a", 1, 0)}, ""},
		"two have it":                  {[]residency.InTurn{has(residency.Beginning, 0, 0), {ID: "a", Stage: residency.Serving, Since: now}}, "a"},
	} {
		t.Run(name, func(t *testing.T) {
			id, ok := residency.NextTurn(now, test.all, turnPolicy)
			if !ok {
				id = ""
			}
			if id != test.want {
				t.Errorf("%q, want %q", id, test.want)
			}
		})
	}
}

// TestEveryoneHasATurn has requests come for instances at random: one at a time has the turn, and nobody waits longer than all others may take theirs.
func TestEveryoneHasATurn(t *testing.T) {
	const instances, begin, leave = 5, 2 * time.Second, time.Second
	random := rand.New(rand.NewPCG(22, 46))
	turns, longest := 0, time.Duration(0)
	for range 50 {
		var all []residency.InTurn
		var waiting [instances]time.Duration // since when requests wait
		for i := range instances {
			all = append(all, residency.InTurn{ID: fmt.Sprint(i)})
		}
		for now := time.Second; now < 10*time.Minute; now += time.Second {
			having := 0
			for i := range all {
				a := &all[i]
				if random.IntN(60) == 0 && a.Waiting == 0 {
					a.Waiting, waiting[i] = 1+random.IntN(50), now
					a.Due = now + time.Duration(random.IntN(10))*time.Second
				}
				switch spent := now - a.Since; {
				case a.Stage == residency.Beginning && spent >= begin:
					a.Stage, a.Since = residency.Serving, now
				case a.Stage == residency.Serving:
					a.Waiting = max(0, a.Waiting-random.IntN(10))
				case a.Stage == residency.Leaving && spent >= leave:
					a.Stage, a.Since, a.Used = residency.Waiting, now, now
				}
				if a.Stage == residency.Serving || a.Waiting == 0 {
					waiting[i] = now
				}
				longest = max(longest, now-waiting[i])
				if a.Stage != residency.Waiting {
					having++
				}
			}
			if having > 1 {
				t.Fatalf("at %v, %d have a turn: %+v", now, having, all)
			}
			next, ok := residency.NextTurn(now, all, turnPolicy)
			for i := range all {
				a := &all[i]
				switch is := ok && a.ID == next; {
				case is && a.Stage == residency.Waiting:
					a.Stage, a.Since = residency.Beginning, now
					turns++
				case !is && (a.Stage == residency.Beginning || a.Stage == residency.Serving):
					a.Stage, a.Since = residency.Leaving, now
				}
			}
		}
	}
	if limit := instances * (turnPolicy.For + begin + leave + 3*time.Second); longest > limit || turns < 1000 {
		t.Errorf("somebody waits %v, more than %v; %d turns", longest, limit, turns)
	}
}
