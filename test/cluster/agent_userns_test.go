package cluster_test

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/gshare-dev/gshare/node/grant"
	"github.com/gshare-dev/gshare/node/injection"
	"github.com/gshare-dev/gshare/test/cluster"
)

// TestUserNamespaces: pods with a user namespace of their own (hostUsers: false) get their shares like other pods. If the agent's folder is
// mounted noexec, as /run is in many distributions, pods with hostUsers can still load the hook, but those with their own user namespace
// cannot and are refused.
func TestUserNamespaces(t *testing.T) {
	a := startWithAgents(t, cluster.Options{Nodes: 1, Runtime: buildRunc(t)}, oneGPU)
	ctx := testContext(t)
	node := a.Nodes[0]
	run := func(command string) {
		t.Helper()
		if out, err := node.Machine.Run(ctx, "sh", "-c", command); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	// The kernel lets a user namespace mount /proc only if a /proc without mounts over it is visible, but on the machine, sysctls are mounted
	// over /proc.
	run("mkdir /run/proc && mount -t proc proc /run/proc")
	a.loadsHook(ctx, t, "host-users", true)
	a.loadsHook(ctx, t, "own-users", false)
	a.of[node.Name].Stop()
	run("mount -t tmpfs -o nosuid,nodev,noexec tmpfs /run/gshare/hook")
	if err := a.of[node.Name].Restart(ctx); err != nil {
		t.Fatal(err)
	}
	a.loadsHook(ctx, t, "noexec-host-users", true)
	a.create(ctx, t, withUsers("noexec-own-users", false))
	a.waitEvent(ctx, t, "noexec-own-users", string(grant.UnsafePod))
}

// buildRunc returns a folder with a runc that supports user namespaces, for which Debian's is too old. It skips the test if runc cannot be
// compiled.
func buildRunc(t *testing.T) string {
	t.Helper()
	if err := exec.Command("pkg-config", "--exists", "libseccomp").Run(); err != nil {
		t.Skip("compiling runc needs pkg-config and libseccomp-dev")
	}
	folder, err := filepath.Abs("../../bin/cluster/runc")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", "build", "-C", "runc", "-buildvcs=false", "-tags=seccomp", "-o", folder+"/", "tool")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build runc: %v\n%s", err, out)
	}
	return folder
}

func withUsers(name string, hostUsers bool) *v1.Pod {
	pod := ask(cluster.Pod(name, "sleep", "inf"), 20, 20, 1024)
	pod.Spec.HostUsers = &hostUsers
	return pod
}

// loadsHook checks that a pod runs with its share, in the user namespace that it requests, and that it may execute the hook's file.
func (a *agents) loadsHook(ctx context.Context, t *testing.T, name string, hostUsers bool) {
	t.Helper()
	a.create(ctx, t, withUsers(name, hostUsers))
	out, err := a.Nodes[0].Exec(ctx, a.runsAsPlaced(ctx, t, name), "main", "sh", "-c", "cat /proc/self/uid_map; grep "+injection.Library+" /proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	users, mount, _ := strings.Cut(string(out), "\n")
	if fields := strings.Fields(users); len(fields) != 3 || (fields[1] == "0") != hostUsers {
		t.Errorf("%s: users are mapped as %q", name, users)
	}
	if mount == "" || strings.Contains(mount, "noexec") {
		t.Errorf("%s cannot load the hook: %s", name, mount)
	}
}
