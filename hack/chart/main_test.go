package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const root = "../.."

// TestWritten: the chart that is kept follows from the bases as they are, and holds nothing else.
func TestWritten(t *testing.T) {
	want, err := templates(root)
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range want {
		got, err := os.ReadFile(filepath.Join(root, chartDir, name))
		if err != nil || !bytes.Equal(got, content) {
			t.Errorf("%s differs from the kustomize bases (run make chart): %v", name, err)
		}
	}
	kept, err := filepath.Glob(filepath.Join(root, chartDir, "templates/*"))
	if err != nil || len(kept) != len(want)-1 {
		t.Errorf("%v are kept, %v; %d follow from the bases", kept, err, len(want)-1)
	}
}

// TestLost: a value whose place has gone is an error, as is one with more places than before.
func TestLost(t *testing.T) {
	for name, seen := range map[string]int{"gone": 0, "twice": 2} {
		t.Run(name, func(t *testing.T) {
			m := templater{seen: map[string]int{}}
			for _, v := range substitutions {
				m.seen[v.written] = v.times
			}
			if err := m.checkCounts(); err != nil {
				t.Fatalf("all there: %v", err)
			}
			m.seen[substitutions[1].written] = seen
			if err := m.checkCounts(); err == nil || !strings.Contains(err.Error(), substitutions[1].written) {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestKept: Helm keeps every CustomResourceDefinition, and with it the functions of all users, when a release no longer has it.
func TestKept(t *testing.T) {
	files, err := templates(root)
	if err != nil {
		t.Fatal(err)
	}
	definitions := 0
	for name, content := range files {
		n := bytes.Count(content, []byte("\nkind: CustomResourceDefinition\n"))
		definitions += n
		if kept := bytes.Count(content, []byte("\n    helm.sh/resource-policy: keep\n")); kept != n {
			t.Errorf("%s keeps %d objects, and has %d definitions", name, kept, n)
		}
	}
	if definitions == 0 {
		t.Error("no definitions")
	}
}
