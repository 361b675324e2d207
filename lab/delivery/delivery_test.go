package delivery

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/gshare-dev/gshare/lab/shapes"
	"github.com/gshare-dev/gshare/vgpu/packing/slot"
	"github.com/gshare-dev/gshare/vgpu/share"
	"github.com/gshare-dev/gshare/vgpu/token"
)

const ms = time.Millisecond

var families = []string{"papermix", "fastgrid", "smallgrid", "uniform", "overhalf"}

func deliver(t *testing.T, family, admission string, s Setting) Total {
	t.Helper()
	gpus, err := Fill(context.Background(), admission, shapes.Families()[family], 15, s, 1)
	if err != nil {
		t.Fatal(err)
	}
	total, err := RunAll(context.Background(), gpus, s)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s by %s: %.0f %% of %d GPUs served, worst pod of a GPU %.3f, %.3f on average, gap %v", family, admission,
		total.ServedPercent(), len(gpus), minimum(total.WorstShares), total.MeanWorstShare(), total.LongestGap)
	return total
}

func minimum(shares []float64) float64 {
	least := shares[0]
	for _, x := range shares {
		least = min(least, x)
	}
	return least
}

// TestTablesDeliver checks that tables deliver what slots admit, also if every start costs a millisecond.
func TestTablesDeliver(t *testing.T) {
	for _, loss := range []time.Duration{0, ms} {
		for _, family := range families {
			s := Setting{Policy: token.Table, Window: 100 * ms, Turn: 5 * ms, SwitchLoss: loss, Seconds: 2}
			if total := deliver(t, family, "slot", s); total.ServedPercent() < 100 {
				t.Errorf("%s, loss %v: %.1f %% of the GPUs served", family, loss, total.ServedPercent())
			}
		}
	}
}

// TestShortTurnsDeliver checks a turn that is shorter than its start costs: 0.14 ms, stretched by its part of the reserve. The pod
// makes up for the loss in that turn, from the first window on.
func TestShortTurnsDeliver(t *testing.T) {
	g := GPU{Reserve: 80, Pods: []shapes.Pod{{SM: 600, Quota: 530}, {SM: 220, Quota: 600}, {SM: 100, Quota: 710},
		{SM: 200, Quota: 620}, {SM: 340, Quota: 380}, {SM: 580, Quota: 80}, {SM: 240, Quota: 50}, {SM: 70, Quota: 460}}}
	s := Setting{Policy: token.Table, Window: 100 * ms, Turn: 5 * ms, SwitchLoss: ms, Seconds: 1}
	table, ok := slot.Solve(itemsOf(g.Pods), s.Window, g.Reserve)
	if !ok || !slices.ContainsFunc(table.Turns, func(x slot.Turn) bool { return x.Duration < ms }) {
		t.Fatalf("no turn is short: %v", table)
	}
	if out, err := Run(g, s); err != nil || out.WorstShare < 0.999 {
		t.Errorf("the worst pod gets %.4f of its quota: %v", out.WorstShare, err)
	}
}

