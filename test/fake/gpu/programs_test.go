package gpu_test

import (
	"bufio"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	fakegpu "github.com/gshare-dev/gshare/test/fake/gpu"
)

// TestPrograms runs all test programs against the driver without a simulation.
func TestPrograms(t *testing.T) {
	folder := driver(t)
	python, err := filepath.Abs("../../../hook/fake/programs/opened.py")
	if err != nil {
		t.Fatal(err)
	}
	const left = "ok 17112760320 17179869184\n" // 16 GiB less 64 MiB
	for name, test := range map[string]struct {
		arguments []string
		want      string
	}{
		"self test":             {[]string{"selftest"}, "ok\n"},
		"contexts":              {[]string{"contexts"}, "ok\n"},
		"contexts of 2 devices": {[]string{"env", "FAKE_CUDA_DEVICES=2", filepath.Join(folder, "contexts")}, "ok\n"},
		"shared memory":         {[]string{"peers"}, "ok\n"},
		"read-only imports":     {[]string{"env", "FAKE_CUDA_SHARED=" + filepath.Join(t.TempDir(), "account"), filepath.Join(folder, "imports")}, "ok\n"},
		"linked":                {[]string{"linked"}, left},
		"dlsym":                 {[]string{"opened", "dlsym"}, left},
		"cuGetProcAddress":      {[]string{"opened", "v1"}, left},
		"cuGetProcAddress_v2":   {[]string{"opened", "v2"}, left},
		"per-thread streams":    {[]string{"opened", "ptds"}, left},
		"ctypes":                {[]string{"python3", python}, left},
		"threads":               {[]string{"storm", "8", "2000"}, "ok\n"},
		"a failure is reported": {[]string{"env", "FAKE_CUDA_FAIL=cuMemAlloc_v2:1", filepath.Join(folder, "linked")}, "failed d->allocate(&memory, 64 << 20)\n"},
	} {
		t.Run(name, func(t *testing.T) {
			program := filepath.Join(folder, test.arguments[0])
			if _, err := os.Stat(program); err != nil {
				if program, err = exec.LookPath(test.arguments[0]); err != nil {
					t.Skipf("%s is not installed", test.arguments[0])
				}
			}
			cmd := exec.Command(program, test.arguments[1:]...)
			cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+folder)
			if out, _ := cmd.CombinedOutput(); string(out) != test.want {
				t.Errorf("it says %q, want %q", out, test.want)
			}
		})
	}
}

