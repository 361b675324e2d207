package profileview

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
)

// measuredText is a complete profile, whose batches take 3 ms and 6 ms a row on 12 % of the SMs.
func measuredText() string {
	text := `apiVersion: serving.gshare.dev/v1alpha1
kind: GPUProfile
metadata: {name: vision, namespace: ml}
spec: {functionRef: {name: vision}}
status:
  conditions:
  - {type: Complete, status: "True", reason: Measured}
  fingerprint: {model: H200}
  recommended: {sm: 12, quota: 100, memory: 1536Mi, maxBatch: 8, requestsPerSecond: 100}
  points:
  - {sm: 24, quota: 100, batch: 1, failed: the server ended}
`
	for _, batch := range []int{1, 2, 4, 8} {
		text += fmt.Sprintf("  - {sm: 12, quota: 100, batch: %d, meanMicroseconds: %d, p99Microseconds: %d}\n", batch, 3000+6000*batch, (3000+6000*batch)*12/10)
	}
	return text
}

func decodeOne(t *testing.T, text string) *api.GPUProfile {
	t.Helper()
	p, err := Decode(strings.NewReader(text))
	if err != nil || len(p) != 1 {
		t.Fatal(p, err)
	}
	return &p[0]
}

func TestFit(t *testing.T) {
	for name, test := range map[string]struct {
		from, to string
		note     string // beside the first
		err      string
	}{
		"as it is":             {},
		"stale":                {from: "  conditions:\n", to: "  conditions:\n  - {type: Stale, status: \"True\", message: another driver}\n", note: "GPUProfile vision is Stale: another driver"},
		"no line":              {from: "meanMicroseconds: 27000, p99Microseconds: 32400", to: "meanMicroseconds: 90000, p99Microseconds: 99000", note: "are no line over the batch"},
		"not complete":         {from: `"True"`, to: `"False"`, err: "it is not Complete"},
		"of a training":        {from: "functionRef: {name: vision}", to: "training: {steady: 15s}", err: "spec.training: a program that answers no requests has no latencies"},
		"no such batch":        {from: "maxBatch: 8", to: "maxBatch: 16", err: "curves: 0 of them"},
		"a batch of nothing":   {from: "maxBatch: 8", to: "maxBatch: -1", err: "maxBatch"},
		"a huge batch":         {from: "maxBatch: 8", to: "maxBatch: 9223372036854775807", err: "curves: 0 of them"},
		"no trials":            {from: "  points:", to: "  trialled:", err: "curves: 0 of them"},
		"more than all SMs":    {from: "  - {sm: 12,", to: "  - {sm: 922337203685477581,", err: "status.points[1].sm: 922337203685477581 is not from 1 to 100"},
		"no quota":             {from: "  - {sm: 12, quota: 100", to: "  - {sm: 12, quota: 0", err: "status.points[1].quota: 0 is not from 1 to 100"},
		"a time of centuries":  {from: "meanMicroseconds: 9000", to: "meanMicroseconds: 9223372036854775807", err: "status.points[1].meanMicroseconds"},
		"a p99 of centuries":   {from: "p99Microseconds: 10800", to: "p99Microseconds: 18446744073709552", err: "status.points[1].meanMicroseconds, p99Microseconds"},
		"less than no time":    {from: "meanMicroseconds: 9000", to: "meanMicroseconds: -1", err: "points[0].mean"},
		"a batch of less":      {from: "batch: 1, mean", to: "batch: 0, mean", err: "points[0].batch: 0 is outside"},
		"the memory of a text": {from: "1536Mi", to: "much", err: "status.recommended.memory"},
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.Replace(measuredText(), test.from, test.to, 1)
			if test.from != "" && text == measuredText() {
				t.Fatalf("%q is not there", test.from)
			}
			m, err := Fit("vision", decodeOne(t, text), 100*time.Millisecond)
			if (err != nil) != (test.err != "") || err != nil && !strings.Contains(err.Error(), test.err) {
				t.Fatalf("%v, want %q", err, test.err)
			}
			if err != nil {
				return
			}
			notes := m.Notes("GPUProfile vision")
			if notes[0] != "the latencies are those of GPUProfile vision on H200, for batches of up to 8" || !strings.Contains(strings.Join(notes[1:], "\n"), test.note) || (test.note == "") != (len(notes) == 1) {
				t.Errorf("%q, want %q", notes, test.note)
			}
			s := m.Model.Share
			if len(s.Curves) != 1 || s.Curves[0].SM != 120 || s.Memory.Intercept != 1536 || s.MaxBatch != 8 || s.Window != 0.1 {
				t.Errorf("%+v", s)
			}
			if c := s.Curves[0].Exclusive; test.note == "" && (c.Slope < 0.00599 || c.Slope > 0.00601 || c.Intercept < 0.00299 || c.Intercept > 0.00301) {
				t.Errorf("a batch takes %+v, want 3 ms and 6 ms a row", c)
			}
		})
	}
}

func TestEndedEarly(t *testing.T) {
	m, err := Fit("vision", decodeOne(t, measuredText()), time.Second)
	if err != nil {
		t.Fatal(err)
	}
	m.GPU, m.Ended = "", true
	if got := strings.Join(m.Notes("x"), "; "); got != "the latencies are those of x, for batches of up to 8; x is of a search that was ended early: a smaller share may do" {
		t.Error(got)
	}
}

// TestNotesOfStrangers: what a file says reaches no terminal as a command.
func TestNotesOfStrangers(t *testing.T) {
	m, err := Fit("vision", decodeOne(t, measuredText()), time.Second)
	if err != nil {
		t.Fatal(err)
	}
	m.GPU, m.Stale, m.Why = "H200\x1b[2J", true, "\x9b31m\u009bwarning:\nall is well\u202e"
	for _, note := range m.Notes("x") {
		if strings.ContainsFunc(note, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("%q", note)
		}
	}
}

func TestBest(t *testing.T) {
	text := func(name, from, to string) string {
		return strings.Replace(strings.Replace(measuredText(), "name: vision,", "name: "+name+",", 1), from, to, 1)
	}
	const stale, one = "  conditions:\n  - {type: Stale, status: \"True\"}\n", "  - {sm: 24, quota: 100, batch: 1, failed: the server ended}\n"
	for name, test := range map[string]struct {
		all  []string
		want string
	}{
		"none":         {nil, ""},
		"not complete": {[]string{text("a", `"True"`, `"False"`)}, ""},
		"stale beside": {[]string{text("a", "  conditions:\n", stale), text("b", one, "")}, "ml/b"},
		"stale alone":  {[]string{text("a", "  conditions:\n", stale), text("b", `"True"`, `"False"`)}, "ml/a"},
		"more trials":  {[]string{text("a", one, ""), text("b", "", "")}, "ml/b"},
		"as many":      {[]string{text("b", "", ""), text("a", "", "")}, "ml/a"},
	} {
		t.Run(name, func(t *testing.T) {
			var all []*api.GPUProfile
			for _, text := range test.all {
				all = append(all, decodeOne(t, text))
			}
			got := ""
			if p := Best(all); p != nil {
				got = Name(p)
			}
			if got != test.want {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
}
