package tokenserver

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gshare-dev/gshare/vgpu/api/tokenwire"
)

const (
	// fixedSizeSeals prevents clients from resizing a page, so that no access by the server can fault, and from adding seals.
	fixedSizeSeals = unix.F_SEAL_GROW | unix.F_SEAL_SHRINK | unix.F_SEAL_SEAL
	// readOnlySeals also prevents new writable mappings, so that only the server, which has mapped the page before, can write it.
	readOnlySeals = unix.F_SEAL_FUTURE_WRITE | fixedSizeSeals
)

// page is one page of memory of type T that the server shares with clients.
type page[T any] struct {
	at     *T       // nil after close
	file   *os.File // passed to clients
	memory []byte
}

// newPage creates a zeroed page in a memfd with the given seals.
func newPage[T any](name string, seals int) (_ page[T], err error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return page[T]{}, fmt.Errorf("create page %s: %w", name, err)
	}
	p := page[T]{file: os.NewFile(uintptr(fd), name)}
	defer func() {
		if err != nil {
			p.close()
		}
	}()
	if err := unix.Ftruncate(fd, tokenwire.PageSize); err != nil {
		return p, fmt.Errorf("size page %s: %w", name, err)
	}
	p.memory, err = unix.Mmap(fd, 0, tokenwire.PageSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return p, fmt.Errorf("map page %s: %w", name, err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		return p, fmt.Errorf("seal page %s: %w", name, err)
	}
	*(*tokenwire.PageHead)(unsafe.Pointer(&p.memory[0])) = tokenwire.NewPageHead()
	p.at = (*T)(unsafe.Pointer(&p.memory[0]))
	return p, nil
}

// closeFile closes the file descriptor of the page and keeps the mapping.
func (p *page[T]) closeFile() {
	if p.file != nil {
		p.file.Close()
		p.file = nil
	}
}

// close closes the file descriptor and unmaps the page, which must not be used afterwards.
func (p *page[T]) close() {
	p.closeFile()
	if p.memory != nil {
		_ = unix.Munmap(p.memory) // unmapping a whole mapping cannot fail
		p.at, p.memory = nil, nil
	}
}
