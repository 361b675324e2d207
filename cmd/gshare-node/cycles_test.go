package main

import (
	"flag"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

var cycles = flag.Int("cycles", 1000, "how many starts and ends TestScaleCycles has, with -full")

// cycleFunctions is how many functions of TestScaleCycles go from zero to one replica and back at the same time.
const cycleFunctions = 20

// remains is what there is while no replica runs.
type remains struct {
	processes   int   // children of gshare serve
	descriptors []int // of gshare serve and of the agent
	goroutines  int   // of the agent
	promised    int64 // bytes of device memory
}

// TestScaleCycles scales functions from zero to one replica and back 1,000 times in all, and holds that nothing stays: no process, descriptor, goroutine or
// device memory. It prints how long requests waited for their replicas beyond the time that the models took to load.
func TestScaleCycles(t *testing.T) {
	if !*full {
		t.Skip("1,000 cycles take minutes: they run with -full")
	}
	debug := freeAddress(t)
	b := newBench(t, "debugAddress: "+debug)
	agent := b.start(t)
	var functions []served
	for i := range cycleFunctions {
		functions = append(functions, served{fmt.Sprint("f", i), "sm: 5, quota: 5, quotaLimit: 100, memory: 256Mi", "--batch, 1=1ms", "maxReplicas: 1, window: 2s, keepShared: 1ms"})
	}
	s := b.serve(t, functions...)
	measure := func() remains {
		eventually(t, "no replica is left", func() bool { return len(b.mustStatus(t).Runs) == 0 && children(t, s.Process.Pid) == 0 })
		time.Sleep(100 * time.Millisecond) // for connections that close
		var r remains
		r.processes = children(t, s.Process.Pid)
		r.descriptors = []int{descriptors(t, s.Process.Pid), descriptors(t, agent.Process.Pid)}
		r.goroutines = int(scrape(t, debug)["go_goroutines"].Metric[0].Gauge.GetValue())
		for _, d := range b.mustStatus(t).Devices {
			r.promised += int64(d.Promised)
		}
		return r
	}
	var first remains
	var waits []time.Duration
	for round := range *cycles / cycleFunctions {
		waits = append(waits, s.wake(t, functions)...)
		r := measure()
		if round == 0 {
			first = r
		}
		t.Logf("after %d cycles: %+v", len(waits), r)
	}
	last := measure()
	slices.Sort(waits)
	t.Logf("answers after %v, median, and %v, 99th percentile, with %d replicas that start at once", waits[len(waits)/2], waits[len(waits)*99/100], cycleFunctions)
	if last.processes > 0 || last.promised > 0 || last.goroutines > first.goroutines+5 ||
		last.descriptors[0] > first.descriptors[0]+5 || last.descriptors[1] > first.descriptors[1]+5 {
		t.Errorf("after the first round %+v, in the end %+v", first, last)
	}
	if code := s.end(syscall.SIGQUIT); code != 2 {
		t.Errorf("code %d", code)
	}
	left := strings.Count(s.text(), "\ngoroutine ")
	t.Logf("gshare serve has %d goroutines", left)
	if left == 0 || left > 60+2*cycleFunctions {
		t.Errorf("gshare serve has %d goroutines: %s", left, s.text()[strings.Index(s.text(), "goroutine "):])
	}
}

// wake sends a request to each of the functions, which are at zero, and returns how long the answers took.
func (s *serving) wake(t *testing.T, functions []served) []time.Duration {
	t.Helper()
	took := make([]time.Duration, len(functions))
	var clients sync.WaitGroup
	for i, f := range functions {
		clients.Go(func() {
			began := time.Now()
			status, body, err := s.askOver(&http.Transport{DisableKeepAlives: true}, f.name, "")
			if took[i] = time.Since(began); status != 200 || !strings.Contains(body, f.checksum()) || err != nil {
				t.Errorf("function %s: status %d, %q, %v", f.name, status, body, err)
			}
		})
	}
	clients.Wait()
	return took
}

// TestColdStart prints how long the request to a function at zero takes beyond the time that its model takes to load.
func TestColdStart(t *testing.T) {
	if !*full {
		t.Skip("the starts take a minute: they are measured with -full")
	}
	const starts = 20
	b := newBench(t)
	b.start(t)
	f := resnet50("maxReplicas: 1, window: 2s, keepShared: 1ms")
	f.batches = "--batch, 1=1ms"
	s := b.serve(t, f)
	var beyond []time.Duration
	for n := range starts {
		took := s.wake(t, []served{f})[0]
		loaded := regexp.MustCompile(`loaded the model.* seconds=([0-9.e-]+)`).FindAllStringSubmatch(s.text(), -1)
		if len(loaded) != n+1 {
			t.Fatalf("%d starts: %s", len(loaded), s.text())
		}
		seconds, err := strconv.ParseFloat(loaded[n][1], 64)
		if err != nil {
			t.Fatal(err)
		}
		beyond = append(beyond, took-time.Duration(seconds*float64(time.Second)))
		eventually(t, "no replica is left", func() bool { return len(b.mustStatus(t).Runs) == 0 })
	}
	slices.Sort(beyond)
	t.Logf("beyond the load of the model %v, median of %d starts, %v to %v", beyond[starts/2], starts, beyond[0], beyond[starts-1])
	if beyond[starts/2] > 300*time.Millisecond {
		t.Errorf("the median is %v, want at most 300 ms on a machine that does nothing else", beyond[starts/2])
	}
}

// children returns how many processes a process has started, and these in turn, that still run.
func children(t *testing.T, pid int) (n int) {
	t.Helper()
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return 0 // it has ended
	}
	for _, thread := range threads {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/children", pid, thread.Name()))
		if err != nil {
			continue
		}
		for _, field := range strings.Fields(string(text)) {
			child, err := strconv.Atoi(field)
			if err != nil {
				t.Fatal(err)
			}
			n += 1 + children(t, child)
		}
	}
	return n
}

// descriptors returns how many descriptors a process has.
func descriptors(t *testing.T, pid int) int {
	t.Helper()
	list, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}
