package cluster_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// gshare runs kubectl gshare on a node, where the API server can be reached.
func (i *installed) gshare(args ...string) (string, error) {
	out, err := i.Nodes[0].Machine.Run(i.ctx, i.plugin, append(args, "--kubeconfig", i.kubeconfig)...)
	return string(out), err
}

// doctor checks that kubectl gshare doctor finds no problem and is able to check everything.
func (i *installed) doctor(t *testing.T) {
	out, err := i.gshare("doctor", "--all")
	warnings := "1 warnings" // the user's pod lacks the hook that drains its work
	if i.defaults == "" {
		warnings = "2 warnings"
	}
	if err != nil || !strings.Contains(out, " ok, "+warnings+", 0 unknown, 0 failed") {
		t.Errorf("%v\n%s", err, out)
	}
	for _, check := range []string{"api-server", "admission", "leader", "profile", "cdi", "8 x A100", "capacity", "1 pod with shares"} {
		if !strings.Contains(out, check) {
			t.Errorf("nothing of %s in\n%s", check, out)
		}
	}
	t.Log(out)
}

// top checks that kubectl gshare top shows the user's pod with its request and usage.
func (i *installed) top(t *testing.T) {
	out, err := i.gshare("top", "--every", "2s", "-o", "json")
	var look struct {
		Shares []struct {
			Node, Container                   string
			SMPerMille, QuotaPerMille         int64
			UsedPerMille                      int64
			MemoryLimitBytes, MemoryUsedBytes int64
		}
		Errors []string
	}
	if err != nil || json.Unmarshal([]byte(out), &look) != nil || len(look.Shares) != 1 || len(look.Errors) > 0 {
		t.Fatalf("%v\n%s", err, out)
	}
	if s := look.Shares[0]; s.Node != i.Nodes[0].Name || s.Container != "default/least/main" || s.SMPerMille != 240 || s.QuotaPerMille != 1000 ||
		s.MemoryLimitBytes != 4096<<20 || s.UsedPerMille < 1 || s.UsedPerMille > 1000 {
		t.Errorf("%+v", s)
	}
	out, err = i.gshare("top", "--every", "1s", "--times", "1")
	if err != nil || !strings.Contains(out, "default/least/main") {
		t.Errorf("%v\n%s", err, out)
	}
	t.Log(out)
}

// versions waits until all components have reported their versions.
func (i *installed) versions(t *testing.T) { i.says(t, older) }

// says waits until schedulers and agents report the version of an edition. If that edition cannot report its version, it compares the
// images instead.
func (i *installed) says(t *testing.T, v edition) {
	t.Helper()
	var out string
	err := wait.PollUntilContextTimeout(i.ctx, time.Second, time.Minute, true, func(context.Context) (bool, error) {
		var err error
		out, err = i.gshare("version")
		return err == nil && says(out, "gshare-scheduler", "2", v) && says(out, "gshare-node", "1", v), nil
	})
	if err != nil || !says(out, "gshare", "1", newer) || !strings.Contains(out, "kube-apiserver") || !strings.Contains(out, "within one minor version") {
		t.Errorf("%v; want %+v\n%s", err, v, out)
	}
	t.Log(out)
}

func says(table, component, count string, v edition) bool {
	for line := range strings.Lines(table) {
		if f := strings.Fields(line); len(f) >= 3 && f[0] == component && f[2] == count {
			return f[1] == v.version || v.commit != "" && f[1] == v.tag
		}
	}
	return false
}
