package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gshare-dev/gshare/test/enforce"
)

// TestTimeNamespace runs programs in time namespaces, where the clock differs from that of the token server. As without one, they follow the
// server as long as it answers, notice when it hangs and when it answers again, and never have more than their quota.
func TestTimeNamespace(t *testing.T) {
	if out, err := exec.Command("unshare", "--time", "--monotonic=60", "--fork", "true").CombinedOutput(); err != nil {
		t.Skipf("cannot make a time namespace: %s", out)
	}
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		t.Fatal(err)
	}
	const quota, kernel, heartbeats = 20, 50 * time.Millisecond, 3 * time.Second // heartbeats: how long a server without any is followed
	for name, offset := range map[string]int64{"none": 0, "ahead": 3600, "behind": -now.Sec / 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			agent := b.start(t)
			log := filepath.Join(t.TempDir(), "log")
			said := func(text string) bool {
				all, _ := os.ReadFile(log)
				return strings.Contains(string(all), text)
			}
			b.run(t, "a", 100, quota, "--", "unshare", "--time", fmt.Sprintf("--monotonic=%d", offset), "--fork", "--kill-child",
				"env", "GSHARE_LOG="+log, b.program("spin"), fmt.Sprintf("spin_ns%d_sm1000_blocks64", kernel.Nanoseconds()))
			eventually(t, "it launches", func() bool { return b.launches(t, "a") > 0 })
			pid := b.mustStatus(t).Runs[0].VGPUs[0].Processes[0].PID
			check := func(phase string, from time.Duration) {
				to := b.now()
				busy, most := enforce.Spans(b.gpu.Spans(pid)).Busy(from, to), quota/100.0+2*kernel.Seconds()/(to-from).Seconds()
				t.Logf("%s: %.1f %% of %v", phase, 100*busy, to-from)
				if busy == 0 || busy > most {
					t.Errorf("%s it has %.1f %% of the time, want at most %.1f %%", phase, 100*busy, 100*most)
				}
			}

			from := b.now()
			for b.now() < from+heartbeats+time.Second {
				if r := b.mustStatus(t).Runs[0]; r.SelfPaced != 0 || r.Refused != "" {
					t.Fatalf("while the server answers: self-paced %d, refused %q", r.SelfPaced, r.Refused)
				}
				time.Sleep(20 * time.Millisecond)
			}
			if said("unresponsive") {
				t.Error("while the server answers, it is said not to")
			}
			check("with the server", from)

			_ = agent.Process.Signal(syscall.SIGSTOP)
			eventually(t, "it notices that the server hangs", func() bool { return said("unresponsive") })
			from = b.now()
			time.Sleep(2 * time.Second)
			check("while the server hangs", from)
			_ = agent.Process.Signal(syscall.SIGCONT)
			eventually(t, "it follows the server again", func() bool { return said("responsive again") })
			eventually(t, "the agent knows", func() bool { return b.mustStatus(t).Runs[0].SelfPaced == 0 })
		})
	}
}
