package results

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func little() (table, cells) {
	t := table{
		name: "little", title: "Little", text: "Words.", command: []string{"simulate", "x"},
		rows:    []row{{name: "a"}, {name: "b"}},
		columns: []column{{policy: "p", figure: "f", head: "F of p", digits: 1}, {policy: "q", figure: "f", head: "F of q", digits: 1}},
	}
	return t, cells{
		"a": {"p f": {Mean: 1, StdDev: 0.2, Runs: 4}, "q f": {Mean: 2, Runs: 4}},
		"b": {"p f": {Mean: 3, StdDev: 0.2, Runs: 4}, "q f": {Mean: 2, Runs: 4}},
	}
}

func TestTargetsAreHeldAgainstEveryRow(t *testing.T) {
	lab, got := little()
	for name, c := range map[string]struct {
		target target
		missed int
	}{
		"number, met":            {target{column: "p f", least: true, bound: 1}, 0},
		"number, strict, on it":  {target{column: "p f", least: true, bound: 1, strict: true}, 1},
		"other column, one row":  {target{column: "p f", other: "q f"}, 1},
		"other column, good row": {target{rows: []string{"a"}, column: "p f", other: "q f"}, 0},
		"where it is small":      {target{column: "p f", bound: 1, where: []target{{column: "p f", bound: 2}, {column: "q f", bound: 2}}}, 0},
		"where it is large":      {target{column: "p f", bound: 1, where: []target{{column: "p f", least: true, bound: 2}}}, 1},
		"where it never is":      {target{column: "p f", bound: 1, where: []target{{column: "p f", least: true, bound: 4}}}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			lab.targets = []target{c.target}
			if text, missed := lab.checkTargets(got); missed != c.missed {
				t.Errorf("%d missed, want %d: %s", missed, c.missed, text)
			}
		})
	}
}

func TestPublishReplacesItsSectionOnly(t *testing.T) {
	lab, got := little()
	o := options{dir: t.TempDir(), runs: 4, origin: provenance{Commit: "c0ffee"}}
	page := "before\n<!-- begin little -->\nold\n<!-- end little -->\nafter\n"
	file := filepath.Join(o.dir, "RESULTS.md")
	if err := os.WriteFile(file, []byte(page), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := o.publish(lab, got); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"before\n<!-- begin little -->\n## Little", "commit c0ffee.\n", "| a | 1.0 ±0.2 | 2.0 |", "<!-- end little -->\nafter\n"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if strings.Contains(string(text), "old") {
		t.Error("the old section is still there")
	}
	if _, err := replaceSection("no markers", "little", ""); err == nil {
		t.Error("a page without markers was accepted")
	}
}

func TestCompareToleratesChanceOnly(t *testing.T) {
	lab, got := little()
	o := options{dir: t.TempDir(), origin: provenance{Commit: "c0ffee"}}
	if err := o.store(lab, got); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(o.path(lab)); err != nil || !strings.Contains(string(text), `"commit": "c0ffee"`) {
		t.Errorf("stored %s, %v", text, err)
	}
	if missed, err := o.compare(lab, got); err != nil || missed != 0 {
		t.Errorf("the same figures: %d missed, %v", missed, err)
	}
	got["a"]["p f"] = cell{Mean: 1.3, StdDev: 0.2, Runs: 4}
	if missed, err := o.compare(lab, got); err != nil || missed != 0 {
		t.Errorf("within three standard errors: %d missed, %v", missed, err)
	}
	got["a"]["p f"] = cell{Mean: 1.6, StdDev: 0.2, Runs: 4}
	if missed, err := o.compare(lab, got); err != nil || missed != 1 {
		t.Errorf("far outside: %d missed, %v, want 1", missed, err)
	}
	lab.columns = append(lab.columns, column{policy: "new", figure: "f"})
	if _, err := o.compare(lab, got); err == nil {
		t.Error("a cell that was never stored was accepted")
	}
}

func TestParseReadsOneAndSeveralPolicies(t *testing.T) {
	one, err := parse([]byte(`{"policy": "p", "seed": 1, "f": 2.5}`))
	if err != nil || one["p"].Mean["f"] != 2.5 {
		t.Errorf("one run: %v, %v", one, err)
	}
	two, err := parse([]byte(`[{"policy": "p", "runs": [], "mean": {"f": 1}, "stddev": {"f": 0.1}}, {"policy": "q", "runs": [], "mean": {"f": 2}, "stddev": {"f": 0}}]`))
	if err != nil || two["q"].Mean["f"] != 2 || two["p"].StdDev["f"] != 0.1 {
		t.Errorf("several policies: %v, %v", two, err)
	}
	if _, err := parse([]byte(`nonsense`)); err == nil {
		t.Error("nonsense was parsed")
	}
}
