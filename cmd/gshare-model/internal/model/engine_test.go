package model

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gshare-dev/gshare/cmd/gshare-model/internal/cuda"
	"github.com/gshare-dev/gshare/serving/rules/profile"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// memory is a device whose kernels take their time and nothing else does.
type memory struct {
	mu       sync.Mutex
	blocks   map[cuda.Address][]byte
	next     cuda.Address
	capacity int
	lossy    bool // whether it forgets what is written
	pending  time.Duration
	kernels  []time.Duration
}

func newMemory() *memory {
	return &memory{blocks: map[cuda.Address][]byte{}, next: 1 << 40, capacity: 1 << 30}
}

func (m *memory) Allocate(n int) (cuda.Address, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n > m.capacity {
		return 0, errors.New("out of memory")
	}
	m.capacity -= n
	m.next += 1 << 30
	m.blocks[m.next] = make([]byte, n)
	return m.next, nil
}

func (m *memory) Free(a cuda.Address) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.capacity += len(m.blocks[a])
	delete(m.blocks, a)
	return nil
}

func (m *memory) at(a cuda.Address) []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	for base, block := range m.blocks {
		if a >= base && a < base+cuda.Address(len(block)) {
			return block[a-base:]
		}
	}
	return nil
}

func (m *memory) Upload(to cuda.Address, from []byte) error {
	if copied := copy(m.at(to), from); copied != len(from) {
		return fmt.Errorf("%d of %d bytes fit", copied, len(from))
	}
	if m.lossy {
		clear(m.at(to))
	}
	return nil
}

func (m *memory) Download(to []byte, from cuda.Address) error {
	copy(to, m.at(from))
	return nil
}

func (m *memory) Spin(t time.Duration, _ int) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pending += t
	m.kernels = append(m.kernels, t)
	return nil
}

func (m *memory) Wait() error {
	m.mu.Lock()
	t := m.pending
	m.pending = 0
	m.mu.Unlock()
	time.Sleep(t)
	return nil
}

var resnet = Table{Name: "resnet50", Version: "1", Weights: 9 << 20, Token: 10 * time.Millisecond, Batches: []Batch{
	{1, 5 * time.Millisecond, 400}, {8, 26 * time.Millisecond, 1000},
}}

// engine returns an engine on a device. Its goroutines end with the test's.
func engine(t *testing.T, m *memory, concurrency int) *Engine {
	t.Helper()
	e, err := Open(resnet, concurrency, func() (Queue, error) { return m, nil })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { close(e.jobs) })
	return e
}

// TestInfer: results are the checksums of what went through the device, and a batch takes the time of the table.
func TestInfer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		e := engine(t, m, 1)
		rows := [][]byte{[]byte("one"), {}, []byte("three")}
		if _, err := e.Infer(t.Context(), rows); !errors.Is(err, ErrNotLoaded) {
			t.Errorf("before it is loaded: %v", err)
		}
		if err := e.Load(t.Context()); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		sums, err := e.Infer(t.Context(), rows)
		if err != nil || len(sums) != 3 {
			t.Fatal(sums, err)
		}
		if took := time.Since(start); took != 11*time.Millisecond { // two sevenths of the way from 5 to 26 ms
			t.Errorf("a batch of 3 took %v", took)
		}
		for i, row := range rows {
			if sums[i] != Checksum("resnet50", row) {
				t.Errorf("row %d: %d", i, sums[i])
			}
		}
		var tooMany *BatchError
		if _, err := e.Infer(t.Context(), make([][]byte, 9)); !errors.As(err, &tooMany) || tooMany.Max != 8 {
			t.Errorf("a batch of 9: %v", err)
		}
		m.lossy = true
		if sums, err := e.Infer(t.Context(), rows); err != nil || sums[0] == Checksum("resnet50", rows[0]) {
			t.Errorf("a device that forgets gives the right result: %v, %v", sums, err)
		}
	})
}

// TestConcurrency: so many batches run at once, the others wait, and a client that goes away while it waits leaves the queue.
func TestConcurrency(t *testing.T) {
	for concurrency, want := range map[int]time.Duration{1: 20 * time.Millisecond, 4: 5 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			var devices []*memory
			shared := newMemory()
			e, err := Open(resnet, concurrency, func() (Queue, error) {
				shared.mu.Lock()
				defer shared.mu.Unlock()
				devices = append(devices, newMemory())
				return devices[len(devices)-1], nil
			})
			if err != nil {
				t.Fatal(err)
			}
			defer close(e.jobs)
			e.loaded, e.weights = true, 0 // each queue has memory of its own here, so nothing is compared
			start := time.Now()
			var group sync.WaitGroup
			for range 4 {
				group.Go(func() {
					if _, err := e.Infer(t.Context(), [][]byte{[]byte("row")}); err != nil {
						t.Error(err)
					}
				})
			}
			group.Wait()
			if took := time.Since(start); took != want {
				t.Errorf("%d at once: 4 batches took %v, want %v", concurrency, took, want)
			}
		})
	}
}

