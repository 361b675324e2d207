package enforce_test

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/gshare-dev/gshare/test/enforce"
	"github.com/gshare-dev/gshare/test/native"
	"github.com/gshare-dev/gshare/vgpu/share"
	"github.com/gshare-dev/gshare/vgpu/token"
)

var full = flag.Bool("full", false, "run all experiments, at full length")

const (
	ms     = time.Millisecond
	second = time.Second
	window = 100 * ms
	turn   = 5 * ms
)

// table is the token configuration of slices in most experiments.
var table = token.Config{Policy: token.Table, Reserve: 50}

var build struct {
	once   sync.Once
	folder string
	err    error
}

func TestMain(m *testing.M) {
	flag.Parse()
	code := m.Run()
	_ = os.RemoveAll(build.folder)
	os.Exit(code)
}

// built compiles the programs of the GPU's clients, once for all tests, and returns their folder.
func built(t testing.TB) string {
	t.Helper()
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("gcc is not installed")
	}
	build.once.Do(func() {
		if build.folder, build.err = os.MkdirTemp("", "enforce"); build.err == nil {
			build.err = native.Build("../..", build.folder, native.Driver)
		}
	})
	if build.err != nil {
		t.Fatal(build.err)
	}
	return build.folder
}

// results runs an experiment and returns the result of each pod.
func results(t testing.TB, e enforce.Experiment) []enforce.Result {
	t.Helper()
	e.Folder = built(t)
	start := time.Now()
	all, err := e.Run()
	if err != nil {
		t.Fatal(err)
	}
	kernels := 0
	for _, r := range all {
		kernels += len(r.Kernels)
	}
	t.Logf("%v of GPU time, %d kernels, in %v", e.Length, kernels, time.Since(start).Round(ms))
	return all
}

// run runs an experiment and returns the kernels of each pod.
func run(t testing.TB, e enforce.Experiment) (spans []enforce.Spans) {
	t.Helper()
	for _, r := range results(t, e) {
		spans = append(spans, r.Kernels)
	}
	return spans
}

// part returns a share whose limits equal its requests.
func part(sm, quota share.PerMille) share.Share {
	return share.Share{SMRequest: sm, SMLimit: sm, QuotaRequest: quota, QuotaLimit: quota, Memory: 1024 * share.MiB}
}

// kernel returns the name by which the fake driver knows a kernel's length and width.
func kernel(length time.Duration, width share.PerMille) string {
	return fmt.Sprintf("spin_ns%d_sm%d_blocks64", length.Nanoseconds(), width)
}

// greedy returns a load that always has work: kernels of 0.5 ms, on all SMs that it may use.
func greedy(more ...string) []string {
	return append([]string{kernel(500*time.Microsecond, share.Whole)}, more...)
}

func at(option string, t time.Duration) string { return fmt.Sprintf("%s=%d", option, t.Nanoseconds()) }
