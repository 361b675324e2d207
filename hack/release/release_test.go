package main

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/layout"
)

// build returns a directory of programs for one platform: all are the same small program, which contains a module.
func build(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	source := filepath.Join(dir, "source")
	for name, text := range map[string]string{
		"go.mod":  "module example.com/program\n\ngo 1.26.0\n\nrequire golang.org/x/mod v0.39.0\n",
		"main.go": "package main\n\nimport \"golang.org/x/mod/semver\"\n\nfunc main() { println(semver.IsValid(\"v1.0.0\")) }\n",
	} {
		write(t, filepath.Join(source, name), text)
	}
	sums, err := os.ReadFile("go.sum")
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(source, "go.sum"), string(sums))
	programs := filepath.Join(dir, "programs", "linux_amd64")
	cmd := exec.Command("go", "build", "-mod=mod", "-o", filepath.Join(programs, "gshare"), ".")
	cmd.Dir = source
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	program, err := os.ReadFile(filepath.Join(programs, "gshare"))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range specs {
		for _, name := range s.files {
			write(t, filepath.Join(programs, name), string(program))
		}
	}
	write(t, filepath.Join(dir, "programs", "darwin_arm64", "gshare"), string(program))
	write(t, filepath.Join(dir, "programs", "windows_amd64", "gshare.exe"), string(program))
	write(t, filepath.Join(programs, "root", "lib64", "ld.so"), "library")
	return filepath.Dir(programs)
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
}

func released(t *testing.T, programs string, at time.Time) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "out")
	r := release{version: "v0.1.0", commit: "abc", time: at, programs: programs, root: "../..", out: out}
	if err := r.write(); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestRelease makes releases of small programs: the same ones have the same bytes, later ones do not; their images, archives and records
// contain what they must.
func TestRelease(t *testing.T) {
	programs := build(t)
	at := time.Unix(1_700_000_000, 0).UTC()
	out := released(t, programs, at)
	if again := sums(t, released(t, programs, at)); again != sums(t, out) {
		t.Errorf("the same programs differ:\n%s\n%s", sums(t, out), again)
	}
	if later := sums(t, released(t, programs, at.Add(time.Hour))); later == sums(t, out) {
		t.Error("another time changes nothing: the test compares nothing")
	}
	check := exec.Command("sha256sum", "--check", checksumsFile)
	check.Dir = out
	if text, err := check.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, text)
	}
	t.Run("images", func(t *testing.T) { checkImages(t, filepath.Join(out, "gshare-images_v0.1.0.tar")) })
	t.Run("manifests", func(t *testing.T) {
		for name := range manifests {
			text := read(t, filepath.Join(out, name))
			if strings.Contains(text, ":dev") {
				t.Errorf("%s names an image that is not of the release", name)
			}
		}
		if !strings.Contains(read(t, filepath.Join(out, "gshare.yaml")), "image: gshare-node:v0.1.0\n") {
			t.Error("gshare.yaml does not name gshare-node:v0.1.0")
		}
		if patch := read(t, filepath.Join(out, uninstallFile)); !strings.Contains(patch, "args: [uninstall,") || !strings.Contains(patch, "--patch-file "+uninstallFile) {
			t.Errorf("%s is not the patch of this release:\n%s", uninstallFile, patch)
		}
	})
	t.Run("plugin", func(t *testing.T) {
		krew := read(t, filepath.Join(out, "krew-gshare.yaml"))
		for platform, program := range map[string]string{"linux_amd64": "kubectl-gshare", "darwin_arm64": "kubectl-gshare", "windows_amd64": "kubectl-gshare.exe"} {
			archive := filepath.Join(out, "kubectl-gshare_"+platform+".tar.gz")
			system, arch, _ := strings.Cut(platform, "_")
			sum, err := sha256Of(archive)
			want := "- bin: " + program + "\n    selector:\n      matchLabels:\n        arch: " + arch + "\n        os: " + system + "\n    sha256: " + sum
			if err != nil || !strings.Contains(krew, want) {
				t.Errorf("krew's manifest does not have %s, %v:\n%s", want, err, krew)
			}
			if files, err := exec.Command("tar", "-tzf", archive).Output(); err != nil || !slices.Contains(strings.Fields(string(files)), program) {
				t.Errorf("%s has %s (%v)", archive, files, err)
			}
		}
	})
	t.Run("machine", func(t *testing.T) { checkMachine(t, filepath.Join(out, "gshare_v0.1.0_linux_amd64.tar.gz")) })
	t.Run("materials", func(t *testing.T) {
		var document struct {
			Packages []struct{ Name, VersionInfo, LicenseDeclared string }
		}
		if err := json.Unmarshal([]byte(read(t, filepath.Join(out, materialsFile))), &document); err != nil {
			t.Fatal(err)
		}
		found := false
		for _, p := range document.Packages {
			found = found || p.Name == "golang.org/x/mod" && p.LicenseDeclared == "BSD-3-Clause"
		}
		if !found {
			t.Errorf("golang.org/x/mod is not among %+v", document.Packages)
		}
	})
}