// TestLoad: a model that does not fit is not loaded, and unloading frees its memory after the requests that have begun.
func TestLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		m.capacity = 10 << 20
		e := engine(t, m, 1)
		e.Table.Workspace = 1 << 19
		other, err := m.Allocate(5 << 20)
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Load(t.Context()); err == nil || e.Loaded() {
			t.Errorf("with too little memory: %v, loaded %v", err, e.Loaded())
		}
		if m.capacity != 5<<20 {
			t.Errorf("the failed attempt has left %d bytes free", m.capacity)
		}
		if err := m.Free(other); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(e.Load(t.Context()), e.Load(t.Context())); err != nil || !e.Loaded() {
			t.Fatal(err)
		}
		if want := 10<<20 - resnet.Weights - 1<<19; m.capacity != want {
			t.Errorf("%d bytes are free of a loaded model, want %d", m.capacity, want)
		}
		done := make(chan error, 1)
		go func() {
			_, err := e.Infer(t.Context(), [][]byte{[]byte("row")})
			done <- err
		}()
		synctest.Wait()
		if err := e.Unload(t.Context()); err != nil {
			t.Error(err)
		}
		synctest.Wait() // until the answer, if there is one, is sent
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
		default:
			t.Error("the model was unloaded under a request")
		}
		if left := m.capacity; left < 10<<20-16 {
			t.Errorf("%d bytes are free", left)
		}
	})
}

// TestLoadTakesTime: a load takes as long as its table says, each time, and no longer than its context lasts.
func TestLoadTakesTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := engine(t, newMemory(), 1)
		e.Table.Load = 2 * time.Second
		for _, load := range []struct{ limit, want time.Duration }{{time.Minute, 2 * time.Second}, {time.Minute, 2 * time.Second}, {time.Second, time.Second}} {
			ctx, stop := context.WithTimeout(t.Context(), load.limit)
			began := time.Now()
			err := e.Load(ctx)
			stop()
			if err != nil || !e.Loaded() {
				t.Fatalf("loaded: %v, %v", e.Loaded(), err)
			}
			if took := time.Since(began); took != load.want {
				t.Errorf("it took %v, want %v", took, load.want)
			}
			if err := e.Unload(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestGenerate: texts share the decoder's steps, so that two at once take as long as one, and their tokens follow from their prompts.
func TestGenerate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := engine(t, newMemory(), 1)
		if err := e.Load(t.Context()); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		var group sync.WaitGroup
		for _, prompt := range []string{"first", "second"} {
			group.Go(func() {
				var got, want []string
				if err := e.Generate(t.Context(), []byte(prompt), 20, func(token string) error {
					got = append(got, token)
					return nil
				}); err != nil {
					t.Error(err)
				}
				for i := range 20 {
					want = append(want, Token("resnet50", []byte(prompt), i))
				}
				if !slices.Equal(got, want) {
					t.Errorf("%s: %v, want %v", prompt, got, want)
				}
			})
		}
		group.Wait()
		if took := time.Since(start); took < 205*time.Millisecond || took > 240*time.Millisecond { // one after the other: 410 ms
			t.Errorf("two texts of 20 tokens took %v", took)
		}
		stop := errors.New("the client has gone")
		if err := e.Generate(t.Context(), []byte("third"), 5, func(string) error { return stop }); !errors.Is(err, stop) {
			t.Error(err)
		}
		time.Sleep(time.Second)
		e.decoding.Lock()
		defer e.decoding.Unlock()
		if e.decoding.running || len(e.decoding.streams) > 0 {
			t.Error("the decoder runs without a text")
		}
	})
}

// TestFromPoints: a batch takes its time on the most SMs, and keeps busy the fewest on which it is about as fast.
func TestFromPoints(t *testing.T) {
	point := func(batch, sm int, mean time.Duration, memory int) profile.Point {
		return profile.Point{
			Model: "m", Resource: profile.Resource{SM: share.PerMille(sm), Quota: 1000}, Batch: batch, Mean: mean, Memory: share.Bytes(memory),
		}
	}
	half := point(1, 1000, 40*time.Millisecond, 5)
	half.Resource.Quota = 500
	cpu := profile.Point{Model: "m", Resource: profile.Resource{CPU: 1000}, Batch: 1, Mean: time.Second}
	table, err := FromPoints([]profile.Point{
		cpu, half, point(8, 500, 30*time.Millisecond, 90), point(1, 240, 10400*time.Microsecond, 60), point(1, 1000, 10*time.Millisecond, 70),
		point(8, 1000, 20*time.Millisecond, 100), point(1, 120, 15*time.Millisecond, 60),
	})
	want := []Batch{{1, 10 * time.Millisecond, 240}, {8, 20 * time.Millisecond, 1000}}
	if err != nil || !slices.Equal(table.Batches, want) || table.Weights != 60 || table.Name != "m" {
		t.Errorf("%+v, %v", table, err)
	}
	other := point(2, 1000, time.Second, 1)
	other.Model = "n"
	for _, points := range [][]profile.Point{nil, {cpu}, {point(1, 1000, time.Second, 1), other}, {point(0, 1000, time.Second, 1)}} {
		if _, err := FromPoints(points); err == nil {
			t.Errorf("%+v is a table", points)
		}
	}
}

func TestValidate(t *testing.T) {
	for name, change := range map[string]func(*Table){
		"name": func(tb *Table) { tb.Name = "" }, "weights": func(tb *Table) { tb.Weights = 3 }, "tokens": func(tb *Table) { tb.Token = -1 }, "load": func(tb *Table) { tb.Load = -1 },
		"no batch": func(tb *Table) { tb.Batches = nil }, "per mille": func(tb *Table) { tb.Batches[0].SM = 1001 },
		"batch size": func(tb *Table) { tb.Batches[0].Size = 0 }, "twice": func(tb *Table) { tb.Batches[1].Size = 1 },
	} {
		table := resnet
		table.Batches = slices.Clone(resnet.Batches)
		if change(&table); table.Validate() == nil || !strings.Contains(table.Validate().Error(), name) {
			t.Errorf("%s: %v", name, table.Validate())
		}
	}
	if err := resnet.Validate(); err != nil {
		t.Error(err)
	}
}
