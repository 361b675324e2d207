package oip_test

import (
	"strings"
	"testing"

	"github.com/gshare-dev/gshare/serving/oip"
)

// TestModelOf finds the model wherever it stands, and refuses bodies that do not name exactly one.
func TestModelOf(t *testing.T) {
	for body, want := range map[string]string{
		`{"model":"a"}`: "a",
		`{"messages":[{"role":"user","content":"\"model\":\"x\""}],"tools":[{"model":"y"}],"model" : "a.b"} `: "a.b",
		`{"model":"\u0061"}`: "a",
		`{"model":""}`:       "",
	} {
		if got, err := oip.ModelOf([]byte(body)); err != nil || got != want {
			t.Errorf("%s: %q, %v; want %q", body, got, err, want)
		}
	}
	for body, problem := range map[string]string{
		``:                                   "is not an object",
		`[]`:                                 "is not an object",
		`{}`:                                 "model is missing",
		`{"model":null}`:                     "model is not JSON",
		`{"model":"a","model":"b"}`:          "model is given twice",
		`{"model":"a","mo\u0064el":"b"}`:     "model is given twice",
		`{"model":"a"`:                       "is not JSON",
		`{"model":"a"}x`:                     "is not JSON",
		`{"a":` + strings.Repeat("[", 10000): "is nested deeper",
	} {
		if got, err := oip.ModelOf([]byte(body)); err == nil || !strings.Contains(err.Error(), problem) {
			t.Errorf("%.40s: %q, %v; want %q", body, got, err, problem)
		}
	}
}
