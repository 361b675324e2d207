// Package lease holds leases on files in tests, as root in a container can on the node's files that are mounted there.
package lease

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// Hold takes a write lease (fcntl F_SETLEASE) on a file until the test ends. A program that opens the file then waits until the kernel ends the
// lease, after 45 s.
func Hold(t testing.TB, path string) {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	if _, err := unix.FcntlInt(file.Fd(), unix.F_SETLEASE, unix.F_WRLCK); err != nil {
		t.Fatal(err)
	}
}
