package main

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestControlSocketIsDamaged: whatever has the name of the control socket, the agent serves it, and deletes nothing but a socket.
func TestControlSocketIsDamaged(t *testing.T) {
	for name, test := range map[string]struct {
		damage func(path string) error
		left   int // files in the directory afterwards
	}{
		"nothing":            {func(string) error { return nil }, 1},
		"an earlier socket":  {func(path string) error { return unix.Mknod(path, unix.S_IFSOCK|0o600, 0) }, 1},
		"a directory":        {func(path string) error { return os.Mkdir(path, 0o755) }, 2},
		"a full directory":   {func(path string) error { return os.MkdirAll(filepath.Join(path, "a"), 0o755) }, 2},
		"a file":             {func(path string) error { return os.WriteFile(path, []byte("x"), 0o600) }, 2},
		"a FIFO":             {func(path string) error { return unix.Mkfifo(path, 0o600) }, 2},
		"a link to nowhere":  {func(path string) error { return os.Symlink("/nonexistent", path) }, 2},
		"a link to itself":   {func(path string) error { return os.Symlink(path, path) }, 2},
		"a link to the root": {func(path string) error { return os.Symlink("/", path) }, 2},
	} {
		t.Run(name, func(t *testing.T) {
			dir, err := os.MkdirTemp("", "gs") // short enough for the name of a socket
			if err != nil {
				t.Fatal(err)
			}
			defer os.RemoveAll(dir)
			path := filepath.Join(dir, "control.sock")
			if err := test.damage(path); err != nil {
				t.Fatal(err)
			}
			listener, err := listen(path)
			if err != nil {
				t.Fatal(err)
			}
			defer listener.Close()
			conn, err := net.Dial("unix", path)
			if err != nil {
				t.Fatal(err)
			}
			entries, err := os.ReadDir(dir)
			if err := errors.Join(err, conn.Close()); err != nil || len(entries) != test.left {
				t.Errorf("%v, %v", entries, err)
			}
		})
	}
}
