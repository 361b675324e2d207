package standalone

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/gshare-dev/gshare/node/enforcement"
	"github.com/gshare-dev/gshare/test/tokenclient"
)

// TestUnhooked: the status of a run and a metric tell that its program has no hook, and why, as long as the run has no session.
func TestUnhooked(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("gcc is not installed")
	}
	const source = "#include <unistd.h>\nint main(void) { char c; return read(0, &c, 1) != 1; }\n"
	dir := t.TempDir()
	compile := func(name, source string, args ...string) string {
		cmd := exec.Command("gcc", append(args, "-x", "c", "-", "-o", filepath.Join(dir, name))...)
		cmd.Stdin = strings.NewReader(source)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return filepath.Join(dir, name)
	}
	static, hook := compile("static", source, "-static"), compile("libgshare.so", "", "-shared")
	for name, test := range map[string]struct {
		program, preload string
		session          bool
		want             string
	}{
		"static":              {static, hook, false, "statically linked"},
		"static with session": {static, hook, true, ""}, // of another process of the run
		"cleared environment": {"cat", "", false, "started without libgshare.so"},
		"hooked":              {"cat", hook, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, tempDir(t))
			p := startProgram(t, func(cmd *exec.Cmd) {
				*cmd = *exec.Command(test.program)
				cmd.Env = append(os.Environ(), "LD_PRELOAD="+test.preload)
			})
			grant := mustAdmit(t, n, p, ask(100, 100, 1024))
			if test.session {
				session, err := tokenclient.Dial(grant.Dir, 0)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { session.Close() })
			}
			if test.want == "" {
				n.unhooked.observe(n.runs.snapshot(), nil, 0)
			}
			eventually(t, "it has "+test.want, func() bool { return n.Status().Runs[0].Unhooked == test.want })
			text := enforcement.Unhooked("", test.want)
			if r := n.Status().Runs[0]; slices.Contains(r.Enforcement.Missing, text) != (test.want != "") {
				t.Errorf("not in the status: %q", r.Enforcement.Missing)
			}
			if got := testutil.CollectAndCount(n.unhooked); got != len(test.want)/max(len(test.want), 1) {
				t.Errorf("%d series", got)
			}
		})
	}
}
