package store

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/gshare-dev/gshare/node/process"
)

// TestNamespaceOf reads the record that agents write, and refuses pods without a share of the slice.
func TestNamespaceOf(t *testing.T) {
	const pod = "5f0c1d7e-2b1a-4c55-9d0e-1f2a3b4c5d6e"
	record, err := os.ReadFile("../grant/testdata/grant.json")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for id, text := range map[string][]byte{"a": []byte("{"), "b": record, "c": nil} {
		if err := os.Mkdir(filepath.Join(dir, id), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, id, "grant.json"), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, test := range map[string]struct{ slice, pod, want string }{
		"first slice":   {"GPU-1", pod, "team"},
		"second slice":  {"GPU-2", pod, "team"},
		"another slice": {"GPU-3", pod, ""},
		"another pod":   {"GPU-1", "6f0c1d7e-2b1a-4c55-9d0e-1f2a3b4c5d6e", ""},
		"no pod":        {"GPU-1", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := namespaceOf(dir, test.slice, test.pod)
			if got != test.want || (test.want == "") != errors.Is(err, ErrNoGrant) {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
}

// TestOutsideOfPods checks that a process in no container of a pod, as this one, has no namespace by the agent's records.
func TestOutsideOfPods(t *testing.T) {
	p, err := process.Open(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if namespace, err := Grants(t.TempDir(), "GPU-1")(p); err == nil {
		t.Errorf("it is in %s", namespace)
	}
}