// TestOthersDoNot is the negative control: the published orders fail on mixed shapes, and so do tables that were admitted without
// the reserve for their switches.
func TestOthersDoNot(t *testing.T) {
	lossless := Setting{Window: time.Second, Turn: 5 * ms, Seconds: 2}
	for name, c := range map[string]struct {
		family, admission string
		policy            token.Policy
		most              float64
	}{
		"head of line, papermix":  {"papermix", "slot", HeadOfLine, 30},
		"head of line, smallgrid": {"smallgrid", "slot", HeadOfLine, 30},
		"head of line, uniform":   {"uniform", "slot", HeadOfLine, 40},
		"skip ahead, uniform":     {"uniform", "slot", SkipAhead, 80},
		"skip ahead, overhalf":    {"overhalf", "slot", SkipAhead, 40},
		"head of line, MRA":       {"papermix", "mra", HeadOfLine, 90},
	} {
		t.Run(name, func(t *testing.T) {
			s := lossless
			s.Policy = c.policy
			if total := deliver(t, c.family, c.admission, s); total.ServedPercent() > c.most {
				t.Errorf("%.1f %% of the GPUs served, want at most %.0f %%", total.ServedPercent(), c.most)
			}
		})
	}
	s := Setting{Policy: token.Table, Window: 100 * ms, Turn: 5 * ms, Seconds: 2}
	gpus, err := Fill(context.Background(), "slot", shapes.Families()["uniform"], 15, s, 1)
	if err != nil {
		t.Fatal(err)
	}
	s.SwitchLoss = ms
	if total, err := RunAll(context.Background(), gpus, s); err != nil || total.ServedPercent() > 50 {
		t.Errorf("without a reserve %.1f %% of the GPUs are served: %v", total.ServedPercent(), err)
	}
}

// TestRunCounts compares Run with a count by hand, for two pods that exclude each other and a switch that costs 10 ms.
func TestRunCounts(t *testing.T) {
	g := GPU{Pods: []shapes.Pod{{SM: 600, Quota: 500}, {SM: 600, Quota: 300}}, Reserve: 200}
	out, err := Run(g, Setting{Policy: token.Table, Window: 100 * ms, Turn: 5 * ms, SwitchLoss: 10 * ms, Seconds: 2})
	if err != nil {
		t.Fatal(err)
	}
	if out.WorstShare != 1 || out.LongestGap != 70*ms {
		t.Errorf("Run = %+v, want all, and 70 ms without progress for the pod of 30 %%", out)
	}
	if _, err := Run(GPU{Pods: []shapes.Pod{{SM: 600, Quota: 600}, {SM: 600, Quota: 600}}}, Setting{Seconds: 1}); err == nil {
		t.Error("pods that do not fit are served")
	}
}

func TestReserveFor(t *testing.T) {
	thirds := []slot.Item{{SM: 600, Quota: 300}, {SM: 600, Quota: 300}, {SM: 600, Quota: 300}}
	for name, c := range map[string]struct {
		items []slot.Item
		loss  time.Duration
		want  share.PerMille
		fits  bool
	}{
		"no switch":       {[]slot.Item{{SM: 400, Quota: 300}, {SM: 600, Quota: 900}}, ms, 0, true},
		"free switches":   {thirds, 0, 0, true},
		"three switches":  {thirds, ms, 30, true},
		"part of a mille": {thirds, ms / 3, 10, true},
		"all that is":     {thirds, 10 * ms / 3, 100, true},
		"too much":        {thirds, 4 * ms, 0, false},
		"does not fit":    {append(thirds, thirds...), 0, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got, fits := ReserveFor(c.items, 100*ms, c.loss); got != c.want || fits != c.fits {
				t.Errorf("%v %v, want %v %v", got, fits, c.want, c.fits)
			}
		})
	}
}

func TestFill(t *testing.T) {
	s := Setting{Window: 100 * ms, SwitchLoss: ms}
	for _, admission := range AdmissionRules() {
		a, err := Fill(context.Background(), admission, shapes.Families()["papermix"], 10, s, 7)
		if err != nil || len(a) != 10 {
			t.Fatalf("%s: %d GPUs: %v", admission, len(a), err)
		}
		for _, g := range a {
			if area := shapes.Area(g.Pods); area > 1 || len(g.Pods) == 0 {
				t.Errorf("%s: a GPU with SM-time %.2f", admission, area)
			}
			if _, ok := slot.Solve(itemsOf(g.Pods), s.Window, g.Reserve); !ok {
				t.Errorf("%s: %v has no table", admission, g)
			}
		}
	}
	if _, err := Fill(context.Background(), "none", nil, 1, s, 1); err == nil {
		t.Error("an unknown admission is accepted")
	}
}
