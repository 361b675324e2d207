package cdi

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	specs "tags.cncf.io/container-device-interface/specs-go"
)

func TestDirectory(t *testing.T) {
	d := Directory(filepath.Join(t.TempDir(), "cdi"))
	if owner, err := d.OwnerOf("a1"); owner != "" || err != nil {
		t.Fatalf("nobody's file is %q's (%v)", owner, err)
	}
	for _, owner := range []string{"first", "second"} { // the second replaces the first
		if err := d.Write("a1", owner, specs.ContainerEdits{Env: []string{"X=1"}}); err != nil {
			t.Fatal(err)
		}
	}
	if owner, err := d.OwnerOf("a1"); owner != "second" || err != nil {
		t.Errorf("the file is %q's (%v), want second's", owner, err)
	}
	entries, err := os.ReadDir(string(d))
	if err != nil || len(entries) != 1 || !strings.HasSuffix(entries[0].Name(), ".json") {
		t.Errorf("the directory holds %v (%v), want one file", entries, err)
	}
	if keys, err := d.Keys(); err != nil || !cmp.Equal(keys, []string{"a1"}) {
		t.Errorf("keys %v (%v), want a1", keys, err)
	}
	for range 2 { // removing what is gone is no error
		if err := d.Remove("a1"); err != nil {
			t.Fatal(err)
		}
	}
	if keys, _ := d.Keys(); len(keys) != 0 {
		t.Errorf("keys %v are left", keys)
	}
}

// TestSpecGolden compares with a file as agents have it on disk: runtimes and later agents read it.
func TestSpecGolden(t *testing.T) {
	golden, err := os.ReadFile("testdata/gshare.dev-grant-a1.json")
	if err != nil {
		t.Fatal(err)
	}
	d := Directory(t.TempDir())
	if err := d.Write("a1", "0123456789abcdef", specs.ContainerEdits{
		Env:    []string{"CUDA_VISIBLE_DEVICES=GPU-1"},
		Mounts: []*specs.Mount{{HostPath: "/run/gshare/grants/0123456789abcdef", ContainerPath: "/run/gshare", Options: []string{"rbind", "ro"}}},
	}); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(string(d), "gshare.dev-grant-a1.json"))
	if diff := cmp.Diff(string(golden), string(text)+"\n"); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	if owner, err := d.OwnerOf("a1"); owner != "0123456789abcdef" || err != nil {
		t.Errorf("owner %q, %v", owner, err)
	}
}

func TestForeignFile(t *testing.T) {
	d := Directory(t.TempDir())
	for _, text := range []string{
		"", "{}", `{"devices":[{},{}]}`, "not JSON", `{"cdiVersion":"0.6.0","kind":"gshare.dev/grant","devices":[{},{}]}`,
		`{"cdiVersion":"0.6.0","kind":"nvidia.com/gpu","devices":[{}]}`, `{"cdiVersion":"9.0.0","kind":"gshare.dev/grant","devices":[{}]}`,
	} {
		t.Run(text, func(t *testing.T) {
			if err := os.WriteFile(d.file("x"), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			if owner, err := d.OwnerOf("x"); err == nil {
				t.Errorf("taken for a file of %q", owner)
			}
		})
	}
}

const driver = `
cdiVersion: "0.5.0"
kind: nvidia.com/gpu
someNewField: true
containerEdits:
  env: [A=1]
  mounts: [{hostPath: /usr/lib/libcuda.so.1, containerPath: /usr/lib/libcuda.so.1, options: [ro, bind]}]
  deviceNodes: [{path: /dev/nvidiactl}]
devices:
- name: GPU-1
  containerEdits: {deviceNodes: [{path: /dev/nvidia0}, {path: /dev/dri/card0}]}
- name: GPU-2
  containerEdits: {deviceNodes: [{path: /dev/nvidia1}, {path: /dev/dri/card0}]}
`

func TestDriver(t *testing.T) {
	file := filepath.Join(t.TempDir(), "nvidia.yaml")
	if err := os.WriteFile(file, []byte(driver), 0o600); err != nil {
		t.Fatal(err)
	}
	edits, err := Driver(file).Edits([]string{"GPU-2", "GPU-1"})
	if err != nil {
		t.Fatal(err)
	}
	var nodes []string
	for _, n := range edits.DeviceNodes {
		nodes = append(nodes, n.Path)
	}
	want := []string{"/dev/nvidiactl", "/dev/nvidia1", "/dev/dri/card0", "/dev/nvidia0"}
	if !cmp.Equal(nodes, want) || len(edits.Mounts) != 1 || !cmp.Equal(edits.Env, []string{"A=1"}) {
		t.Errorf("nodes %v, %d mounts, env %v", nodes, len(edits.Mounts), edits.Env)
	}
	if _, err := Driver(file).Edits([]string{"GPU-3"}); err == nil {
		t.Error("a device that the driver does not know is no error")
	}
	if _, err := Driver(file + "x").Edits(nil); err == nil {
		t.Error("a missing file is no error")
	}
	if edits, err := Driver("").Edits([]string{"GPU-3"}); err != nil || len(edits.DeviceNodes) != 0 {
		t.Errorf("no driver adds %v (%v)", edits, err)
	}
}
