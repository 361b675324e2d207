package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

const p = `"Package":"github.com/gshare-dev/gshare/vgpu/share"`

func TestReport(t *testing.T) {
	for name, test := range map[string]struct {
		events   []string
		allowed  allowList
		lenient  bool
		want     string // the last line
		wantLine string // somewhere in the output
		wantOK   bool
	}{
		"leaves are counted": {
			events: []string{
				`{"Action":"run",` + p + `,"Test":"A"}`,
				`{"Action":"run",` + p + `,"Test":"A/x"}`, `{"Action":"run",` + p + `,"Test":"A/y"}`,
				`{"Action":"pass",` + p + `,"Test":"A/x"}`, `{"Action":"pass",` + p + `,"Test":"A/y"}`,
				`{"Action":"pass",` + p + `,"Test":"A"}`,
				`{"Action":"pass",` + p + `,"Elapsed":1.5}`,
			},
			want: "2 passed, 0 failed, 0 skipped", wantLine: "ok    vgpu/share", wantOK: true,
		},
		"a failing subtest is one failure and its output is shown": {
			events: []string{
				`{"Action":"run",` + p + `,"Test":"A"}`, `{"Action":"run",` + p + `,"Test":"A/x"}`,
				`{"Action":"output",` + p + `,"Test":"A/x","Output":"got 1, want 2\n"}`,
				`{"Action":"fail",` + p + `,"Test":"A/x"}`, `{"Action":"fail",` + p + `,"Test":"A"}`,
				`{"Action":"fail",` + p + `}`,
			},
			want: "0 passed, 1 failed, 0 skipped", wantLine: "got 1, want 2",
		},
		"a test that fails beside passing subtests": {
			events: []string{
				`{"Action":"run",` + p + `,"Test":"A"}`, `{"Action":"run",` + p + `,"Test":"A/x"}`,
				`{"Action":"pass",` + p + `,"Test":"A/x"}`, `{"Action":"fail",` + p + `,"Test":"A"}`,
				`{"Action":"fail",` + p + `}`,
			},
			want: "1 passed, 1 failed, 0 skipped",
		},
		"a package that does not build": {
			events: []string{
				`{"Action":"build-output","ImportPath":"vgpu/share [test]","Output":"share.go:3: undefined: x\n"}`,
				`{"Action":"build-fail","ImportPath":"vgpu/share [test]"}`,
				`{"Action":"fail",` + p + `,"FailedBuild":"vgpu/share [test]"}`,
			},
			want: "0 passed, 1 failed, 0 skipped", wantLine: "undefined: x",
		},
		"a package that ends in the middle": {
			events: []string{
				`{"Action":"run",` + p + `,"Test":"A"}`,
				`{"Action":"output",` + p + `,"Test":"A","Output":"about to exit\n"}`,
				`{"Action":"fail",` + p + `}`,
			},
			want: "0 passed, 1 failed, 0 skipped", wantLine: "about to exit",
		},
		"a run that is cut off": {
			events: []string{`{"Action":"run",` + p + `,"Test":"A"}`},
			want:   "0 passed, 1 failed, 0 skipped", wantLine: "never ended",
		},
		"a skip that is not listed": {
			events:  skipped("needs a GPU"),
			allowed: allowList{"vgpu/share.B", "vgpu/other*"},
			want:    "1 passed, 0 failed, 1 skipped", wantLine: "skipped, not allowed: vgpu/share.A: a_test.go:1: needs a GPU",
		},
		"a skip that is listed": {
			events: skipped("needs a GPU"), allowed: allowList{"vgpu/share.*"},
			want: "1 passed, 0 failed, 1 skipped", wantLine: "skipped: vgpu/share.A", wantOK: true,
		},
		"a skip outside CI": {
			events: skipped("needs a GPU"), lenient: true,
			want: "1 passed, 0 failed, 1 skipped", wantOK: true,
		},
		"no test at all": {
			events: []string{`{"Action":"skip",` + p + `}`},
			want:   "0 passed, 0 failed, 0 skipped", wantLine: "no test ran",
		},
		"what stages took": {
			events: append([]string{`{"Action":"spent","Output":"      3 s  lint         4 s of processors"}`}, skipped("x")...), lenient: true,
			want: "1 passed, 0 failed, 1 skipped", wantLine: "stages:\n      3 s  lint         4 s of processors\n", wantOK: true,
		},
		"nothing at all": {want: "0 passed, 0 failed, 0 skipped", wantLine: "no test ran"},
		"what is no event is kept": {
			events: append([]string{"go: something odd"}, skipped("x")...), lenient: true,
			want: "1 passed, 0 failed, 1 skipped", wantLine: "go: something odd", wantOK: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			r := newReport(&out)
			if err := r.readEvents(strings.NewReader(strings.Join(test.events, "\n"))); err != nil {
				t.Fatal(err)
			}
			ok := r.finish(test.allowed, !test.lenient)
			if ok != test.wantOK {
				t.Errorf("ok = %t, want %t", ok, test.wantOK)
			}
			lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
			if last := lines[len(lines)-1]; last != test.want {
				t.Errorf("last line %q, want %q", last, test.want)
			}
			if !strings.Contains(out.String(), test.wantLine) {
				t.Errorf("no %q in:\n%s", test.wantLine, out.String())
			}
		})
	}
}

