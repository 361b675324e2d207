package tokenserver_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gshare-dev/gshare/node/cgroup"
	"github.com/gshare-dev/gshare/node/process"
	"github.com/gshare-dev/gshare/node/tokenserver"
	"github.com/gshare-dev/gshare/test/tokenclient"
	"github.com/gshare-dev/gshare/vgpu/api/tokenwire"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// BenchmarkNeed measures the time from a NEED frame until the process runs, on a slice of 16 shares with a process each: the frame,
// one step, and the wake-up.
func BenchmarkNeed(b *testing.B) {
	r := newFixture(b, tempDir(b))
	small := share.Share{SMRequest: 60, SMLimit: 60, QuotaRequest: 1000, QuotaLimit: 1000, Memory: gib}
	var clients []*tokenclient.Client
	for i := range 16 {
		name := fmt.Sprint(i)
		r.add(b, name, small)
		clients = append(clients, r.dial(b, name))
	}
	for i := 0; b.Loop(); i++ {
		c := clients[i%len(clients)]
		if !c.WaitRun(0, time.Second) {
			b.Fatal("no token")
		}
		b.StopTimer()
		for state(c) != tokenwire.Pause {
			time.Sleep(time.Millisecond)
		}
		b.StartTimer()
	}
}

// BenchmarkTick measures one tick of an elastic slice of 16 shares, each with a process that launches all the time.
func BenchmarkTick(b *testing.B) {
	r, clock := newElasticFixture(b)
	small := share.Share{SMRequest: 60, SMLimit: 120, QuotaRequest: 1000, QuotaLimit: 1000, Memory: gib}
	var clients []*tokenclient.Client
	for i := range 16 {
		r.add(b, fmt.Sprint(i), small, elastic)
		clients = append(clients, r.dial(b, fmt.Sprint(i)))
	}
	for b.Loop() {
		for _, c := range clients {
			c.VGPUs[0].Container.Taken.Add(100)
		}
		clock.tick()
	}
}

// BenchmarkFlood measures how long a process of a container needs for a session while another process, which does not belong to the
// container, connects as fast as it can; and which part of one CPU core the server uses meanwhile.
func BenchmarkFlood(b *testing.B) {
	r := newFixture(b, tempDir(b))
	r.add(b, "a", half, func(s *tokenserver.Spec) {
		s.Admit = func(p process.Process) error {
			if _, err := cgroup.Of(p.PID); err != nil || p.PID != os.Getpid() {
				return errors.New("the process does not belong to the container")
			}
			return nil
		}
	})
	start(b, "flood", filepath.Join(r.dir, "a"))
	busy, begin := cpuTime(b), time.Now()
	var longest time.Duration
	failed := 0
	for b.Loop() {
		before := time.Now()
		c, err := tokenclient.Dial(filepath.Join(r.dir, "a"), 0)
		if err != nil {
			failed++
		} else {
			c.Close()
		}
		longest = max(longest, time.Since(before))
		time.Sleep(20 * time.Millisecond) // it is the flood that is measured
	}
	wall := time.Since(begin)
	b.ReportMetric(100*float64(cpuTime(b)-busy)/float64(wall), "%core")
	b.ReportMetric(float64(r.Counters().Refused[tokenserver.OtherContainer])/wall.Seconds(), "refused/s")
	b.ReportMetric(float64(failed), "failed")
	b.ReportMetric(float64(longest.Milliseconds()), "longest-ms")
}

// cpuTime returns the CPU time that this process has used.
func cpuTime(b *testing.B) time.Duration {
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
