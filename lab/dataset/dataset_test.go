package dataset

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
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
