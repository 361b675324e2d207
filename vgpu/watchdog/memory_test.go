package watchdog

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gshare-dev/gshare/vgpu/share"
)

const (
	gib     = 1024 * share.MiB
	context = 512 * share.MiB
)

func TestExcess(t *testing.T) {
	for name, test := range map[string]struct {
		ledger    share.Bytes
		processes []ProcessMemory
		want      excess
	}{
		"nothing":                               {0, nil, noExcess},
		"context alone":                         {0, []ProcessMemory{{Driver: context}}, noExcess},
		"more than a context":                   {0, []ProcessMemory{{Driver: context + 1}}, beyondLedger},
		"at its limit":                          {2 * gib, []ProcessMemory{{Driver: 2*gib + context, Ledger: 2 * gib}}, noExcess},
		"a byte beyond its limit":               {2 * gib, []ProcessMemory{{Driver: 2*gib + context + 1, Ledger: 2 * gib}}, beyondShare},
		"forged ledger":                         {share.MaxMemory, []ProcessMemory{{Driver: 3 * gib, Ledger: share.MaxMemory}}, beyondShare},
		"at its limit with two processes":       {2 * gib, []ProcessMemory{{Driver: gib + context}, {Driver: gib + context}}, noExcess},
		"idle processes lend no allowance":      {gib, []ProcessMemory{{Driver: 2*gib + context + 1}, {Driver: 1}, {Driver: 0}}, beyondShare},
		"less than the ledger":                  {2 * gib, []ProcessMemory{{Driver: gib}}, noExcess},
		"the driver does not tell":              {gib, []ProcessMemory{{Driver: 0, Ledger: gib}}, noExcess},
		"process without a session":             {gib, []ProcessMemory{{Driver: gib, Ledger: gib}, {Driver: gib + context}}, beyondLedger},
		"process without a session, in context": {gib, []ProcessMemory{{Driver: gib, Ledger: gib}, {Driver: context}}, noExcess},
	} {
		t.Run(name, func(t *testing.T) {
			u := MemoryUse{Granted: 2 * gib, Context: context, Ledger: test.ledger, Processes: test.processes}
			if got := u.excess(); got != test.want {
				t.Errorf("got %d, want %d", got, test.want)
			}
		})
	}
}

func TestExcessBesideWeights(t *testing.T) {
	const inShare = 2*gib + context + gib // with weights of 1 GiB
	for name, test := range map[string]struct {
		processes []ProcessMemory
		want      excess
	}{
		"mapped, or not counted":    {[]ProcessMemory{{Driver: inShare}}, noExcess},
		"beyond the declaration":    {[]ProcessMemory{{Driver: inShare + 1}}, beyondShare},
		"mapped by two processes":   {[]ProcessMemory{{Driver: 2*gib + context}, {Driver: 2*gib + context}}, noExcess},
		"a byte more of the second": {[]ProcessMemory{{Driver: inShare}, {Driver: gib + context + 1}}, beyondShare},
	} {
		t.Run(name, func(t *testing.T) {
			u := MemoryUse{Granted: 2 * gib, Context: context, Ledger: 2 * gib, Weights: gib, Processes: test.processes}
			if got := u.excess(); got != test.want {
				t.Errorf("got %d, want %d", got, test.want)
			}
		})
	}
}

