package tokenserver

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gshare-dev/gshare/vgpu/api/tokenwire"
)

// A size that clients cannot change, so that no access of the server's can fault; and no further seals.
const fixedSize = unix.F_SEAL_GROW | unix.F_SEAL_SHRINK | unix.F_SEAL_SEAL

// readOnly lets nobody but those who already mapped it write the page: the server.
const readOnly = unix.F_SEAL_FUTURE_WRITE | fixedSize

// page is one shared page of type T, mapped by the server. The file is for handing out.
type page[T any] struct {
	at     *T // nil once it is closed
	file   *os.File
	memory []byte
}

// newPage makes a zeroed page with the given seals.
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

// closeFile gives the descriptor back once no process needs it any more; the mapping stays.
func (p *page[T]) closeFile() {
	if p.file != nil {
		p.file.Close()
		p.file = nil
	}
}

// close unmaps the page; nothing may use it afterwards.
func (p *page[T]) close() {
	p.closeFile()
	if p.memory != nil {
		_ = unix.Munmap(p.memory) // a mapping of our own cannot fail to go
		p.at, p.memory = nil, nil
	}
}
