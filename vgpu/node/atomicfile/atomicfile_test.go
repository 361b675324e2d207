package atomicfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gshare-dev/gshare/test/lease"
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

func TestTryRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if _, err := TryRead(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a file: %v", err)
	}
	if err := os.WriteFile(path, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	if text, err := TryRead(path); err != nil || string(text) != "text" {
		t.Errorf("read %q, %v", text, err)
	}
	lease.Hold(t, path)
	began := time.Now()
	if _, err := TryRead(path); !errors.Is(err, unix.EWOULDBLOCK) || time.Since(began) > 10*time.Second {
		t.Errorf("with a lease on the file: %v after %v", err, time.Since(began))
	}
}
