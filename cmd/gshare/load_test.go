package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
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
	text, err := gshareLoad(append(one, server.URL, "-o", "json", "--slo", "10s", "--objective", "50", "--plot", plot)...)
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

func TestLoadUsage(t *testing.T) {
	rates := filepath.Join(t.TempDir(), "rates")
	if err := os.WriteFile(rates, []byte("1\n2\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ arguments, want string }{
		{"", "accepts 1 arg"},
		{"localhost:8080", "want a URL"},
		{"ftp://localhost", "want a URL"},
		{"http://localhost --rate 0", "--rate"},
		{"http://localhost --ramp 10", "two rates"},
		{"http://localhost --ramp 1:2 --trace x", "exclude each other"},
		{"http://localhost --trace absent", "--trace"},
		{"http://localhost --series 1 --trace " + rates, "functions 0 to 0"},
		{"http://localhost --speed 0 --trace " + rates, "--speed"},
		{"http://localhost --arrivals gamma:x", "--arrivals"},
		{"http://localhost --arrivals gamma:0", "cv"},
		{"http://localhost --arrivals bursts", "--arrivals"},
		{"http://localhost --header none", "NAME:VALUE"},
		{"http://localhost --data @absent", "--data"},
		{"http://localhost --plot load.txt", "--plot"},
		{"http://localhost --warm-up 1m", "warmUp"},
		{"http://localhost --rate 1e6 --duration 1h", "requests; want at most"},
	} {
		if _, err := gshareLoad(strings.Fields(c.arguments)...); err == nil || cli.ExitCode(err) != 2 || !strings.Contains(err.Error(), c.want) {
			t.Errorf("gshare load %s: %v, want %q", c.arguments, err, c.want)
		}
	}
}
