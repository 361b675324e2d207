package dataset

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestReadFile(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(outside, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if text, err := ReadFile(outside); err != nil || string(text) != "x" {
		t.Errorf("a file of the file system: %q, %v", text, err)
	}
	text, err := ReadFile(Prefix + "openb/openb_node_list_gpu_node.csv")
	if err != nil || strings.Count(string(text), "\n") != 1214 {
		t.Errorf("openb's nodes: %d lines, %v, want 1,213 and a header", strings.Count(string(text), "\n"), err)
	}
	if _, err := ReadFile(Prefix + "nothing"); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "README") {
		t.Errorf("an unknown file: %v", err)
	}
}

func TestLicensed(t *testing.T) {
	for name, want := range map[string]bool{
		Prefix + "openb/openb_node_list_gpu_node.csv": true, Prefix + "dilu/bursty.txt": false, "dilu/bursty.txt": true,
	} {
		t.Run(name, func(t *testing.T) {
			if Licensed(name) != want {
				t.Errorf("want %v", want)
			}
		})
	}
}

func TestRows(t *testing.T) {
	for name, c := range map[string]struct {
		text, failure string
		want          []string
	}{
		"rows":           {"a, b\n1,2\n\n\"3\n\",4\n", "", []string{"2 2", "4 4"}},
		"no rows":        {"a,b\n", "", nil},
		"empty":          {"", "read header: EOF", nil},
		"missing column": {"a\n1\n", "line 1: no column b", nil},
		"short row":      {"a,b\n1,2\n1\n", "line 3", []string{"2 2"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			var failed error
			for r, err := range Rows(strings.NewReader(c.text), "a", "b") {
				if failed = err; err == nil {
					got = append(got, string(rune('0'+r.Line))+" "+r.Text("b"))
				}
			}
			if !slices.Equal(got, c.want) || (failed == nil) != (c.failure == "") || failed != nil && !strings.Contains(failed.Error(), c.failure) {
				t.Errorf("got %q, %v; want %q, %q", got, failed, c.want, c.failure)
			}
		})
	}
}
