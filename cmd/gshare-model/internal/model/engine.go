// Package model runs batches of a synthetic model that a table describes. Its weights are bytes on the device, its kernels take the times in the
// table, and its results are checksums of the inputs, from which a client can tell whether each request got its own result.
package model

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash/crc32"
	"sync"
	"time"

	"github.com/gshare-dev/gshare/cmd/gshare-model/internal/cuda"
)

// Queue runs an engine's kernels and copies in order.
type Queue interface {
	Allocate(bytes int) (cuda.Address, error)
	Free(cuda.Address) error
	Upload(to cuda.Address, from []byte) error
	Download(to []byte, from cuda.Address) error
	Spin(t time.Duration, sm int) error
	Wait() error
}

// ErrNotLoaded is returned for requests while the weights are not on the device.
var ErrNotLoaded = errors.New("the model is not loaded")

// Engine serves one model.
type Engine struct {
	Table Table
	Store Store // shares weights with other servers, set before the first Load; nil: the engine has its own
	// Digest is the SHA-256 of the weights, by which the store identifies them. If it is not set before the first Load with a store, Load
	// generates and hashes all of the weights to compute it.
	Digest *[sha256.Size]byte

	jobs chan job

	mu        sync.Mutex
	changed   *sync.Cond // signals changes of the fields below, which mu guards
	users     int        // number of batches that run or wait
	changing  bool       // whether the model is being loaded or unloaded
	loaded    bool
	weights   cuda.Address
	workspace cuda.Address

	decoding struct {
		sync.Mutex
		streams map[*stream]struct{}
		running bool
	}
}

// job is work for one of the engine's queues.
type job struct {
	run  func(*worker) error
	done chan error
}

// worker is a goroutine with a queue, and device memory for inputs.
type worker struct {
	Queue
	buffer cuda.Address
	size   int
}

// Open returns an engine without weights that runs up to concurrency batches at the same time, each on a queue of its own. The goroutine that
// uses a queue also opens it.
func Open(table Table, concurrency int, open func() (Queue, error)) (*Engine, error) {
	if err := table.Validate(); err != nil {
		return nil, err
	}
	e := &Engine{Table: table, jobs: make(chan job)}
	e.changed = sync.NewCond(&e.mu)
	e.decoding.streams = map[*stream]struct{}{}
	opened := make(chan error)
	for range concurrency {
		go func() {
			q, err := open()
			if opened <- err; err != nil {
				return
			}
			w := &worker{Queue: q}
			for j := range e.jobs {
				j.done <- j.run(w)
			}
		}()
	}
	var err error
	for range concurrency {
		err = errors.Join(err, <-opened)
	}
	return e, err
}

// run runs a job on the first queue that is free, in the order of the calls. It returns early if the context ends before the job has begun.
func (e *Engine) run(ctx context.Context, f func(*worker) error) error {
	j := job{f, make(chan error, 1)}
	select {
	case e.jobs <- j:
		return <-j.done
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// begin waits until the model is not being loaded or unloaded, and keeps others from starting to until end is called. It returns ErrNotLoaded if
// the model is not loaded.
func (e *Engine) begin() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	for e.changing {
		e.changed.Wait()
	}
	if !e.loaded {
		return ErrNotLoaded
	}
	e.users++
	return nil
}

func (e *Engine) end() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.users--
	e.changed.Broadcast()
}

// change runs f, which loads or unloads the model, while no batch runs. It does nothing if the model is already in the wanted state, and records
// that state if f succeeds.
func (e *Engine) change(ctx context.Context, loaded bool, f func(*worker) error) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	for e.changing {
		e.changed.Wait()
	}
	if e.loaded == loaded {
		return nil
	}
	e.changing = true
	for e.users > 0 {
		e.changed.Wait()
	}
	e.mu.Unlock()
	err := e.run(ctx, f)
	e.mu.Lock()
	if err == nil {
		e.loaded = loaded
	}
	e.changing = false
	e.changed.Broadcast()
	return err
}

// Loaded reports whether the model can serve.
func (e *Engine) Loaded() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.loaded && !e.changing
}

// Infer runs one batch and returns the checksum of each row.
func (e *Engine) Infer(ctx context.Context, rows [][]byte) ([]uint32, error) {
	if len(rows) < 1 || len(rows) > e.Table.MaxBatch() {
		return nil, &BatchError{len(rows), e.Table.MaxBatch()}
	}
	if err := e.begin(); err != nil {
		return nil, err
	}
	defer e.end()
	var sums []uint32
	err := e.run(ctx, func(w *worker) (err error) {
		sums, err = e.batch(w, rows)
		return err
	})
	return sums, err
}

// BatchError is the error for a batch with no rows or too many.
type BatchError struct{ Size, Max int }

func (e *BatchError) Error() string {
	return fmt.Sprintf("a batch has 1 to %d rows, not %d", e.Max, e.Size)
}

// batch copies the rows to the device, runs the kernel, and returns the checksums of what is on the device afterwards.
func (e *Engine) batch(w *worker, rows [][]byte) ([]uint32, error) {
	var all []byte
	for _, row := range rows {
		all = append(all, row...)
	}
	name := make([]byte, len(e.Table.Name))
	kernel := e.Table.Batch(len(rows))
	if err := w.reserve(len(all)); err != nil {
		return nil, err
	}
	for _, step := range []func() error{
		func() error { return w.Upload(w.buffer, all) },
		func() error { return w.Spin(kernel.Time, kernel.SM) },
		w.Wait,
		func() error { return w.Download(all, w.buffer) },
		func() error { return w.Download(name, e.weights) },
	} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	sums := make([]uint32, len(rows))
	for i, row := range rows {
		sums[i] = crc32.Update(crc32.ChecksumIEEE(name), crc32.IEEETable, all[:len(row)])
		all = all[len(row):]
	}
	return sums, nil
}

// reserve makes the buffer at least n bytes large.
func (w *worker) reserve(n int) error {
	if n <= w.size {
		return nil
	}
	if w.size > 0 {
		if err := w.Free(w.buffer); err != nil {
			return err
		}
		w.size = 0
	}
	address, err := w.Allocate(n)
	if err == nil {
		w.buffer, w.size = address, n
	}
	return err
}

// Checksum returns the result for a row: the CRC-32 (IEEE) of the model's name followed by the row.
func Checksum(name string, row []byte) uint32 {
	return crc32.Update(crc32.ChecksumIEEE([]byte(name)), crc32.IEEETable, row)
}
