package profiler

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gshare-dev/gshare/serving/rules/profile"
)

// TestJob measures servers that others have started.
func TestJob(t *testing.T) {
	for name, test := range map[string]struct {
		answer http.HandlerFunc
		oip    bool
		failed string
		err    string
	}{
		"answers":     {answer: func(w http.ResponseWriter, _ *http.Request) { time.Sleep(time.Millisecond) }},
		"refuses":     {answer: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }, failed: "418"},
		"no metadata": {answer: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) }, oip: true, err: "404"},
		// A server that ends while it is asked for them says nothing about the request.
		"ends before the metadata":     {answer: func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, oip: true, failed: "EOF"},
		"ends in the metadata":         {answer: breakOff, oip: true, failed: "unexpected EOF"},
		"ends before the model's load": {answer: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }, oip: true, failed: "503"},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(test.answer)
			defer server.Close()
			r := Request{OIP: test.oip, Header: http.Header{}}
			if err := r.SetDefaults("bert"); err != nil {
				t.Fatal(err)
			}
			written, err := json.Marshal(Job{ // the bound ends the measurement after the closed loop
				Version: JobVersion, Address: strings.TrimPrefix(server.URL, "http://"), Request: r, Batch: 1,
				Load: Load{SLO: time.Second, Objective: 0.99, Bound: 1, Concurrency: 2, Seed: 1},
			})
			if err != nil {
				t.Fatal(err)
			}
			job, err := DecodeJob(written)
			if err != nil {
				t.Fatal(err)
			}
			found, err := job.Run(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			text, err := found.Encode()
			if err != nil || len(text) > MaxOutcome {
				t.Fatalf("%d bytes, %v", len(text), err)
			}
			o, err := DecodeOutcome(string(text), job)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(o.Failed, test.failed) || !strings.Contains(o.Error, test.err) || (test.failed == "") != (o.Failed == "") || (test.err == "") != (o.Error == "") {
				t.Errorf("%s", text)
			}
			if ok := o.Failed == "" && o.Error == ""; ok != (o.Trial != nil) || ok && (o.Trial.Point.Mean < time.Millisecond || o.Trial.Plateau <= 0) {
				t.Errorf("%s", text)
			}
		})
	}
}

// breakOff is a server that ends in the middle of its answer.
func breakOff(w http.ResponseWriter, _ *http.Request) {
	w.Write([]byte(`{"inputs": [`))
	w.(http.Flusher).Flush()
	panic(http.ErrAbortHandler)
}

// TestDecodeOutcome: what a client that is not ours may leave.
func TestDecodeOutcome(t *testing.T) {
	first, again := &Job{Batch: 2}, &Job{Batch: 2, Confirm: 100}
	for name, test := range map[string]struct {
		text string
		job  *Job
		want string // part of the error; none if empty
	}{
		"trial":            {`{"version":1,"trial":{"point":{"batch":2,"Mean":1000000},"plateau":2000}}`, first, ""},
		"failed":           {`{"version":1,"failed":"418"}`, first, ""},
		"confirmed":        {`{"version":1,"trial":{"point":{"batch":2,"Throughput":95},"confirmed":true}}`, again, ""},
		"empty":            {``, first, "outcome"},
		"nothing":          {`{"version":1}`, first, "neither"},
		"another version":  {`{"version":2,"failed":"x"}`, first, "version 2"},
		"unknown field":    {`{"version":1,"fault":"x"}`, first, "fault"},
		"too long":         {`{"version":1,"failed":"` + strings.Repeat("x", MaxOutcome) + `"}`, first, "more than"},
		"another batch":    {`{"version":1,"trial":{"point":{"batch":4,"Mean":1000000}}}`, first, "another job"},
		"not confirmed":    {`{"version":1,"trial":{"point":{"batch":2,"Throughput":95}}}`, again, "another job"},
		"above its rate":   {`{"version":1,"trial":{"point":{"batch":2,"Throughput":101},"confirmed":true}}`, again, "not one"},
		"no time":          {`{"version":1,"trial":{"point":{"batch":2}}}`, first, "mean"},
		"negative plateau": {`{"version":1,"trial":{"point":{"batch":2,"Mean":1},"plateau":-1}}`, first, "not one"},
		"huge plateau":     {`{"version":1,"trial":{"point":{"batch":2,"Mean":1},"plateau":1e300}}`, first, "not one"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := DecodeOutcome(test.text, test.job)
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("error %v, want one with %q", err, test.want)
			}
		})
	}
}

// FuzzDecodeOutcome: whatever a client leaves, what is decoded is a valid measurement or a bounded text.
func FuzzDecodeOutcome(f *testing.F) {
	f.Add(`{"version":1,"trial":{"point":{"batch":2,"Mean":1000000},"plateau":2000}}`, 0.0)
	f.Add(`{"version":1,"failed":"418"}`, 10.0)
	f.Fuzz(func(t *testing.T, text string, confirm float64) {
		if !(confirm >= 0 && confirm < maxRate) {
			return
		}
		o, err := DecodeOutcome(text, &Job{Batch: 2, Confirm: confirm})
		if err != nil {
			return
		}
		if len(o.Failed) > maxReason || len(o.Error) > maxReason {
			t.Errorf("texts of %d and %d bytes", len(o.Failed), len(o.Error))
		}
		if o.Trial != nil {
			p := o.Trial.Point
			p.Model, p.Resource, p.Mean = "m", profile.Resource{CPU: 1}, max(p.Mean, 1)
			if err := p.Validate(); err != nil {
				t.Error(err)
			}
		}
	})
}

func TestDecodeJob(t *testing.T) {
	for text, want := range map[string]string{
		`{"version":1,"batch":0,"load":{"concurrency":1,"slo":1}}`:               "batch",
		`{"version":1,"batch":1,"load":{"concurrency":0,"slo":1}}`:               "load",
		`{"version":1,"batch":1,"load":{"concurrency":1,"slo":1},"confirm":-1}`:  "confirm",
		`{"version":1,"batch":1,"load":{"concurrency":1,"slo":1},"confirms":-1}`: "confirms",
		`{"version":1,"batch":1,"load":{"concurrency":1,"slo":1}}`:               "",
	} {
		if _, err := DecodeJob([]byte(text)); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// TestBodyFile: a job sends the body of a file. Without it, or with one that is too long, nothing can be measured.
func TestBodyFile(t *testing.T) {
	var body atomic.Value
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		body.Store(string(text))
		time.Sleep(time.Millisecond)
	}))
	defer server.Close()
	for name, c := range map[string]struct{ text, err string }{
		"there":    {"a cat", ""},
		"missing":  {"", "no such file"},
		"too long": {strings.Repeat("x", maxBody+1), "more than 1048576 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			r := Request{Header: http.Header{}, BodyFile: filepath.Join(t.TempDir(), "cat")}
			if err := r.SetDefaults("m"); err != nil || r.Method != http.MethodPost {
				t.Fatal(r.Method, err)
			}
			if c.text != "" {
				if err := os.WriteFile(r.BodyFile, []byte(c.text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			job := Job{Address: strings.TrimPrefix(server.URL, "http://"), Request: r, Batch: 1, Load: Load{SLO: time.Second, Objective: 0.99, Bound: 1, Concurrency: 1, Seed: 1}}
			o, err := job.Run(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if (c.err == "") != (o.Error == "") || !strings.Contains(o.Error, c.err) || c.err == "" && body.Load() != c.text {
				t.Errorf("%+v, body %v", o, body.Load())
			}
		})
	}
}
