package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const root = "../.."

// TestWritten: the pages that are kept follow from the source as it is.
func TestWritten(t *testing.T) {
	want, err := pages(root)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range want {
		got, err := os.ReadFile(filepath.Join(root, name))
		if diff := cmp.Diff(text, string(got)); err != nil || diff != "" {
			t.Errorf("%s differs from the source (to write it: go run ./hack/reference): %v\n%s", name, err, diff)
		}
	}
}

// source is a package with metrics in each of the ways in which the repository defines them.
const source = `package p

var labels = []string{"a", "b"}

func describe(name, help string, more ...string) *Desc { return prometheus.NewDesc(name, help, more, nil) }
func describeShare(name, help string) *Desc { return describe("gshare_share_"+name, help, "c") }

var (
	plain = prometheus.NewDesc("gshare_plain", "Plain.", nil, nil)
	long  = prometheus.NewDesc("gshare_long_total", "In two "+"parts.", labels, nil)
	own   = describe("gshare_own", "Own.", "d")
	share = describeShare("tokens_total", "Tokens.")
	count = metrics.NewCounterVec(&metrics.CounterOpts{Name: "gshare_count_total", Help: "Count.", Level: 1}, append(labels, "e"))
	time  = prometheus.NewHistogram(prometheus.HistogramOpts{Name: "gshare_seconds", Help: "Time.", Buckets: []float64{1}})
	other = http.HandlerFor(promhttp.HandlerOpts{})
)
`

func TestMetricsOf(t *testing.T) {
	got, err := metricsOf(folderWith(t, source))
	want := []metric{
		{"gshare_plain", "gauge", "Plain.", nil},
		{"gshare_long_total", "counter", "In two parts.", []string{"a", "b"}},
		{"gshare_own", "gauge", "Own.", []string{"d"}},
		{"gshare_share_tokens_total", "counter", "Tokens.", []string{"c"}},
		{"gshare_count_total", "counter", "Count.", []string{"a", "b", "e"}},
		{"gshare_seconds", "histogram", "Time.", nil},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(metric{})); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
}

// TestMetricsNotRead: what cannot be read is an error, never a metric that the page lacks.
func TestMetricsNotRead(t *testing.T) {
	for name, line := range map[string]string{
		"name":       `var m = prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: "Help."})`,
		"help":       `var m = prometheus.NewCounter(prometheus.CounterOpts{Name: "gshare_a"})`,
		"labels":     `var m = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "gshare_a", Help: "Help."}, labels())`,
		"own prefix": `var m = prometheus.NewDesc("node_a", "Help.", nil, nil)`,
		"list":       `var m = prometheus.NewDesc("gshare_a", "Help.", unknown, nil)`,
		"no Go":      `var`,
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := metricsOf(folderWith(t, "package p\n\n"+line+"\n")); err == nil {
				t.Errorf("%+v", got)
			}
		})
	}
}

func TestKeysOf(t *testing.T) {
	folder := folderWith(t, `package p

type C struct {
	Kind string `+"`json:\"kind\"`"+`

	// Devices lists GPUs, not more than Most.
	Devices []string `+"`json:\"devices,omitempty\"`"+`

	// Window is a period | or none.
	Window metav1.Duration `+"`json:\"window\"`"+`

	// Most is a number.
	Most *int64 `+"`json:\"most\"`"+`

	// Part has keys of its own.
	Part *Part `+"`json:\"part\"`"+`
}

type Bare struct {
	// One is a number.
	One int `+"`json:\"one\"`"+`
	Two int `+"`json:\"two\"`"+`
}
`)
	got, err := keysOf(filepath.Join(folder, "a.go"), "C")
	want := []key{
		{"devices", "Devices", "list", "`devices` lists GPUs, not more than `most`.\n"},
		{"window", "Window", "duration", "`window` is a period | or none.\n"},
		{"most", "Most", "number", "`most` is a number.\n"},
		{"part", "Part", "section", "`part` has keys of its own.\n"},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(key{})); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	for name, why := range map[string]string{"D": "is not there", "Bare": "has a field without a comment"} {
		if _, err := keysOf(filepath.Join(folder, "a.go"), name); err == nil {
			t.Errorf("a struct that %s has keys", why)
		}
	}
	if got := row(got[1].name, got[1].text); !strings.Contains(got, `\| or none. |`) {
		t.Errorf("row %q", got)
	}
}

func folderWith(t *testing.T, text string) string {
	t.Helper()
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "a.go"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return folder
}
