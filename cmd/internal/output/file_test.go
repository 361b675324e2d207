package output

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestCheckFile: what cannot be written is refused, and nothing is left behind.
func TestCheckFile(t *testing.T) {
	dir := t.TempDir()
	old := filepath.Join(dir, "old.svg")
	if err := os.WriteFile(old, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ file, want string }{
		"new":             {filepath.Join(dir, "new.svg"), ""},
		"exists":          {old, ""},
		"no such folder":  {filepath.Join(dir, "none", "x.svg"), "no such file or directory"},
		"file for folder": {filepath.Join(old, "x.svg"), "old.svg is no folder"},
		"folder":          {dir, "is a folder"},
		"read-only":       {"/proc/x.svg", "write into /proc"},
	} {
		t.Run(name, func(t *testing.T) {
			err := CheckFile(c.file)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("left %v, %v", left, err)
	}
	if text, err := os.ReadFile(old); err != nil || string(text) != "old" {
		t.Errorf("the old file has %q, %v", text, err)
	}
}
