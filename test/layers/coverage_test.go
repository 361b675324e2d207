package layers_test

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// capabilities holds the ranges of numbers of each paper's capabilities.
var capabilities = []struct {
	paper, prefix string
	ranges        [][2]int
}{
	{"FaST-GShare", "FG", [][2]int{{1, 8}, {10, 23}, {30, 41}, {50, 56}, {60, 65}, {70, 86}, {90, 99}, {110, 121}, {130, 139}, {150, 156}}},
	{"Dilu", "DI", [][2]int{{1, 23}, {30, 42}, {50, 73}, {80, 84}, {90, 103}}},
	{"FluidFaaS", "FF", [][2]int{{1, 13}, {20, 26}, {30, 38}, {40, 50}, {60, 65}, {70, 79}}},
	{"PAMBA", "PA", [][2]int{{1, 7}, {10, 23}, {30, 37}, {40, 50}, {60, 67}}},
}

var statuses = []string{"live", "part", "rule", "open", "refused"}

// realPaths are the folders whose tests run the scheduler, the agent, the token server or the hook in the same way as a cluster or
// gshare run does.
var realPaths = []string{"test/cluster", "test/controlplane", "test/enforce", "test/plugins", "cmd/gshare-node", "cmd/gshare"}

var (
	capabilityNumber = regexp.MustCompile(`^(FG|DI|FF|PA)-\d+$`)

	// figureNumber matches the number of a paper's figure, or of a range of figures.
	figureNumber = regexp.MustCompile(`^N-[DFP]\d+`)

	// cited matches a path of the repository, optionally with a symbol or a test in the file.
	cited = regexp.MustCompile("`([\\w./-]+)(?::(\\w+))?`")

	definedTest = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)\w+)\(`)

	// deferral matches a reason that merely says that nobody has built something yet.
	deferral = regexp.MustCompile(`(?i)\b(refused here|controllers?|I/O|storage|a library|not yet|later|to do|out of scope)\b`)
)

// minReason is the minimum length, in characters, of the reason for a refusal.
const minReason = 60

// testsOf returns the names of all Go tests of a tree, as folder:name.
func testsOf(tree fs.FS) (map[string]bool, error) {
	found := map[string]bool{}
	err := fs.WalkDir(tree, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(name, "_test.go") {
			return err
		}
		text, err := fs.ReadFile(tree, name)
		for _, m := range definedTest.FindAllSubmatch(text, -1) {
			found[path.Dir(name)+":"+string(m[1])] = true
		}
		return err
	})
	return found, err
}

// capabilityRow is a row of the table of capabilities.
type capabilityRow struct{ number, capability, status, where, tests, note string }

// capabilityRows returns the rows of the table of capabilities, and the malformed ones separately.
func capabilityRows(text string) (rows []capabilityRow, bad []string) {
	for line := range strings.Lines(text) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if !capabilityNumber.MatchString(cells[0]) {
			continue
		}
		if len(cells) != 6 {
			bad = append(bad, fmt.Sprintf("%s has %d columns, want 6", cells[0], len(cells)))
			continue
		}
		rows = append(rows, capabilityRow{cells[0], cells[1], cells[2], cells[3], cells[4], cells[5]})
	}
	return rows, bad
}

// checkRow finds what is wrong with one row: an unknown status, files, symbols and tests that do not exist, and whatever the status
// requires.
func checkRow(tree fs.FS, r capabilityRow, tests map[string]bool) []string {
	var found []string
	report := func(format string, args ...any) { found = append(found, r.number+": "+fmt.Sprintf(format, args...)) }
	if r.capability == "" {
		report("has no text")
	}
	if !slices.Contains(statuses, r.status) {
		report("%q is no status", r.status)
	}
	for _, missing := range missingCitations(tree, r.where) {
		report("%s", missing)
	}
	isReal := false
	for _, m := range cited.FindAllStringSubmatch(r.tests, -1) {
		if !tests[m[1]+":"+m[2]] {
			report("there is no %s in %s", m[2], m[1])
		}
		isReal = isReal || slices.ContainsFunc(realPaths, func(p string) bool { return m[1] == p || strings.HasPrefix(m[1], p+"/") })
	}
	hasFile, hasTest := cited.MatchString(r.where), cited.MatchString(r.tests)
	switch {
	case r.status == "live" && !isReal:
		report("is live, but none of its tests runs the real path")
	case (r.status == "live" || r.status == "part" || r.status == "rule") && !(hasFile && hasTest):
		report("cites no file or no test")
	case r.status == "part" && r.note == "":
		report("does not say what is missing")
	case r.status == "refused" && len(r.note) < minReason:
		report("is refused without much of a reason")
	case r.status == "refused" && deferral.MatchString(r.note):
		report("is put off rather than refused: %q", deferral.FindString(r.note))
	}
	return found
}

// missingCitations finds files and symbols that a cell cites and that do not exist.
func missingCitations(tree fs.FS, cell string) []string {
	var found []string
	for _, m := range cited.FindAllStringSubmatch(cell, -1) {
		text, err := fs.ReadFile(tree, m[1])
		if err != nil {
			found = append(found, m[1]+" does not exist")
		} else if m[2] != "" && !regexp.MustCompile(`\b`+m[2]+`\b`).Match(text) {
			found = append(found, fmt.Sprintf("there is no %s in %s", m[2], m[1]))
		}
	}
	return found
}

// checkFigures finds rows of the table of the papers' figures that cite nothing, or something that does not exist.
func checkFigures(tree fs.FS, text string) []string {
	var found []string
	for line := range strings.Lines(text) {
		number, rest, _ := strings.Cut(strings.TrimLeft(line, "| "), " |")
		if !figureNumber.MatchString(number) {
			continue
		}
		if !cited.MatchString(rest) {
			found = append(found, number+": cites no file")
		}
		for _, missing := range missingCitations(tree, rest) {
			found = append(found, number+": "+missing)
		}
	}
	return found
}

// checkNumbers finds capabilities that have no row or several rows, and rows without a known capability.
func checkNumbers(rows []capabilityRow) []string {
	lines := map[string]int{}
	for _, r := range rows {
		lines[r.number]++
	}
	var found []string
	for _, c := range capabilities {
		for _, numbers := range c.ranges {
			for n := numbers[0]; n <= numbers[1]; n++ {
				number := fmt.Sprintf("%s-%02d", c.prefix, n)
				if lines[number] != 1 {
					found = append(found, fmt.Sprintf("%s has %d lines, want 1", number, lines[number]))
				}
				delete(lines, number)
			}
		}
	}
	for number := range lines {
		found = append(found, number+" is no capability")
	}
	return found
}

// checkCounts finds counts that differ from the table of capabilities. There is one row of counts for each paper and one for all.
func checkCounts(rows []capabilityRow, text string) []string {
	var found []string
	count := func(name, prefix string) {
		want, total := "| "+name+" |", 0
		for _, status := range statuses {
			n := 0
			for _, r := range rows {
				if r.status == status && strings.HasPrefix(r.number, prefix) {
					n++
				}
			}
			want, total = fmt.Sprintf("%s %d |", want, n), total+n
		}
		if want = fmt.Sprintf("%s %d |", want, total); !strings.Contains(text, want+"\n") {
			found = append(found, "the counts should have "+want)
		}
	}
	for _, c := range capabilities {
		count(c.paper, c.prefix+"-")
	}
	count("all", "")
	return found
}

// TestCoverage checks that the table of capabilities is complete, and that what it cites exists.
func TestCoverage(t *testing.T) {
	tree := os.DirFS(root)
	tests, err := testsOf(tree)
	if err != nil {
		t.Fatal(err)
	}
	text, err := fs.ReadFile(tree, "docs/coverage.md")
	if err != nil {
		t.Fatal(err)
	}
	rows, bad := capabilityRows(string(text))
	for _, r := range rows {
		bad = append(bad, checkRow(tree, r, tests)...)
	}
	bad = append(bad, checkNumbers(rows)...)
	bad = append(bad, checkFigures(tree, string(text))...)
	for _, violation := range append(bad, checkCounts(rows, string(text))...) {
		t.Error("docs/coverage.md: " + violation)
	}
}

func TestBadCoverage(t *testing.T) {
	tree := fstest.MapFS{
		"vgpu/token/a.go":        {Data: []byte("func Name() {}\n")},
		"vgpu/token/a_test.go":   {Data: []byte("func TestA(t *testing.T) {}\n")},
		"test/cluster/b_test.go": {Data: []byte("func TestB(t *testing.T) {}\n")},
	}
	tests, err := testsOf(tree)
	if err != nil {
		t.Fatal(err)
	}
	reason := strings.Repeat("it would end what other users of the same GPU run; ", 2)
	for name, test := range map[string]struct{ line, want string }{
		"a rule":              {"| DI-01 | x | rule | `vgpu/token/a.go:Name` | `vgpu/token:TestA` | |", ""},
		"live":                {"| DI-01 | x | live | `vgpu/token/a.go` | `vgpu/token:TestA`, `test/cluster:TestB` | |", ""},
		"open":                {"| DI-01 | x | open | | | |", ""},
		"refused":             {"| DI-01 | x | refused | | | " + reason + " |", ""},
		"no such status":      {"| DI-01 | x | done | | | |", `"done" is no status`},
		"no text":             {"| DI-01 | | open | | | |", "has no text"},
		"no such file":        {"| DI-01 | x | rule | `vgpu/token/c.go` | `vgpu/token:TestA` | |", "vgpu/token/c.go does not exist"},
		"no such symbol":      {"| DI-01 | x | rule | `vgpu/token/a.go:Nam` | `vgpu/token:TestA` | |", "no Nam in vgpu/token/a.go"},
		"no such test":        {"| DI-01 | x | rule | `vgpu/token/a.go` | `vgpu/token:TestB` | |", "no TestB in vgpu/token"},
		"a rule without test": {"| DI-01 | x | rule | `vgpu/token/a.go` | | |", "cites no file or no test"},
		"live in unit tests":  {"| DI-01 | x | live | `vgpu/token/a.go` | `vgpu/token:TestA` | |", "none of its tests runs the real path"},
		"part of what":        {"| DI-01 | x | part | `vgpu/token/a.go` | `vgpu/token:TestA` | |", "does not say what is missing"},
		"short reason":        {"| DI-01 | x | refused | | | no |", "without much of a reason"},
		"put off":             {"| DI-01 | x | refused | | | needs a controller: " + reason + " |", "put off rather than refused"},
		"columns":             {"| DI-01 | x | open | |", "has 4 columns"},
	} {
		t.Run(name, func(t *testing.T) {
			rows, bad := capabilityRows(test.line + "\n")
			for _, r := range rows {
				bad = append(bad, checkRow(tree, r, tests)...)
			}
			expect(t, bad, test.want)
		})
	}
}

// TestBadFigures checks that a figure is reported that has no file, or one that does not exist.
func TestBadFigures(t *testing.T) {
	tree := fstest.MapFS{"vgpu/token/a_test.go": {Data: []byte("func TestA(t *testing.T) {}\n")}}
	for name, test := range map[string]struct{ line, want string }{
		"a file":         {"| N-P2 | x | `vgpu/token/a_test.go` |", ""},
		"a symbol":       {"| N-P2 and N-P3 | x | `vgpu/token/a_test.go:TestA` |", ""},
		"no file":        {"| N-P2 | x | |", "N-P2: cites no file"},
		"no such file":   {"| N-D1 to N-D5 | x | `token/a_test.go` |", "token/a_test.go does not exist"},
		"no such symbol": {"| N-F1 | x | `vgpu/token/a_test.go:TestB` |", "no TestB in vgpu/token/a_test.go"},
	} {
		t.Run(name, func(t *testing.T) { expect(t, checkFigures(tree, test.line+"\n"), test.want) })
	}
}

// TestBadNumbers checks that a missing row, a superfluous row and a wrong count are reported.
func TestBadNumbers(t *testing.T) {
	var rows []capabilityRow
	for _, c := range capabilities {
		for _, numbers := range c.ranges {
			for n := numbers[0]; n <= numbers[1]; n++ {
				rows = append(rows, capabilityRow{number: fmt.Sprintf("%s-%02d", c.prefix, n), status: "open"})
			}
		}
	}
	if len(rows) != 286 {
		t.Errorf("%d capabilities, want 286", len(rows))
	}
	expect(t, checkNumbers(rows), "")
	expect(t, checkNumbers(rows[1:]), "FG-01 has 0 lines")
	expect(t, checkNumbers(append(rows, rows[5])), "FG-06 has 2 lines")
	expect(t, checkNumbers(append(rows, capabilityRow{number: "FG-09"})), "FG-09 is no capability")

	counts := "| FaST-GShare | 0 | 0 | 0 | 103 | 0 | 103 |\n| Dilu | 0 | 0 | 0 | 79 | 0 | 79 |\n| FluidFaaS | 0 | 0 | 0 | 56 | 0 | 56 |\n" +
		"| PAMBA | 0 | 0 | 0 | 48 | 0 | 48 |\n| all | 0 | 0 | 0 | 286 | 0 | 286 |\n"
	expect(t, checkCounts(rows, counts), "")
	expect(t, checkCounts(rows, strings.Replace(counts, "79 | 0", "78 | 1", 1)), "should have | Dilu | 0 | 0 | 0 | 79 | 0 | 79 |")
}
