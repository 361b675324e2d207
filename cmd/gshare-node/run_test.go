package main

import (
	"encoding/json"
	"strings"
	"syscall"
	"testing"

	"github.com/gshare-dev/gshare/vgpu/api/control"
)

// kernel takes half a millisecond on 60 % of the SMs.
const kernel = "spin_ns500000_sm600_blocks64"

// TestRun lets programs run under an agent and says what people see of them: real programs, hook, agent and command, on the
// fake driver.
func TestRun(t *testing.T) {
	b := newBench(t)
	b.start(t)
	for name, test := range map[string]struct {
		args []string
		code int
		want string
	}{
		"launches":       {[]string{"--", b.program("spin"), kernel, "count=20", "sync=1"}, 0, "launches 20 "},
		"memory":         {[]string{"--", b.program("linked")}, 0, "ok 1006632960 1073741824\n"}, // 64 MiB of the share are taken
		"exit code":      {[]string{"--", "sh", "-c", b.program("spin") + " " + kernel + " count=1 && exit 7"}, 7, "launches 1 "},
		"other driver":   {[]string{"--", b.program("opened"), "v2"}, 0, "ok 1006632960 1073741824\n"},
		"no such":        {[]string{"--", "/nowhere/program"}, 127, "/nowhere/program"},
		"over the share": {[]string{"--mem", "32Mi", "--", b.program("linked")}, 1, "allocate"},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := b.run(t, "a", 60, 50, test.args...).Wait()
			if code := codeOf(t, err); code != test.code || !strings.Contains(out, test.want) {
				t.Errorf("code %d, want %d: %s", code, test.code, out)
			}
			eventually(t, "its share is back", func() bool { return len(b.mustStatus(t).Runs) == 0 })
		})
	}
}

// TestSignalsPassThrough ends programs that are on the device.
func TestSignalsPassThrough(t *testing.T) {
	b := newBench(t)
	b.start(t)
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGKILL} {
		r := b.run(t, "a", 60, 50, "--", b.program("spin"), kernel)
		eventually(t, "it launches", func() bool { return b.launches(t, "a") > 0 })
		if err := syscall.Kill(r.PID, s); err != nil {
			t.Fatal(err)
		}
		_, err := r.Wait()
		if status, ok := statusOf(err); !ok || !status.Signaled() || status.Signal() != s {
			t.Errorf("%v: it ended with %v", s, err)
		}
		eventually(t, "its share is back", func() bool { return len(b.mustStatus(t).Runs) == 0 })
	}
}

// launches is how many the run of that name has made, as the agent knows; 0 if there is none.
func (b *bench) launches(t *testing.T, name string) (n uint64) {
	t.Helper()
	for _, r := range b.mustStatus(t).Runs {
		for _, p := range r.VGPUs[0].Processes {
			if r.Name == name {
				n += p.Launches
			}
		}
	}
	return n
}

// TestFullDevice fills a device: what does not fit is refused with what would, or waits.
func TestFullDevice(t *testing.T) {
	b := newBench(t)
	a := b.start(t)
	first := b.run(t, "first", 60, 60, "--", b.program("spin"), kernel)
	eventually(t, "the first runs", func() bool { return b.launches(t, "first") > 0 })
	out, err := b.run(t, "second", 60, 60, "--", b.program("spin"), kernel, "count=1").Wait()
	if code := codeOf(t, err); code != 1 || !strings.Contains(out, "insufficient GPU SM-time; these would fit: --sm 40, or --quota 35") {
		t.Errorf("code %d: %s", code, out)
	}
	fits := b.run(t, "fits", 40, 60, "--", b.program("spin"), kernel, "count=5")
	if out, err := fits.Wait(); err != nil || !strings.Contains(out, "launches 5 ") {
		t.Errorf("what was said to fit does not: %v: %s", err, out)
	}
	waits := b.run(t, "waits", 60, 60, "--wait", "--", b.program("spin"), kernel, "count=5")
	eventually(t, "it waits", func() bool { return strings.Contains(a.text(), "request queued") })
	ps := b.ps(t)
	if len(ps.Runs) != 1 || ps.Runs[0].Name != "first" {
		t.Errorf("gshare ps lists %+v", ps.Runs)
	}
	first.Kill()
	if out, err := waits.Wait(); err != nil || !strings.Contains(out, "waiting: insufficient") || !strings.Contains(out, "launches 5 ") {
		t.Errorf("who waited: %v: %s", err, out)
	}
}

func (b *bench) ps(t *testing.T) (status control.Status) {
	t.Helper()
	out, err := b.gshare(t, "ps", "-o", "json").Wait()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := json.Unmarshal([]byte(out), &status); err != nil {
		t.Fatal(err)
	}
	return status
}

// TestAgentStopsWhileOneWaits: who waits hears that nobody will answer.
func TestAgentStopsWhileOneWaits(t *testing.T) {
	b := newBench(t)
	a := b.start(t)
	b.run(t, "first", 60, 60, "--", b.program("spin"), kernel)
	eventually(t, "the first runs", func() bool { return b.launches(t, "first") > 0 })
	waits := b.run(t, "waits", 60, 60, "--wait", "--", "true")
	eventually(t, "the other waits", func() bool { return strings.Contains(a.text(), "request queued") })
	a.end(syscall.SIGTERM)
	if out, err := waits.Wait(); codeOf(t, err) != 1 || !strings.Contains(out, "agent") {
		t.Errorf("%v: %s", err, out)
	}
}
