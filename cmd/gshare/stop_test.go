package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestStopCommand: stop ends a run, which its first process notices as SIGTERM, and tells what it does not end. The socket comes from the flag or,
// without one, from GSHARE_SOCKET.
func TestStopCommand(t *testing.T) {
	m := newMachine(t)
	run, _ := m.command(t, "run", "--hook", m.hook, "--sm", "30", "--mem", "8Gi", "--name", "mine", "--", "sleep", "1000")
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = run.Process.Kill() })
	ended := make(chan error, 1)
	go func() { ended <- run.Wait() }()
	waitFor(t, func() bool { return len(m.Status().Runs) == 1 })
	for _, test := range []struct {
		name, socket string
		args         []string
		code         int
		want         string
	}{
		{"another", m.socket, []string{"stop", "other"}, 1, "no run has the name"},
		{"no run", m.socket, []string{"stop"}, 2, "requires the name or ID of one run"},
		{"grace", m.socket, []string{"stop", "mine", "--grace", "2h"}, 2, "--grace 2h0m0s: want 0s to 1h"},
		{"flag before variable", m.socket, []string{"stop", "mine", "--socket", "/nowhere"}, 1, "/nowhere"},
		{"variable", m.socket, []string{"stop", "mine", "--grace", "30s"}, 0, ""},
		{"twice", m.socket, []string{"stop", "mine"}, 1, "no run has the name"},
	} {
		t.Run(test.name, func(t *testing.T) {
			cmd := exec.Command(os.Args[0], test.args...)
			cmd.Env = append(os.Environ(), asGshare+"=1", "GSHARE_SOCKET="+test.socket)
			out, err := cmd.CombinedOutput()
			if code := codeOf(t, err); code != test.code || !strings.Contains(string(out), test.want) {
				t.Errorf("code %d: %s", code, out)
			}
		})
	}
	if err := <-ended; err == nil || err.Error() != "signal: terminated" {
		t.Errorf("%v", err)
	}
}
