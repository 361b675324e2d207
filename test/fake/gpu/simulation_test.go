package gpu_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/gshare-dev/gshare/node/tokenserver"
	fakegpu "github.com/gshare-dev/gshare/test/fake/gpu"
	"github.com/gshare-dev/gshare/test/native"
	"github.com/gshare-dev/gshare/vgpu/share"
)

const ms = time.Millisecond

var build struct {
	once   sync.Once
	folder string
	err    error
}

func TestMain(m *testing.M) {
	code := m.Run()
	_ = os.RemoveAll(build.folder)
	os.Exit(code)
}

// driver builds the fake driver once for all tests and returns its folder.
func driver(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("gcc is not installed")
	}
	build.once.Do(func() {
		if build.folder, build.err = os.MkdirTemp("", "fakegpu"); build.err == nil {
			build.err = native.Build("../../..", build.folder, native.Driver)
		}
	})
	if build.err != nil {
		t.Fatal(build.err)
	}
	return build.folder
}

func simulation(t *testing.T, virtual bool) *fakegpu.Simulation {
	t.Helper()
	s, err := fakegpu.New(fakegpu.Config{Socket: filepath.Join(t.TempDir(), "gpu"), Virtual: virtual})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// run starts a spin for each line of arguments, with its percentage of SMs, waits until all have ended, and returns their
// kernels.
func run(t *testing.T, s *fakegpu.Simulation, folder string, until time.Duration, sms share.PerMille, clients ...[]string) (spans [][]fakegpu.Span) {
	t.Helper()
	var running []*fakegpu.Running
	for _, arguments := range clients {
		r, err := s.Start(fakegpu.Client{Folder: folder, Arguments: append([]string{"spin"}, arguments...), SMs: sms})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(r.Kill)
		running = append(running, r)
	}
	if err := s.Await(len(clients)); err != nil {
		t.Fatal(err)
	}
	if err := s.Run(until); err != nil {
		t.Fatal(err)
	}
	for _, r := range running {
		if out, err := r.Wait(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		spans = append(spans, s.Spans(r.PID))
	}
	return spans
}

func TestAlone(t *testing.T) {
	spans := run(t, simulation(t, true), driver(t), 2*time.Second, 0, []string{"spin_ns1000000_sm500_blocks64", "until=1000000000", "sync=1"})[0]
	// A launch takes 5 us of host time, and the kernel 1 ms on the device.
	if n := len(spans); n < 990 || n > 1000 {
		t.Errorf("%d kernels of 1 ms in one second", n)
	}
	for i, span := range spans {
		if span.End-span.Start != ms || i > 0 && span.Start < spans[i-1].End {
			t.Fatalf("kernel %d ran %v-%v after one that ended at %v", i, span.Start, span.End, spans[i-1].End)
		}
	}
}

// TestCap runs kernels of full width on a quarter of the SMs: four processes run side by side, each at a quarter of the
// speed.
func TestCap(t *testing.T) {
	kernel := []string{"spin_ns1000000_sm1000_blocks64", "until=400000000", "sync=4"}
	for i, spans := range run(t, simulation(t, true), driver(t), time.Second, 250, kernel, kernel, kernel, kernel) {
		if n := len(spans); n < 96 || n > 104 {
			t.Errorf("process %d: %d kernels of 4 ms in 400 ms", i, n)
		}
	}
}

// TestGraph counts the kernels of graphs on several streams.
func TestGraph(t *testing.T) {
	spans := run(t, simulation(t, true), driver(t), time.Second, 0,
		[]string{"spin_ns100000_sm500_blocks64", "until=100000000", "sync=1", "as=graph", "graph=10"})[0]
	if n := len(spans); n < 980 || n > 1010 {
		t.Errorf("%d kernels of 0.1 ms in 100 ms", n)
	}
}

// TestRepeat checks that repeating an experiment gives the same result.
func TestRepeat(t *testing.T) {
	folder := driver(t)
	kernels := [][]string{
		{"spin_ns700000_sm600_blocks64", "until=300000000", "sync=3"},
		{"spin_ns300000_sm600_blocks64", "until=300000000", "sync=2", "pause=100000", "streams=2"},
	}
	first := run(t, simulation(t, true), folder, time.Second, 0, kernels...)
	second := run(t, simulation(t, true), folder, time.Second, 0, kernels...)
	for i := range first {
		if a, b := len(first[i]), len(second[i]); a < 50 || a-b > 3 || b-a > 3 {
			t.Errorf("process %d ran %d and %d kernels", i, a, b)
		}
	}
}

// TestReal runs on the machine's clock, and only checks that kernels take at least their time.
func TestReal(t *testing.T) {
	s, start := simulation(t, false), time.Now()
	r, err := s.Start(fakegpu.Client{Folder: driver(t), Arguments: []string{"spin", "spin_ns5000000_sm500_blocks64", "count=20", "sync=1"}})
	if err != nil {
		t.Fatal(err)
	}
	if out, err := r.Wait(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if n, took := len(s.Spans(r.PID)), time.Since(start); n != 20 || took < 100*ms {
		t.Errorf("%d kernels of 5 ms took %v", n, took)
	}
}

// TestVisible runs a program on the second of two GPUs, which is the only one that it sees.
func TestVisible(t *testing.T) {
	s, err := fakegpu.New(fakegpu.Config{Socket: filepath.Join(t.TempDir(), "gpu"), Devices: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	r, err := s.Start(fakegpu.Client{
		Folder: driver(t), Arguments: []string{"spin", "spin_ns1000_sm500_blocks64", "count=1", "sync=1"},
		Env: []string{"FAKE_CUDA_DEVICES=2", "CUDA_VISIBLE_DEVICES=GPU-00000000-0000-0000-0000-000000000001"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if out, err := r.Wait(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if spans, totals := s.Spans(r.PID), s.Totals(); len(spans) != 1 || spans[0].Device != 1 || totals[0].Kernels != 0 || totals[1].Kernels != 1 {
		t.Errorf("kernels %v, totals %v", spans, totals)
	}
}

// TestEmpty advances the clock without any client.
func TestEmpty(t *testing.T) {
	s := simulation(t, true)
	if err := s.Run(time.Second); err != nil {
		t.Fatal(err)
	}
	if now := s.Clock().Now(); now != time.Second {
		t.Errorf("the clock is at %v", now)
	}
}

// TestTimers checks that a timer fires at its time, again after it was set again, and never after Stop.
func TestTimers(t *testing.T) {
	s := simulation(t, true)
	clock := s.Clock()
	var fired []time.Duration
	var again, stopped tokenserver.Timer
	again = clock.NewTimer(func() {
		fired = append(fired, clock.Now())
		again.Set(clock.Now() + 5*ms)
	})
	stopped = clock.NewTimer(func() { t.Error("a stopped timer fired") })
	stopped.Set(7 * ms)
	again.Set(5 * ms)
	stopped.Stop()
	if err := s.Run(12 * ms); err != nil {
		t.Fatal(err)
	}
	if want := []time.Duration{5 * ms, 10 * ms}; !slices.Equal(fired, want) {
		t.Errorf("fired at %v, want %v", fired, want)
	}
}
