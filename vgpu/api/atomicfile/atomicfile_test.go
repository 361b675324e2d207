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

// TestUpdate: what is there already is not written again, so that a full disk does no harm.
func TestUpdate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := Update(path, []byte("text"), 0o644); err != nil {
		t.Fatal(err)
	}
	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	blocker := path + ".next"
	if err := os.MkdirAll(filepath.Join(blocker, "a"), 0o755); err != nil { // no file can be written
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		data string
		perm os.FileMode
		want bool
	}{
		"the same":          {"text", 0o644, true},
		"another text":      {"texts", 0o644, false},
		"other permissions": {"text", 0o600, false},
	} {
		t.Run(name, func(t *testing.T) {
			if err := Update(path, []byte(test.data), test.perm); (err == nil) != test.want {
				t.Errorf("with a full disk: %v", err)
			}
		})
	}
	if now, err := os.Stat(path); err != nil || !os.SameFile(before, now) {
		t.Errorf("the file was replaced: %v", err)
	}
	if err := os.RemoveAll(blocker); err != nil {
		t.Fatal(err)
	}
	elsewhere := path + ".else"
	if err := errors.Join(os.Rename(path, elsewhere), os.Symlink(elsewhere, path), Update(path, []byte("text"), 0o644)); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Lstat(path); err != nil || !info.Mode().IsRegular() {
		t.Errorf("a link was taken for the file: %v, %v", info.Mode(), err)
	}
}

// TestTryReadUnfit: what is no regular file, or has no end, is refused without waiting.
func TestTryReadUnfit(t *testing.T) {
	for name, make := range map[string]func(path string) error{
		"a directory": func(path string) error { return os.Mkdir(path, 0o755) },
		"a FIFO":      func(path string) error { return unix.Mkfifo(path, 0o600) },
		"a socket":    func(path string) error { return unix.Mknod(path, unix.S_IFSOCK|0o600, 0) },
		"endless":     func(path string) error { return os.Symlink("/dev/zero", path) },
		"huge":        func(path string) error { return errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, 1<<40)) },
		"too long": func(path string) error {
			return errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, maxRead+1))
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "file")
			if err := make(path); err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			if text, err := TryRead(path); !errors.Is(err, ErrUnfit) || time.Since(began) > 10*time.Second {
				t.Errorf("%d bytes, %v after %v", len(text), err, time.Since(began))
			}
		})
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
