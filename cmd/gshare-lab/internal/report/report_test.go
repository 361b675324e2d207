package report

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func summaryOf(policy string, values ...float64) Summary {
	s := Summary{Policy: policy}
	for i, v := range values {
		s.Add(uint64(7+i), []Figure{{Name: "speed", Value: v, Digits: 1}, {Name: "cost", Value: 2 * v}})
	}
	return s
}

func TestMeanAndDeviation(t *testing.T) {
	s := summaryOf("a", 1, 2, 6)
	if diff := cmp.Diff([]Figure{{"speed", 3, 1}, {"cost", 6, 0}}, s.Mean()); diff != "" {
		t.Error("mean:", diff)
	}
	// Squares of the distances from the mean: 4, 1 and 9, by two.
	if dev := s.StdDev(); math.Abs(dev[0].Value-math.Sqrt(7)) > 1e-12 || math.Abs(dev[1].Value-2*math.Sqrt(7)) > 1e-12 {
		t.Errorf("deviations %v", dev)
	}
	one := summaryOf("a", 5)
	if dev := one.StdDev(); dev[0].Value != 0 || one.Value("speed") != 5 {
		t.Errorf("a single run: mean %v, deviation %v", one.Value("speed"), dev)
	}
	if none := (&Summary{}); !math.IsNaN(none.Value("speed")) || !math.IsNaN(s.Value("height")) {
		t.Error("a figure that is not there has a value")
	}
}

func write(t *testing.T, format string, summaries ...Summary) string {
	t.Helper()
	var out strings.Builder
	if err := Write(&out, format, summaries); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestWriteJSON(t *testing.T) {
	for name, c := range map[string]struct {
		summaries []Summary
		want      string
	}{
		"one run": {[]Summary{summaryOf("a", 1.25)}, `{"policy":"a","seed":7,"speed":1.25,"cost":2.5}`},
		"two policies": {[]Summary{summaryOf("a", 1), summaryOf("b", 2)},
			`[{"policy":"a","seed":7,"speed":1,"cost":2},{"policy":"b","seed":7,"speed":2,"cost":4}]`},
		"two runs": {[]Summary{summaryOf("a", 1, 1)},
			`{"policy":"a","runs":[{"seed":7,"speed":1,"cost":2},{"seed":8,"speed":1,"cost":2}],"mean":{"speed":1,"cost":2},"stddev":{"speed":0,"cost":0}}`},
	} {
		t.Run(name, func(t *testing.T) {
			var compact any
			text := write(t, "json", c.summaries...)
			if err := json.Unmarshal([]byte(text), &compact); err != nil {
				t.Fatalf("%v in %s", err, text)
			}
			if got := strings.Join(strings.Fields(text), ""); got != c.want {
				t.Errorf("%s:\n%s\nwant\n%s", name, got, c.want)
			}
		})
	}
}

// JSON knows no such numbers; a broken document would be worse than none.
func TestWriteRefusesWhatJSONCannotSay(t *testing.T) {
	for _, v := range []float64{math.NaN(), math.Inf(1)} {
		for _, s := range []Summary{summaryOf("a", v), summaryOf("a", 1, v)} {
			var out strings.Builder
			if err := Write(&out, "json", []Summary{s}); err == nil || !strings.Contains(err.Error(), "speed") || out.Len() > 0 {
				t.Errorf("%v: error %v and %q", v, err, out.String())
			}
		}
	}
}

func TestWriteTable(t *testing.T) {
	got := write(t, "table", summaryOf("long-name", 1.26, 3.26), summaryOf("b", 2, 2))
	want := "     policy     speed  cost\n  long-name  2.3 ±1.4  5 ±3\n          b  2.0 ±0.0  4 ±0\n"
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if got := write(t, "table", summaryOf("a", 1)); strings.Contains(got, "±") {
		t.Errorf("a single run has a deviation:\n%s", got)
	}
}
