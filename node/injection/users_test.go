package injection

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/gshare-dev/gshare/node/grant"
)

// TestCheckUsers: test/cluster has the mounts of real containers.
func TestCheckUsers(t *testing.T) {
	for name, c := range map[string]struct {
		hostUsers       *bool
		noExec, refused bool
	}{
		"own users, noexec":    {new(false), true, true},
		"own users":            {new(false), false, false},
		"host's users, noexec": {new(true), true, false},
		"users not said to be": {nil, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			const hook = "/run/gshare/hook/libgshare.so"
			refusal := checkUsers(&v1.Pod{Spec: v1.PodSpec{HostUsers: c.hostUsers}}, hook, func(file string) bool { return c.noExec && file == hook })
			if (refusal != nil) != c.refused || refusal != nil && (refusal.Reason != grant.UnsafePod || !strings.Contains(refusal.Text, hook)) {
				t.Errorf("%+v", refusal)
			}
		})
	}
}

// TestIsNoExec: a file that cannot be looked at is not refused for it.
func TestIsNoExec(t *testing.T) {
	for _, file := range []string{"/bin/sh", "/nowhere/libgshare.so", ""} {
		if isNoExec(file) {
			t.Errorf("%q is mounted noexec", file)
		}
	}
}
