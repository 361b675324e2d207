package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/gshare-dev/gshare/cmd/internal/cli"
	"github.com/gshare-dev/gshare/serving/load"
)

func gshareLoad(arguments ...string) (string, error) {
	cmd := root()
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetArgs(append([]string{"load"}, arguments...))
	err := cmd.Execute()
	return out.String(), err
}

// TestLoad measures a server that answers, and one that refuses every other request.
func TestLoad(t *testing.T) {
	n := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if n++; r.URL.Path == "/half" && n%2 == 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer server.Close()

	plot := filepath.Join(t.TempDir(), "load.svg")
	one := []string{"--duration", "1s", "--arrivals", "constant", "--rate", "50", "--max-in-flight", "1"} // one at a time, so that n is not raced for
	text, err := gshareLoad(append(one, server.URL, "-o", "json", "--slo", "10s", "--objective", "1", "--plot", plot)...)
	var r load.Result
	if err != nil || json.Unmarshal([]byte(text), &r) != nil || r.Scheduled != 49 || r.SLO == nil || r.Answered+r.Failures[load.Unsent] != 49 {
		t.Errorf("%v: %s", err, text)
	}
	if drawn, err := os.ReadFile(plot); err != nil || !strings.Contains(string(drawn), "<svg") {
		t.Errorf("plot: %v", err)
	}

	text, err = gshareLoad(append(one, server.URL+"/half", "--slo", "10s")...)
	if err == nil || cli.ExitCode(err) != 1 || !strings.Contains(err.Error(), "the objective is 99 %") || !strings.Contains(text, ": 503\n") {
		t.Errorf("half refused: %v\n%s", err, text)
	}
}

// TestLoadUnanswered: a run without an answer fails, and prints no latency.
func TestLoadUnanswered(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	closed := server.URL
	defer server.Close()
	refused, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	refused.Close()
	for name, url := range map[string]string{"404": closed, "refused": "http://" + refused.Addr().String()} {
		t.Run(name, func(t *testing.T) {
			text, err := gshareLoad("--duration", "200ms", "--rate", "50", url)
			if err == nil || cli.ExitCode(err) != 1 || !strings.Contains(err.Error(), "requests was answered") || strings.Contains(text, "p50") {
				t.Errorf("%v\n%s", err, text)
			}
		})
	}
}

