package main

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gshare-dev/gshare/node/store/client"
	"github.com/gshare-dev/gshare/test/native"
	"github.com/gshare-dev/gshare/vgpu/api/storewire"
	rules "github.com/gshare-dev/gshare/vgpu/store"
)

// onDriver is gshare-node on the fake driver of a folder.
func onDriver(folder string, args ...string) *exec.Cmd {
	cmd := node(args...)
	cmd.Env = append(cmd.Env, "LD_LIBRARY_PATH="+folder, "FAKE_CUDA_SHARED="+filepath.Join(folder, "account"))
	return cmd
}

// TestStore stores the zeros that device memory begins with. verify finds that it could write them, since nothing prevents that here; where the
// driver's call is refused, as a hook could, it finds nothing.
func TestStore(t *testing.T) {
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("gcc is not installed")
	}
	folder, err := os.MkdirTemp("", "gs") // short enough for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(folder) })
	if err := native.Build("../..", folder, native.Driver); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(folder, "store.sock")
	user := fmt.Sprint(os.Geteuid())
	startInstance(t, onDriver(folder, "store", "--socket", socket, "--namespace", user, "--capacity", "64Mi"), "msg=ready")
	const bytes = 3 << 20
	digest := rules.Digest(sha256.Sum256(make([]byte, bytes)))
	c, err := client.Dial(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	w, err := c.Put(rules.Key{Digest: digest, Layout: "half"}, bytes)
	if err != nil {
		t.Fatal(err)
	}
	w.Memory.Close()
	if err := c.Commit(rules.Key{Digest: digest, Layout: "half"}); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		fail, layout string
		code         int
		want         string
	}{
		"writable":       {"", "half", 1, "3145728 bytes are unchanged\ngshare-node: this program could write the weights"},
		"protected":      {"cuMemSetAccess:2", "half", 0, "3145728 bytes are unchanged\n"},
		"another layout": {"", "whole", 1, rules.ErrAbsent.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := onDriver(folder, "store", "verify", "--socket", socket, "--weights", digest.String(), "--layout", test.layout)
			cmd.Env = append(cmd.Env, "FAKE_CUDA_FAIL="+test.fail)
			out, err := cmd.CombinedOutput()
			if code := codeOf(t, err); code != test.code || !strings.Contains(string(out), test.want) {
				t.Errorf("code %d: %s", code, out)
			}
		})
	}
	// A store of another namespace on the same machine.
	other := filepath.Join(folder, "other.sock")
	startInstance(t, onDriver(folder, "store", "--socket", other, "--namespace", "team", "--capacity", "64Mi"), "msg=ready")
	out, err := onDriver(folder, "store", "verify", "--socket", other, "--weights", digest.String()).CombinedOutput()
	if code := codeOf(t, err); code != 1 || !strings.Contains(string(out), storewire.Namespace.Err().Error()) {
		t.Errorf("another namespace: code %d: %s", code, out)
	}
}

// TestChangedWeights checks that verify finds weights that a program has changed after it had committed them.
func TestChangedWeights(t *testing.T) {
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("gcc is not installed")
	}
	folder, err := os.MkdirTemp("", "gs")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(folder) })
	if err := native.Build("../..", folder, native.Driver); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(folder, "store.sock")
	startInstance(t, onDriver(folder, "store", "--socket", socket, "--namespace", fmt.Sprint(os.Geteuid()), "--capacity", "64Mi"), "msg=ready")
	k := rules.Key{Digest: sha256.Sum256(make([]byte, 1000))}
	c, err := client.Dial(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	w, err := c.Put(k, 1000)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Memory.Close()
	if err := c.Commit(k); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Memory.WriteAt([]byte("changed"), 0); err != nil { // the fake driver's memory is that of the file
		t.Fatal(err)
	}
	out, err := onDriver(folder, "store", "verify", "--socket", socket, "--weights", k.Digest.String()).CombinedOutput()
	if code := codeOf(t, err); code != 1 || !strings.Contains(string(out), "the weights have been changed") {
		t.Errorf("code %d: %s", code, out)
	}
}

// TestStoreUsage holds that mistakes in the flags end with code 2.
func TestStoreUsage(t *testing.T) {
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"no flags":     {nil, "--socket"},
		"no namespace": {[]string{"--socket", "s"}, "--namespace"},
		"no capacity":  {[]string{"--socket", "s", "--namespace", "n"}, "--capacity"},
		"no memory":    {[]string{"--socket", "s", "--namespace", "n", "--capacity", "0"}, "--capacity"},
		"no records":   {[]string{"--socket", "s", "--namespace", "n", "--capacity", "1Gi", "--slice", "GPU-1"}, "--grants"},
		"no digest":    {[]string{"verify", "--socket", "s"}, "--weights"},
		"bad digest":   {[]string{"verify", "--socket", "s", "--weights", "sha256:0"}, "sha256:0"},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := node(append([]string{"store"}, test.args...)...).CombinedOutput()
			if code := codeOf(t, err); code != 2 || !strings.Contains(string(out), test.want) {
				t.Errorf("code %d: %s", code, out)
			}
		})
	}
}
