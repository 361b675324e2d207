//go:build !killpoints

package killpoint

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestShippedBinaryHasNone(t *testing.T) {
	t.Setenv("GSHARE_TEST_KILL_AT", "recorded")
	At("recorded") // the test goes on
}

// TestTag builds the tests with the tag: a process is killed only if that is asked for, only at its point, so many times later.
func TestTag(t *testing.T) {
	program := filepath.Join(t.TempDir(), "killpoints")
	if out, err := exec.Command("go", "test", "-c", "-tags", "killpoints", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for name, test := range map[string]struct {
		env    string
		killed bool
	}{
		"not asked for": {"", false},
		"third time":    {"recorded:3", true},
		"fourth time":   {"recorded:4", false},
		"another point": {"granted", false},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command(program, "-test.run", "^TestKills$")
			cmd.Env = append(cmd.Environ(), "GSHARE_TEST_KILL_AT="+test.env)
			out, err := cmd.CombinedOutput()
			if !strings.Contains(string(out), "alive") || strings.Contains(string(out), "not killed") == test.killed || (err != nil) != test.killed {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}