func TestSlowest(t *testing.T) {
	ended := func(name string, seconds float64) string {
		return fmt.Sprintf(`{"Action":"pass","Package":"github.com/gshare-dev/gshare/%s","Elapsed":%v}`, name, seconds)
	}
	var many []string
	for i := range 12 {
		many = append(many, ended(fmt.Sprint("p", i), float64(i+1)))
	}
	for name, test := range map[string]struct {
		events []string
		want   []string // "seconds stage package" of each line, in order
	}{
		"none":           {},
		"none that long": {events: []string{ended("a", 0.9)}},
		"stages": {
			events: []string{`{"Action":"stage","Output":"unit"}`, ended("a", 2), ended("b", 0.5), `{"Action":"stage","Output":"race"}`, ended("a", 3.25)},
			want:   []string{"3.25s race a", "2.00s unit a"},
		},
		"a package that failed": {
			events: []string{`{"Action":"stage","Output":"unit"}`, strings.Replace(ended("a", 4), "pass", "fail", 1)}, want: []string{"4.00s unit a"},
		},
		"no stage": {events: []string{ended("a", 2)}, want: []string{"2.00s a"}},
		"ten of more": {
			events: many,
			want:   []string{"12.00s p11", "11.00s p10", "10.00s p9", "9.00s p8", "8.00s p7", "7.00s p6", "6.00s p5", "5.00s p4", "4.00s p3", "3.00s p2"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			r := newReport(&out)
			if err := r.readEvents(strings.NewReader(strings.Join(test.events, "\n"))); err != nil {
				t.Fatal(err)
			}
			r.finish(nil, true)
			_, list, _ := strings.Cut(out.String(), "slowest:\n")
			var got []string
			for line := range strings.Lines(list) {
				if strings.HasPrefix(line, " ") {
					got = append(got, strings.Join(strings.Fields(line), " "))
				}
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("%q, want %q, in:\n%s", got, test.want, out.String())
			}
			if !strings.HasSuffix(out.String(), " skipped\n") {
				t.Errorf("the totals are not the last line of:\n%s", out.String())
			}
		})
	}
}

func skipped(why string) []string {
	return []string{
		`{"Action":"run",` + p + `,"Test":"A"}`,
		`{"Action":"output",` + p + `,"Test":"A","Output":"=== RUN   A\n"}`,
		`{"Action":"output",` + p + `,"Test":"A","Output":"    a_test.go:1: ` + why + `\n"}`,
		`{"Action":"output",` + p + `,"Test":"A","Output":"--- SKIP: A (0.00s)\n"}`,
		`{"Action":"skip",` + p + `,"Test":"A"}`,
		`{"Action":"run",` + p + `,"Test":"B"}`, `{"Action":"pass",` + p + `,"Test":"B"}`,
		`{"Action":"pass",` + p + `}`,
	}
}

func TestReadAllowList(t *testing.T) {
	list, err := readAllowList(strings.NewReader("# comment\n\nvgpu/share.A  needs a GPU\nnode.*  needs root\n"))
	if err != nil {
		t.Fatal(err)
	}
	for test, want := range map[string]bool{
		"vgpu/share.A": true, "vgpu/share.AB": false, "node.X/y": true, "vgpu/other.A": false,
	} {
		t.Run(test, func(t *testing.T) {
			if list.allows(test) != want {
				t.Errorf("allows(%s) = %t, want %t", test, !want, want)
			}
		})
	}
	if _, err := readAllowList(strings.NewReader("vgpu/share.A\n")); err == nil {
		t.Error("a pattern without a reason was accepted")
	}
}
