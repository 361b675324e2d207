package standalone

import (
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gshare-dev/gshare/node/process"
	"github.com/gshare-dev/gshare/vgpu/api/control"
)

// TestStop stops runs whose processes end at SIGTERM, or only at SIGKILL, or whose first process has left a child: nothing is left, and the share
// is free. A process beside the run goes on.
func TestStop(t *testing.T) {
	for name, c := range map[string]struct {
		script string
		grace  int64
		least  time.Duration
	}{
		"ends at SIGTERM":              {"echo ready; exec sleep 1000", 60, 0},
		"ignores SIGTERM":              {"trap '' TERM; echo ready; while :; do sleep 1000; done", 1, time.Second},
		"SIGKILL at once":              {"trap '' TERM; echo ready; while :; do sleep 1000; done", 0, 0},
		"a child that ignores SIGTERM": {"(trap '' TERM; exec sleep 1000) & sleep 0.1; echo ready; exec sleep 1000", 1, time.Second},
		"a child in own group":         {"setsid sleep 1000 & sleep 0.1; echo ready; exec sleep 1000", 60, 0},
		"a child that cleans up":       {"trap 'sleep 1; exit' TERM; sleep 0.1; echo ready; while :; do sleep 0.1; done", 60, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			dir := tempDir(t)
			n := newNode(t, dir)
			beside := newProgram(t)
			r, left := startRun(t, n, "x", c.script)
			begin := time.Now()
			if refusal := n.granter.stop(t.Context(), uint32(os.Getuid()), control.StopRequest{Run: "x", GraceSeconds: c.grace}); refusal != nil {
				t.Fatal(*refusal)
			}
			if took := time.Since(begin); took < c.least || took > 30*time.Second {
				t.Errorf("took %v", took)
			}
			if runs := n.Status().Runs; len(runs) > 0 {
				t.Errorf("%+v", runs)
			}
			if pids, err := process.AllStartedWith(left); len(pids) > 0 || err != nil {
				t.Errorf("of %s are left: %v, %v", r, pids, err)
			}
			if !beside.Alive() {
				t.Error("another process has ended")
			}
		})
	}
}

// TestStopRefuses: a user can stop own runs only, and one run at a time.
func TestStopRefuses(t *testing.T) {
	n := newNode(t, tempDir(t))
	p := newProgram(t)
	request := ask(30, 50, 1024)
	request.Name = "twin"
	mustAdmit(t, n, p, request)
	other := newProgram(t)
	mustAdmit(t, n, other, request)
	for name, c := range map[string]struct {
		user uint32
		ask  control.StopRequest
		want string
	}{
		"another's":  {12345, control.StopRequest{Run: n.Status().Runs[0].ID}, "another user's"},
		"none":       {0, control.StopRequest{Run: "nosuch"}, "no run has the name"},
		"two":        {0, control.StopRequest{Run: "twin"}, "more than one"},
		"no grace":   {0, control.StopRequest{Run: n.Status().Runs[0].ID, GraceSeconds: -1}, "0s to 1h"},
		"long grace": {0, control.StopRequest{Run: n.Status().Runs[0].ID, GraceSeconds: maxGrace + 1}, "0s to 1h"},
	} {
		t.Run(name, func(t *testing.T) {
			if refusal := n.granter.stop(t.Context(), c.user, c.ask); refusal == nil || !strings.Contains(refusal.Reason, c.want) {
				t.Errorf("%+v, want %q", refusal, c.want)
			}
			if !p.Alive() || !other.Alive() {
				t.Error("a process has ended")
			}
		})
	}
}

// TestStopOverHTTP sends a request as gshare stop does.
func TestStopOverHTTP(t *testing.T) {
	n := newNode(t, tempDir(t))
	client := overHTTP(t, n)
	_, _ = startRun(t, n, "x", "echo ready; exec sleep 1000")
	for _, want := range []string{"", "no run has the name"} {
		response, err := client.Post("http://agent"+control.StopPath, "", strings.NewReader(`{"run": "x", "graceSeconds": 60}`))
		if err != nil {
			t.Fatal(err)
		}
		var event control.Event
		err = json.NewDecoder(response.Body).Decode(&event)
		response.Body.Close()
		if got := event.Refused; err != nil || (want == "") != (got == nil) || got != nil && !strings.Contains(got.Reason, want) {
			t.Errorf("%+v, %v, want %q", got, err, want)
		}
	}
}

// startRun admits a shell that then runs a script with the environment of its grant, and waits until it has written a line. It returns the run's ID
// and the variable that all its processes have.
func startRun(t *testing.T, n *Node, name, script string) (id, variable string) {
	t.Helper()
	file := filepath.Join(tempDir(t), "environment")
	cmd := exec.Command("sh", "-c", `while [ ! -e "$0.ready" ]; do sleep 0.01; done; export "$(cat "$0")"; exec sh -c "$1"`, file, script)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = cmd.Process.Wait() }()
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	p := &program{cmd: cmd}
	if p.Process, err = process.Open(cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	p.UID = uint32(os.Getuid())
	request := ask(30, 50, 1024)
	request.Name = name
	grant := mustAdmit(t, n, p, request)
	for _, name := range []string{file, file + ".ready"} {
		if err := os.WriteFile(name, []byte(grant.Environment[0]), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := io.ReadFull(out, make([]byte, len("ready"))); err != nil {
		t.Fatal(err)
	}
	return grant.ID, grant.Environment[0]
}
