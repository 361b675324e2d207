package atomicfile

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// TryRead reads a file unless another process holds a write lease on it (fcntl F_SETLEASE). The error is then unix.EWOULDBLOCK. Root in a
// container can hold one on each file of the node's root that is mounted there, and os.ReadFile would wait for up to 45 s
// (fs.lease-break-time).
func TryRead(path string) ([]byte, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(file)
}
