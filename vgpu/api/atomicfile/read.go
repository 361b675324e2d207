package atomicfile

import (
	"errors"
	"fmt"
	"io"
	"os"
)

// maxRead is the number of bytes that TryRead reads. The agent's own files are much smaller.
const maxRead = 16 << 20

// ErrUnfit is returned for what cannot be a file of the agent: a directory, a FIFO, a device, or a file that is too long.
var ErrUnfit = errors.New("not a regular file of a sensible length")

// TryRead reads a regular file. It never waits: opening a FIFO would, and so would a file on which another process holds a write lease (fcntl
// F_SETLEASE), for up to 45 s (fs.lease-break-time). Root in a container can hold one on each file of the node's root that is mounted there;
// the error is then unix.EWOULDBLOCK.
func TryRead(path string) ([]byte, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|noWait, 0)
	if errors.Is(err, errNoDevice) { // a socket, or a device without a driver
		return nil, fmt.Errorf("%w: %w", ErrUnfit, err)
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: %w", path, ErrUnfit)
	}
	text, err := io.ReadAll(io.LimitReader(file, maxRead+1))
	if err == nil && len(text) > maxRead {
		return nil, fmt.Errorf("%s: %w", path, ErrUnfit)
	}
	return text, err
}
