// Package cuda shares device memory between processes by file descriptors, through the CUDA driver's virtual memory management. It opens the
// driver at run time: NVIDIA's, or the simulated one of hook/fake. All memory is on the first device that the process sees.
package cuda

// #cgo LDFLAGS: -ldl
// #include "memory.h"
import "C"

import (
	"crypto/sha256"
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"github.com/gshare-dev/gshare/vgpu/share"
	"github.com/gshare-dev/gshare/vgpu/store"
)

// Error is a failed call of the driver.
type Error struct {
	Call string // what the call was to do
	Name string // name of the result, such as CUDA_ERROR_OUT_OF_MEMORY
}

func (e *Error) Error() string { return e.Call + ": " + e.Name }

func check(call string, result C.int) error {
	if result == 0 {
		return nil
	}
	return &Error{call, C.GoString(C.memory_error(result))}
}

// Device is the first GPU that the process sees.
type Device struct{}

// Open initialises the driver. It creates no context.
func Open() (Device, error) { return Device{}, check("initialise the CUDA driver", C.memory_open()) }

// Handle is device memory of this process, which lives at least until it is released.
type Handle uint64

// Create allocates device memory that can be exported. size is a multiple of store.Granularity.
func (Device) Create(size share.Bytes) (Handle, error) {
	var h C.memory_handle
	err := check("cuMemCreate", C.memory_create(&h, C.size_t(size)))
	return Handle(h), err
}

// Export returns a new descriptor of memory. Whoever has it may read and write all of the memory, which lives until the descriptor is closed
// everywhere.
func (Device) Export(h Handle) (*os.File, error) {
	var fd C.int
	if err := check("cuMemExportToShareableHandle", C.memory_export(&fd, C.memory_handle(h))); err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "device memory"), nil
}

// Release gives memory back. It is freed once no other process has it.
func (Device) Release(h Handle) error {
	return check("cuMemRelease", C.memory_release(C.memory_handle(h)))
}

// Mapping is memory at an address of the primary context.
type Mapping struct {
	Address uint64
	size    share.Bytes
}

// Map maps all memory of a descriptor for reading, or also for writing. The caller may close the descriptor afterwards. The first call in a
// process creates the primary context, which takes device memory of its own.
func (Device) Map(memory *os.File, size share.Bytes, writable bool) (m Mapping, _ error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var h C.memory_handle
	if err := check("cuMemImportFromShareableHandle", C.memory_import(&h, C.int(memory.Fd()))); err != nil {
		return m, err
	}
	defer C.memory_release(h) // the mapping keeps the memory alive
	write := C.int(0)
	if writable {
		write = 1
	}
	var at C.memory_address
	err := check("map imported memory", C.memory_map(&at, h, C.size_t(size), write))
	return Mapping{uint64(at), size}, err
}

// Unmap removes a mapping.
func (Device) Unmap(m Mapping) error {
	return check("cuMemUnmap", C.memory_unmap(C.memory_address(m.Address), C.size_t(m.size)))
}

// Read copies from a mapping to the host.
func (Device) Read(to []byte, m Mapping, offset share.Bytes) error {
	if len(to) == 0 {
		return nil
	}
	return check("cuMemcpyDtoH", C.memory_read(unsafe.Pointer(&to[0]), C.memory_address(m.Address)+C.memory_address(offset), C.size_t(len(to))))
}

// Write copies from the host to a mapping.
func (Device) Write(m Mapping, offset share.Bytes, from []byte) error {
	if len(from) == 0 {
		return nil
	}
	return check("cuMemcpyHtoD", C.memory_write(C.memory_address(m.Address)+C.memory_address(offset), unsafe.Pointer(&from[0]), C.size_t(len(from))))
}

// piece is how much Digest copies at once.
const piece = 16 * share.MiB

// Digest computes the digest of the first bytes of a mapping.
func (d Device) Digest(m Mapping, bytes share.Bytes) (digest store.Digest, _ error) {
	if bytes > m.size {
		return digest, fmt.Errorf("%d bytes of a mapping of %d", bytes, m.size)
	}
	hash, buffer := sha256.New(), make([]byte, min(piece, bytes))
	for at := share.Bytes(0); at < bytes; at += piece {
		part := buffer[:min(piece, bytes-at)]
		if err := d.Read(part, m, at); err != nil {
			return digest, err
		}
		hash.Write(part)
	}
	return store.Digest(hash.Sum(nil)), nil
}
