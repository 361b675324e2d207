package control

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDecodeRunRequest(t *testing.T) {
	got, err := DecodeRunRequest(strings.NewReader(`{"name": "a", "sm": 30, "memoryMiB": 1024, "wait": true}` + "\n"))
	want := RunRequest{Name: "a", SM: new(int64(30)), MemoryMiB: new(int64(1024)), Wait: true}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
}

func TestDecodeRunRequestRefuses(t *testing.T) {
	for name, body := range map[string]string{
		"nothing":          "",
		"half":             `{"sm": 30`,
		"no object":        `[30]`,
		"unknown field":    `{"pid": 1}`,
		"fraction":         `{"sm": 0.5}`,
		"too large":        `{"sm": 9223372036854775808}`,
		"a second request": `{"sm": 30}{"sm": 40}`,
		"garbage behind":   `{"sm": 30}]`,
	} {
		t.Run(name, func(t *testing.T) {
			if r, err := DecodeRunRequest(strings.NewReader(body)); err == nil {
				t.Errorf("decoded %+v", r)
			}
		})
	}
}

// FuzzDecodeRunRequest checks that a decoded request survives another round of encoding and decoding.
func FuzzDecodeRunRequest(f *testing.F) {
	f.Add([]byte(`{"name": "a", "sm": 30, "quota": 50, "memoryMiB": 1024, "vgpus": 1, "wait": true}`))
	f.Add([]byte(`{"smLimit": -1, "quotaLimit": 9223372036854775807, "class": "slo", "isolation": "mps"}`))
	f.Add([]byte(`{"name": "\ud800"} `))
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := DecodeRunRequest(bytes.NewReader(body))
		if err != nil {
			return
		}
		again, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		same, err := DecodeRunRequest(bytes.NewReader(again))
		if diff := cmp.Diff(r, same); err != nil || diff != "" {
			t.Errorf("%s: %v\n%s", again, err, diff)
		}
	})
}