// TestStorm runs many threads on the virtual clock, and checks that the clock never gets stuck and that all kernels run.
func TestStorm(t *testing.T) {
	s := simulation(t, true)
	r, err := s.Start(fakegpu.Client{Folder: driver(t), Arguments: []string{"storm", "6", "500"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Kill)
	if err := s.Await(1); err != nil {
		t.Fatal(err)
	}
	if err := s.Run(10 * time.Second); err != nil {
		t.Fatal(err)
	}
	if out, err := r.Wait(); err != nil || out != "ok\n" {
		t.Errorf("%q, %v", out, err)
	}
	if n := len(s.Spans(r.PID)); n != 3000 {
		t.Errorf("%d of 3000 kernels ran", n)
	}
}

// TestBandwidth checks how long copies take on the modelled GPUs. spin prints the time of a copy including its launch.
func TestBandwidth(t *testing.T) {
	for _, test := range []struct {
		model, kind string
		want        time.Duration // for 12 MB, without the launch
	}{
		{"", "upload", 1000 * time.Microsecond}, {"H200", "upload", 250 * time.Microsecond},
		{"", "copy", 24_000_000 / 900 * time.Nanosecond}, {"H200", "copy", 5000 * time.Nanosecond},
		{"", "memset", 12_000_000 / 900 * time.Nanosecond}, {"A100-80GB", "memset", 12_000_000 / 1935 * time.Nanosecond},
	} {
		s := simulation(t, true)
		r, err := s.Start(fakegpu.Client{
			Folder: driver(t), Arguments: []string{"spin", "12000000", "as=" + test.kind, "sync=1", "count=3"}, Env: []string{"FAKE_CUDA_MODEL=" + test.model},
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(r.Kill)
		if err := errors.Join(s.Await(1), s.Run(time.Second)); err != nil {
			t.Fatal(err)
		}
		var launches int
		var took time.Duration
		out, err := r.Wait()
		if _, scanned := fmt.Sscanf(out, "launches %d waits %d", &launches, &took); err != nil || scanned != nil {
			t.Fatalf("%q: %v, %v", out, err, scanned)
		}
		if over := took - test.want; over < 0 || over > 10*time.Microsecond { // 5 us for the launch and 1 us to set up the copy
			t.Errorf("%s %s: %v, want %v", test.model, test.kind, took, test.want)
		}
	}
}

// TestNamespaces: the driver counts the memory of processes that have the same PID in different PID namespaces, each for as long as it lives.
func TestNamespaces(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to make PID namespaces")
	}
	folder := driver(t)
	environment := append(os.Environ(), "LD_LIBRARY_PATH="+folder, "FAKE_CUDA_SHARED="+filepath.Join(t.TempDir(), "account"))
	used := func() (bytes int64) {
		cmd := exec.Command(filepath.Join(folder, "linked"))
		cmd.Env = environment
		var left, total int64
		out, err := cmd.CombinedOutput()
		if _, scanned := fmt.Sscanf(string(out), "ok %d %d", &left, &total); err != nil || scanned != nil {
			t.Fatalf("%q: %v, %v", out, err, scanned)
		}
		return total - left - 64<<20
	}
	const each = 1 << 30
	var ends []func()
	for n := range int64(3) {
		cmd := exec.Command(filepath.Join(folder, "hold"), fmt.Sprint(each))
		cmd.Env, cmd.SysProcAttr = environment, &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
		input, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		output, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ends = append(ends, sync.OnceFunc(func() {
			input.Close()
			_ = cmd.Wait()
		}))
		t.Cleanup(ends[n])
		if line, err := bufio.NewReader(output).ReadString('\n'); line != "ok\n" {
			t.Fatalf("%q, %v", line, err)
		}
		if got := used(); got != (n+1)*each {
			t.Errorf("%d programs have %d bytes", n+1, got)
		}
	}
	for n, end := range ends {
		end()
		if got := used(); got != int64(2-n)*each {
			t.Errorf("%d programs have %d bytes", 2-n, got)
		}
	}
}

// TestOrphans checks on both clocks that clients exit when their simulation goes away, as it does when a test is killed.
func TestOrphans(t *testing.T) {
	for _, virtual := range []bool{false, true} {
		s := simulation(t, virtual)
		r, err := s.Start(fakegpu.Client{Folder: driver(t), Arguments: []string{"spin", "spin_ns100000_sm1000_blocks1", "threads=3"}})
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(time.Minute, r.Kill) // so that Wait does not block forever
		if virtual {                        // on the machine's clock the client exits at whatever point it has reached, even before its first call
			if err := s.Await(1); err != nil {
				t.Fatal(err)
			}
		}
		_ = s.Close()
		var ended *exec.ExitError
		if _, err := r.Wait(); !errors.As(err, &ended) || ended.ExitCode() != 1 {
			t.Errorf("virtual %v: the client ended with %v", virtual, err)
		}
	}
}

// TestSurface checks that the fake driver exports every function that the hook's symbols.def lists.
func TestSurface(t *testing.T) {
	list, err := os.ReadFile("../../../hook/src/symbols.def")
	if err != nil {
		t.Fatal(err)
	}
	library, err := elf.Open(filepath.Join(driver(t), "libcuda.so.1"))
	if err != nil {
		t.Fatal(err)
	}
	defer library.Close()
	symbols, err := library.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	var missing []string
	entries := regexp.MustCompile(`(?m)^(CUP?|USE)\((?:[A-Z]+, )*(cu\w+)(?:, (ptsz|ptds))?`).FindAllStringSubmatch(string(list), -1)
	for _, entry := range entries {
		names := []string{entry[2]}
		if entry[1] == "CUP" {
			names = append(names, entry[2]+"_"+entry[3])
		}
		for _, name := range names {
			if !slices.ContainsFunc(symbols, func(s elf.Symbol) bool { return s.Name == name && s.Section != elf.SHN_UNDEF }) {
				missing = append(missing, name)
			}
		}
	}
	if len(entries) < 80 || len(missing) > 0 {
		t.Errorf("of %d functions the fake lacks %s", len(entries), strings.Join(missing, ", "))
	}
}