func TestLoadUsage(t *testing.T) {
	rates := filepath.Join(t.TempDir(), "rates")
	if err := os.WriteFile(rates, []byte("1\n2\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ arguments, want string }{
		{"", "an argument is missing"},
		{"localhost:8080", "want a URL"},
		{"ftp://localhost", "want a URL"},
		{"http://localhost --rate 0", "--rate"},
		{"http://localhost --ramp 10", "two rates"},
		{"http://localhost --ramp 1:2 --trace x", "exclude each other"},
		{"http://localhost --trace absent", "--trace"},
		{"http://localhost --series 1 --trace " + rates, "functions 0 to 0"},
		{"http://localhost --speed 0 --trace " + rates, "--speed"},
		{"http://localhost --arrivals gamma:x", "--arrivals"},
		{"http://localhost --arrivals gamma:0", "--arrivals: "},
		{"http://localhost --arrivals bursts", "--arrivals"},
		{"http://localhost --header none", "NAME:VALUE"},
		{"http://localhost --data @absent", "--data"},
		{"http://localhost --plot load.txt", "--plot"},
		{"http://localhost --warm-up 1m", "--warm-up: "},
		{"http://", "names no host"},
		{"http://localhost --plot /nowhere/x.svg", "/nowhere"},
		{"http://localhost --plot /dev/null/x.svg", "/dev/null is no folder"},
		{"http://localhost --objective 101", "--objective 101"},
		{"http://localhost --objective 0", "--objective 0"},
		{"http://localhost --objective NaN", "--objective NaN"},
		{"http://localhost --timeout 0s", "--timeout 0s"},
		{"http://localhost --max-in-flight 0", "--max-in-flight 0"},
		{"http://localhost --rate 5 --ramp 1:2", "exclude each other"},
		{"http://localhost --rate 5 --trace " + rates, "exclude each other"},
		{"http://localhost --scale 2", "--trace names none"},
		{"http://localhost --rate 1e6 --duration 1h", "requests; want at most"},
	} {
		if _, err := gshareLoad(strings.Fields(c.arguments)...); err == nil || cli.ExitCode(err) != 2 || !strings.Contains(err.Error(), c.want) {
			t.Errorf("gshare load %s: %v, want %q", c.arguments, err, c.want)
		}
	}
}

// loadFile writes a file of loads.
func loadFile(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "loads.yaml")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestLoadFile sends two loads at the same time: each has its host, its own fields and else those of the flags, and a row of the table.
func TestLoadFile(t *testing.T) {
	var mu sync.Mutex
	asked := map[string]int{}
	turns, last := 0, "" // turns counts the changes from a host to the other
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		asked[fmt.Sprintf("%s %s %s %s", r.Method, r.Host, r.Header.Get("X-A"), body)]++
		if r.Host != last {
			turns, last = turns+1, r.Host
		}
		if r.Host == "bert" {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer server.Close()
	file := loadFile(t, "- {function: resnet50, rate: 30, data: hello, header: ['X-A:1', 'X-B:2']}\n- function: bert\n  rate: 2e1\n  slo: 5s\n  objective: 1\n")

	text, err := gshareLoad("-f", file, server.URL, "--duration", "1s", "--arrivals", "constant", "--slo", "10s", "--header", "X-A:9")
	if err == nil || cli.ExitCode(err) != 1 || err.Error() != "bert: none of the 19 requests was answered" || turns <= 2 {
		t.Errorf("%v; %d turns: one load after the other", err, turns)
	}
	if want := map[string]int{"POST resnet50 1 hello": 29, "GET bert 9 ": 19}; !maps.Equal(asked, want) {
		t.Errorf("asked %v, want %v", asked, want)
	}
	for _, want := range []string{`(?m)^NAME +REQUESTS +RATE .*IN TIME`, `(?m)^resnet50 +29 +29.0/s +29 +0 .* 10000 ms +100.00 % +29.0/s$`, `(?m)^bert +19 +19.0/s +0 +19 +- +- +- +- +5000 ms +0.00 % +0.0/s$`, `(?m)^failed +bert: 19: 503$`} {
		if !regexp.MustCompile(want).MatchString(text) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}

	text, err = gshareLoad("-f", loadFile(t, "- {url: "+server.URL+", function: bert, slo: 1s}\n- {url: "+server.URL+"/x}\n"), "-o", "json", "--duration", "1s")
	if err == nil || cli.ExitCode(err) != 1 || !strings.HasPrefix(err.Error(), "bert: none of the ") {
		t.Errorf("missed objective: %v", err)
	}
	var results []struct {
		Name, URL string
		load.Result
	}
	if err := json.Unmarshal([]byte(text), &results); err != nil || len(results) != 2 || results[0].Name != "bert" || results[1].Name != server.URL+"/x" ||
		results[0].Failures["503"] != results[0].Scheduled || results[1].Answered == 0 {
		t.Errorf("%v: %s", err, text)
	}
}

// TestLoadFileRefused: each mistake is named by its load and field before a request is sent.
func TestLoadFileRefused(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a request was sent") }))
	defer server.Close()
	for text, want := range map[string]string{
		"":                         "want a list of loads",
		"rate: 1":                  "want a list of loads",
		"- {rate: 1, rate: 2}":     `key "rate" already set`,
		"- {}\n- {rat: 1}":         `loads.yaml: load 2: unknown field "rat"`,
		"- {plot: x.svg}":          `load 1: unknown field "plot"`,
		"- {rate: many}":           "load 1: rate: ",
		"- {rate: [1, 2]}":         "load 1: rate: is a list",
		"- {ramp: ['1:2', '1:3']}": "load 1: ramp: want one value, not 2",
		"- {duration: 30}":         `load 1: duration: time: missing unit in duration "30"`,
		"- {data: {a: 1}}":         "load 1: data: has fields",
		"- {slo: }":                "load 1: slo: has no value",
		"- {}\n- {rate: 0}":        "load 2: --rate 0",
		"- {warm-up: 1m}":          "load 1: --warm-up: ",
		"- {url: localhost}":       "load 1: \"localhost\": want a URL",
		"- {url: ''}":              "load 1: url: is missing",
	} {
		if _, err := gshareLoad("-f", loadFile(t, text), server.URL); err == nil || cli.ExitCode(err) != 2 || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	for arguments, want := range map[string]string{
		"-f /nowhere": "--file: open /nowhere", "-f x --plot x.svg": "--plot and --file exclude each other", "-f x a b": `"b" is one argument too many`,
	} {
		if _, err := gshareLoad(strings.Fields(arguments)...); err == nil || cli.ExitCode(err) != 2 || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", arguments, err, want)
		}
	}
}
