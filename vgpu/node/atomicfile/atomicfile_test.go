package atomicfile

import (
	"os"
	"path/filepath"
	"testing"
)

func TestWriteFile(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "file")
	elsewhere := filepath.Join(t.TempDir(), "elsewhere")
	if err := os.Symlink(elsewhere, path+".next"); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name, data string
		perm       os.FileMode
	}{
		{"over a planted link", "a long first text", 0o644},
		{"shorter, other permissions", "short", 0o600},
		{"more than the umask allows", "", 0o666},
	} {
		t.Run(test.name, func(t *testing.T) {
			if err := WriteFile(path, []byte(test.data), test.perm); err != nil {
				t.Fatal(err)
			}
			data, err := os.ReadFile(path)
			if err != nil || string(data) != test.data {
				t.Errorf("read %q, %v; want %q", data, err, test.data)
			}
			if info, err := os.Lstat(path); err != nil || info.Mode() != test.perm {
				t.Errorf("mode %v, %v; want %v", info.Mode(), err, test.perm)
			}
		})
	}
	if entries, _ := os.ReadDir(folder); len(entries) != 1 {
		t.Errorf("%v are in the folder, want the file alone", entries)
	}
	if _, err := os.Stat(elsewhere); !os.IsNotExist(err) {
		t.Errorf("the target of the link was written: %v", err)
	}
}

func TestWriteFileFails(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "occupied")
	if err := os.MkdirAll(filepath.Join(path, "by a folder"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := WriteFile(path, nil, 0o644); err == nil {
		t.Error("a folder was replaced by a file")
	}
	if err := WriteFile(filepath.Join(path, "by a folder"), nil, 0o644); err == nil {
		t.Error("an empty folder was replaced by a file")
	}
	if err := WriteFile(filepath.Join(folder, "missing", "file"), nil, 0o644); err == nil {
		t.Error("a file was written into a folder that does not exist")
	}
	if entries, _ := os.ReadDir(folder); len(entries) != 1 {
		t.Errorf("%v are in the folder: the temporary file was left", entries)
	}
}
