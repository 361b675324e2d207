package hook

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// documentedCalls returns the system calls that docs/trouble.md says the hook needs.
func documentedCalls(t *testing.T) (names []string) {
	t.Helper()
	text, err := os.ReadFile("../docs/trouble.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "## Programs with a seccomp filter")
	section, _, _ = strings.Cut(section, "\n## ")
	for line := range strings.Lines(section) {
		if cells := strings.Split(line, "|"); len(cells) == 5 {
			for _, name := range regexp.MustCompile("`[a-z0-9_]+`").FindAllString(cells[2], -1) {
				names = append(names, strings.Trim(name, "`"))
			}
		}
	}
	if len(names) < 15 {
		t.Fatalf("docs/trouble.md lists only %q", names)
	}
	return names
}

// TestSeccomp runs a program whose seccomp filter allows its own system calls and those that are documented for the hook. It also refuses
// some of them, which has the documented effect.
func TestSeccomp(t *testing.T) {
	dir := built(t)
	program := []string{"brk", "exit", "exit_group", "futex", "getrandom", "madvise", "mmap", "munmap", "mprotect", "newfstatat", "write"}
	allowed := append(documentedCalls(t), program...)
	for name, test := range map[string]struct {
		refused []string
		want    string
	}{
		"all allowed": {nil, "init 0 allocated 0 session 1 helper 1 held 1 again 1"},
		"connect":     {[]string{"connect"}, "init 0 allocated 0 session 0 helper 1 held 0 again 0"},
		"recvmsg":     {[]string{"recvmsg"}, "init 808 allocated 2 session [0-9]+ helper 1 held 0 again [01]"},
		"clone":       {[]string{"clone", "clone3"}, "init 0 allocated 0 session 1 helper 0 held 1 again 0"},
		"fcntl":       {[]string{"fcntl"}, "init 0 allocated 2 session [0-9]+ helper 1 held 0 again [01]"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			calls := slices.DeleteFunc(slices.Clone(allowed), func(call string) bool { return slices.Contains(test.refused, call) })
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			command := exec.CommandContext(ctx, filepath.Join(dir, "seccomp_test"), calls...)
			log := filepath.Join(t.TempDir(), "log")
			command.Env = append(os.Environ(), append(hooked(dir), "GSHARE_LOG="+log)...)
			out, err := command.CombinedOutput()
			if err != nil || !regexp.MustCompile("^"+test.want+"\n$").Match(out) {
				t.Errorf("%v: %s, want %s", err, out, test.want)
			}
			text, _ := os.ReadFile(log) // a missing file is an empty one
			if failed := strings.Contains(string(text), "failed to start helper thread"); failed != (name == "clone") {
				t.Errorf("the log is %s", text)
			}
		})
	}
}