// TestIncomplete shows that a release is not made of too little.
func TestIncomplete(t *testing.T) {
	programs := build(t)
	if err := os.Remove(filepath.Join(programs, "linux_amd64", "gshare-gateway")); err != nil {
		t.Fatal(err)
	}
	for name, r := range map[string]release{
		"a program is missing": {version: "v0.1.0", programs: programs},
		"no programs":          {version: "v0.1.0", programs: t.TempDir()},
		"no version":           {programs: programs},
	} {
		r.root, r.out = "../..", filepath.Join(t.TempDir(), "out")
		if err := r.write(); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// checkMachine unpacks the archive for a machine without Kubernetes: the programs are where the service and gshare look for them, and what
// docs/install.md removes is all of it.
func checkMachine(t *testing.T, archive string) {
	dir := t.TempDir()
	if out, err := exec.Command("tar", "-xzf", archive, "-C", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{"local/bin/gshare", "local/bin/gshare-node", "lib/gshare/libgshare.so", "lib/gshare/libgshare-mps.so", "lib/systemd/system/gshare-node.service"} {
		if _, err := os.Stat(filepath.Join(dir, "usr", want)); err != nil {
			t.Error(err)
		}
	}
	_, after, found := strings.Cut(read(t, "../../docs/install.md"), "\nrm -r ")
	removed, _, _ := strings.Cut(after, "\n")
	if !found {
		t.Fatal("docs/install.md does not say how to remove it")
	}
	for _, path := range strings.Fields(removed) {
		if err := os.RemoveAll(filepath.Join(dir, path)); err != nil {
			t.Error(err)
		}
	}
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			t.Errorf("%s is left", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// checkImages checks an archive of an OCI layout: its images' names, users, programs and licences.
func checkImages(t *testing.T, archive string) {
	dir := t.TempDir()
	if out, err := exec.Command("tar", "-xf", archive, "-C", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	all, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, m := range all.Manifests {
		name := m.Annotations[containerdName]
		names = append(names, name)
		one, err := index.ImageIndex(m.Digest)
		if err != nil {
			t.Fatal(err)
		}
		platforms, err := one.IndexManifest()
		if err != nil || len(platforms.Manifests) != 1 {
			t.Fatalf("%s: %+v, %v", name, platforms, err)
		}
		image, err := one.Image(platforms.Manifests[0].Digest)
		if err != nil {
			t.Fatal(err)
		}
		config, err := image.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		if node := strings.Contains(name, "gshare-node"); node != (config.Config.User == "") {
			t.Errorf("%s runs as %q", name, config.Config.User)
		}
		layers, err := image.Layers()
		if err != nil || len(layers) != 1 {
			t.Fatalf("%s: %d layers, %v", name, len(layers), err)
		}
		content, err := layers[0].Uncompressed()
		if err != nil {
			t.Fatal(err)
		}
		files := list(t, content)
		for _, want := range []string{"usr/local/bin/" + config.Config.Entrypoint[0], "licenses/gshare/LICENSE", "licenses/go/LICENSE", "licenses/golang.org/x/mod@v0.39.0/LICENSE"} {
			if !slices.Contains(files, want) {
				t.Errorf("%s has no %s: %q", name, want, files)
			}
		}
	}
	if len(names) != len(specs) || !slices.Contains(names, "docker.io/library/gshare-node:v0.1.0") {
		t.Errorf("images %q", names)
	}
}

func list(t *testing.T, content io.Reader) (files []string) {
	t.Helper()
	for archive := tar.NewReader(content); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, header.Name)
	}
}

func sums(t *testing.T, out string) string { return read(t, filepath.Join(out, checksumsFile)) }

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestTree shows what an archive depends on.
func TestTree(t *testing.T) {
	at := time.Unix(0, 0)
	one, err := tree{"b/c": {[]byte("x"), 0o644}, "a": {nil, 0o755}}.tar(at)
	if err != nil {
		t.Fatal(err)
	}
	if got := list(t, bytes.NewReader(one)); !slices.Equal(got, []string{"a", "b/", "b/c"}) {
		t.Errorf("files %q", got)
	}
	for _, name := range []string{"/a", "../a", "a//b"} {
		if _, err := (tree{name: {}}).tar(at); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
}
