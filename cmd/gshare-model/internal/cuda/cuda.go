// Package cuda calls the CUDA driver, which it opens at run time: NVIDIA's or the simulated one of hook/fake.
package cuda

// #cgo LDFLAGS: -ldl
// #include <stdlib.h>
// #include "driver.h"
import "C"

import (
	"fmt"
	"runtime"
	"time"
	"unsafe"
)

// Error is a failed call of the driver.
type Error struct {
	Call string // the driver function, or what was attempted
	Name string // name of the result, such as CUDA_ERROR_OUT_OF_MEMORY
}

func (e *Error) Error() string { return e.Call + ": " + e.Name }

func check(call string, result C.int) error {
	if result == 0 {
		return nil
	}
	return &Error{call, C.GoString(C.driver_error(result))}
}

// Values of the enum CUdevice_attribute.
const (
	attributeSMs          = 16
	attributeThreadsPerSM = 39
)

// threads is the number of threads in a block: the maximum that CUDA allows.
const threads = 1024

// Device is the first GPU that the process sees.
type Device struct {
	sms   int // number of SMs that the process may use
	perSM int // number of blocks that an SM runs at the same time
}

// Open initialises the driver and retains the primary context of the first GPU.
func Open() (*Device, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := check("open the CUDA driver", C.driver_open()); err != nil {
		return nil, err
	}
	var sms, perSM C.int
	if err := check("cuDeviceGetAttribute", C.driver_attribute(&sms, attributeSMs)); err != nil {
		return nil, err
	}
	if err := check("cuDeviceGetAttribute", C.driver_attribute(&perSM, attributeThreadsPerSM)); err != nil {
		return nil, err
	}
	return &Device{sms: int(sms), perSM: max(1, int(perSM)/threads)}, nil
}

// Address is an address of device memory.
type Address uint64

// Kernel is a loaded kernel that keeps a part of the SMs busy for a time.
type Kernel struct {
	handle unsafe.Pointer
	blocks int
}

// Queue is a stream with pinned host memory for its copies. Only the goroutine that created it may use it.
type Queue struct {
	device  *Device
	stream  unsafe.Pointer
	pinned  unsafe.Pointer
	size    int // of pinned
	kernels map[kernelKey]Kernel
}

type kernelKey struct {
	time time.Duration
	sm   int
}

// NewQueue creates a stream and locks the calling goroutine to its OS thread.
func (d *Device) NewQueue() (*Queue, error) {
	runtime.LockOSThread()
	if err := check("cuCtxSetCurrent", C.driver_enter()); err != nil {
		return nil, err
	}
	q := &Queue{device: d, kernels: map[kernelKey]Kernel{}}
	return q, check("cuStreamCreate", C.driver_stream(&q.stream))
}

// Allocate returns device memory.
func (q *Queue) Allocate(bytes int) (Address, error) {
	var a C.ulonglong
	err := check("cuMemAlloc", C.driver_allocate(&a, C.size_t(bytes)))
	return Address(a), err
}

// Free frees device memory.
func (q *Queue) Free(a Address) error { return check("cuMemFree", C.driver_free(C.ulonglong(a))) }

// staging returns pinned host memory of at least n bytes. It is valid until the next call, which may overwrite or free it.
func (q *Queue) staging(n int) ([]byte, error) {
	if n > q.size {
		if q.pinned != nil {
			if err := check("cuMemFreeHost", C.driver_free_host(q.pinned)); err != nil {
				return nil, err
			}
		}
		q.pinned, q.size = nil, 0
		if err := check("cuMemAllocHost", C.driver_allocate_host(&q.pinned, C.size_t(n))); err != nil {
			return nil, err
		}
		q.size = n
	}
	return unsafe.Slice((*byte)(q.pinned), n), nil
}

// Upload copies bytes to the device and waits for the copy.
func (q *Queue) Upload(to Address, from []byte) error {
	if len(from) == 0 {
		return nil
	}
	pinned, err := q.staging(len(from))
	if err != nil {
		return err
	}
	copy(pinned, from)
	if err := check("cuMemcpyHtoDAsync", C.driver_upload(C.ulonglong(to), q.pinned, C.size_t(len(from)), q.stream)); err != nil {
		return err
	}
	return q.Wait()
}

// Download copies bytes from the device and waits for the copy.
func (q *Queue) Download(to []byte, from Address) error {
	if len(to) == 0 {
		return nil
	}
	pinned, err := q.staging(len(to))
	if err != nil {
		return err
	}
	if err := check("cuMemcpyDtoHAsync", C.driver_download(q.pinned, C.ulonglong(from), C.size_t(len(to)), q.stream)); err != nil {
		return err
	}
	if err := q.Wait(); err != nil {
		return err
	}
	copy(to, pinned)
	return nil
}

// Spin queues a kernel that runs for t on sm per mille of the GPU's SMs, or for longer if the process may use fewer SMs than that.
func (q *Queue) Spin(t time.Duration, sm int) error {
	key := kernelKey{t, sm}
	kernel, loaded := q.kernels[key]
	if !loaded {
		var err error
		if kernel, err = q.load(key); err != nil {
			return err
		}
		q.kernels[key] = kernel
	}
	return check("cuLaunchKernel", C.driver_launch(kernel.handle, C.uint(kernel.blocks), threads, q.stream))
}

// Wait blocks until the device has completed all queued work.
func (q *Queue) Wait() error { return check("cuStreamSynchronize", C.driver_wait(q.stream)) }

func (q *Queue) load(key kernelKey) (Kernel, error) {
	blocks := max(1, q.device.sms*q.device.perSM*key.sm/1000)
	name := kernelName(key.time, key.sm, blocks)
	text, entry := C.CString(ptx(name, key.time)), C.CString(name)
	defer C.free(unsafe.Pointer(text))
	defer C.free(unsafe.Pointer(entry))
	k := Kernel{blocks: blocks}
	return k, check("load a kernel", C.driver_kernel(&k.handle, text, entry))
}

// kernelName returns a name that tells the simulated driver what the kernel does.
func kernelName(t time.Duration, sm, blocks int) string {
	return fmt.Sprintf("spin_ns%d_sm%d_blocks%d", t.Nanoseconds(), sm, blocks)
}