// TestMemoryObserve observes one container repeatedly, every two seconds.
func TestMemoryObserve(t *testing.T) {
	const inShare, above = 2*gib + context, 3*gib + context
	use := func(best bool, processes ...ProcessMemory) []MemoryUse {
		return []MemoryUse{{Pod: "a", Container: "main", Slice: "g0", Granted: 2 * gib, Ledger: gib, Context: context, BestEffort: best, Processes: processes}}
	}
	one := func(driver share.Bytes) []MemoryUse {
		return use(false, ProcessMemory{PID: 1, Driver: driver, Ledger: gib})
	}
	three := use(false, ProcessMemory{PID: 1, Driver: gib + context, Ledger: gib}, ProcessMemory{PID: 2, Driver: gib}, ProcessMemory{PID: 3, Driver: above})
	rest := use(false, three[0].Processes[:2]...)
	type looks []struct {
		seen []MemoryUse
		want []string
	}
	for name, test := range map[string]looks{
		"within the share":        {{one(inShare), nil}, {one(inShare), []string{"uncounted 1 report"}}, {one(inShare), []string{"uncounted 1"}}},
		"one observation alone":   {{one(above), nil}, {one(gib), nil}, {one(above), nil}, {one(gib), nil}},
		"beyond the share":        {{one(above), nil}, {one(above), []string{"overdrawn 1 report kill"}}, {one(above), []string{"overdrawn 1"}}},
		"grows beyond the share":  {{one(inShare), nil}, {one(above), []string{"uncounted 1 report"}}, {one(above), []string{"overdrawn 1 report kill"}}},
		"stays for one more":      {{one(inShare), nil}, {one(inShare), []string{"uncounted 1 report"}}, {one(gib), []string{"uncounted 1"}}, {one(gib), nil}},
		"freed in time":           {{one(above), nil}, {one(above), []string{"overdrawn 1 report kill"}}, {one(gib), []string{"overdrawn 1"}}, {one(gib), nil}},
		"ended":                   {{one(above), nil}, {one(above), []string{"overdrawn 1 report kill"}}, {nil, nil}, {one(above), nil}},
		"killed again":            {{one(above), nil}, {one(above), []string{"overdrawn 1 report kill"}}, {one(above), []string{"overdrawn 1"}}, {one(above), []string{"overdrawn 1"}}, {one(above), []string{"overdrawn 1"}}, {one(above), []string{"overdrawn 1"}}, {one(above), []string{"overdrawn 1 kill"}}},
		"best effort":             {{use(true, ProcessMemory{PID: 1, Driver: above}), nil}, {use(true, ProcessMemory{PID: 1, Driver: above}), []string{"overdrawn 1 report"}}},
		"the guilty of three":     {{three, nil}, {three, []string{"overdrawn 3 report kill"}}, {three, []string{"overdrawn 3"}}, {rest, []string{"overdrawn 2"}}, {rest, []string{"uncounted 2 report"}}},
		"without its process yet": {{use(false), nil}, {use(false), nil}},
	} {
		t.Run(name, func(t *testing.T) {
			w := NewMemoryWatch(config)
			for i, look := range test {
				got := format(w.Observe(start.Add(time.Duration(2*i)*time.Second), look.seen))
				if diff := cmp.Diff(look.want, got); diff != "" {
					t.Errorf("observation %d\n%s", i, diff)
				}
			}
		})
	}
}

// TestMemoryCounts: reported counts change only when the driver counts an eighth more, so that statuses are not written at each observation.
func TestMemoryCounts(t *testing.T) {
	w := NewMemoryWatch(config)
	changes, last := 0, MemoryCounts{}
	for i := range 1000 {
		u := MemoryUse{Pod: "a", Granted: gib, Context: context, Processes: []ProcessMemory{{PID: 1, Driver: 2*gib + share.Bytes(i)*share.MiB}}}
		for _, f := range w.Observe(start.Add(time.Duration(i)*time.Second), []MemoryUse{u}) {
			if f.Counts != last {
				changes, last = changes+1, f.Counts
			}
		}
	}
	if want := 4; changes != want || last.Driver < 5*gib/2 {
		t.Errorf("%d changes, want %d; %s", changes, want, fmt.Sprint(last))
	}
}

// TestMemoryRepeat: an excess that lasts is reported once in each period.
func TestMemoryRepeat(t *testing.T) {
	w := NewMemoryWatch(config)
	uses := []MemoryUse{{Pod: "a", Granted: gib, Context: context, BestEffort: true, Processes: []ProcessMemory{{PID: 1, Driver: 3 * gib}}}}
	var reports []time.Duration
	for at := time.Duration(0); at < 2*config.Repeat+time.Minute; at += time.Second {
		for _, f := range w.Observe(start.Add(at), uses) {
			if f.Report {
				reports = append(reports, at)
			}
		}
	}
	if want := []time.Duration{time.Second, config.Repeat + time.Second, 2*config.Repeat + time.Second}; !cmp.Equal(reports, want) {
		t.Errorf("reported after %v, want %v", reports, want)
	}
}
