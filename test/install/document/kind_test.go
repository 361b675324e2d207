package document

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// kindScripts copies the scripts of kind/ to a folder beside fakes that only print how they are called: docker, podman and kubectl, and go,
// which runs kind. clusters is what kind lists; images are the images that docker and podman have.
func kindScripts(t *testing.T, clusters, images string) (folder string, run func(script string, environment ...string) (string, error)) {
	t.Helper()
	folder = t.TempDir()
	write := func(name, text string) {
		path := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, script := range []string{"up.sh", "down.sh", "tools.sh"} {
		write("kind/"+script, read(t, "kind/"+script))
	}
	for _, script := range []string{"node-image.sh", "gshare-images.sh"} {
		write("kind/"+script, "#!/bin/bash\necho "+script+"\n")
	}
	called := "#!/bin/bash\necho \"${0##*/} $*\"\n"
	for _, program := range []string{"docker", "podman"} {
		write("programs/"+program, called+`case $1 in inspect) [[ " `+images+` " == *" $4 "* ]] ;; esac`+"\n")
	}
	write("programs/kubectl", called)
	write("programs/go", "#!/bin/bash\n"+`if [[ $* == *"get clusters" ]]; then echo "`+clusters+`"; else echo "go $* by $KIND_EXPERIMENTAL_PROVIDER"; fi`+"\n")
	return folder, func(script string, environment ...string) (string, error) {
		c := exec.Command("bash", filepath.Join(folder, "kind", script))
		c.Env = append([]string{"PATH=" + filepath.Join(folder, "programs") + ":" + os.Getenv("PATH"), "VERSION=v0"}, environment...)
		out, err := c.CombinedOutput()
		return string(out), err
	}
}

// TestKindUpRefuses: what would fail after minutes of building fails at once, with advice on what to do.
func TestKindUpRefuses(t *testing.T) {
	const local = "localhost/gshare-kind-node:v1.37.1"
	for _, c := range []struct {
		name, clusters, images string
		environment            []string
		want                   string // "": it goes on to create the cluster
	}{
		{name: "nothing there"},
		{name: "another cluster", clusters: "gshare-2"},
		{name: "the cluster", clusters: "other\ngshare", want: "there is a cluster with the name gshare already"},
		{name: "no image", environment: []string{"PULL=no", "NODE_IMAGE=mine:1"}, images: local, want: "docker has no image NODE_IMAGE=mine:1"},
		{name: "an image", environment: []string{"PULL=no", "NODE_IMAGE=mine:1"}, images: "mine:1"},
		{name: "an image to pull", environment: []string{"NODE_IMAGE=mine:1"}},
		{name: "an image to make", environment: []string{"PULL=no"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, run := kindScripts(t, c.clusters, c.images)
			out, err := run("up.sh", c.environment...)
			built := strings.Contains(out, "docker build") || strings.Contains(out, "gshare-images.sh")
			if c.want == "" && (err != nil || !built || !strings.Contains(out, "create cluster")) {
				t.Errorf("%v\n%s", err, out)
			}
			if c.want != "" && (err == nil || built || !strings.Contains(out, c.want)) {
				t.Errorf("want an error with %q before anything is built: %v\n%s", c.want, err, out)
			}
			if made := strings.Contains(out, "node-image.sh"); made != (c.name == "an image to make") {
				t.Errorf("made a node image: %v\n%s", made, out)
			}
		})
	}
}

// TestKindDown: the cluster is deleted through the provider that created it, even though Docker, which is tried first, runs as well.
func TestKindDown(t *testing.T) {
	folder, run := kindScripts(t, "", "")
	if out, err := run("up.sh", "KIND_EXPERIMENTAL_PROVIDER=podman"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{"podman", "docker"} { // after the first deletion, the provider is no longer recorded
		if out, err := run("down.sh"); err != nil || !strings.Contains(out, "delete cluster --name gshare by "+want) {
			t.Errorf("want %s: %v\n%s", want, err, out)
		}
	}
	if _, err := os.Stat(filepath.Join(folder, "bin/kind/provider")); !os.IsNotExist(err) {
		t.Error("the provider is still kept:", err)
	}
}
