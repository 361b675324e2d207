package install_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/gshare-dev/gshare/test/install/document"
	"github.com/gshare-dev/gshare/test/install/manifest"
)

// blocks returns the code examples of all documents.
func blocks(t *testing.T) []document.Block {
	t.Helper()
	all, err := document.Blocks(root)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func objects(t *testing.T, where, text string) []*unstructured.Unstructured {
	t.Helper()
	all, err := manifest.Parse(text)
	if err != nil {
		t.Fatalf("%s: %v", where, err)
	}
	for _, o := range all {
		if o.GetNamespace() == "" {
			o.SetNamespace("default")
		}
	}
	return all
}

// TestExamples: the API server, with the policies installed, accepts every object in the documentation and in the kind demo.
func TestExamples(t *testing.T) {
	enforce(t)
	defineServing(t)
	demo, err := os.ReadFile(root + "kind/demo.yaml")
	if err != nil {
		t.Fatal(err)
	}
	tried := 0
	for _, b := range append(blocks(t), document.Block{File: "kind/demo.yaml", Language: "yaml", Text: string(demo)}) {
		if b.Language != "yaml" || strings.HasPrefix(b.Text, "- ") { // a list, such as the loads of gshare load, is not an object
			continue
		}
		for _, o := range objects(t, b.File, whole(b.Text)) {
			if foreign(o.GetAPIVersion()) {
				continue
			}
			tried++
			if err := dryRun(t, podFor(t, o)); err != nil {
				t.Errorf("%s: %s: %v", b.File, key(o), err)
			}
		}
	}
	if tried < 9 {
		t.Errorf("only %d examples", tried)
	}
}

// foreign reports whether an object belongs to Kueue, KEDA or KServe, whose CRDs are not installed here.
func foreign(apiVersion string) bool {
	for _, group := range []string{"kueue.", "keda.sh/", "serving.kserve.io/"} {
		if strings.HasPrefix(apiVersion, group) {
			return true
		}
	}
	return false
}

// whole completes an example that shows only a pod specification to a pod.
func whole(text string) string {
	if strings.HasPrefix(text, "spec:") {
		return "apiVersion: v1\nkind: Pod\nmetadata: {name: example}\n" + text
	}
	return text
}

// podFor returns the pod that a controller would create for an object, since none runs here. Objects without a pod template are
// returned unchanged.
func podFor(t *testing.T, o *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	spec, present, err := unstructured.NestedMap(o.Object, "spec", "template", "spec")
	if err != nil || !present || strings.HasPrefix(o.GetAPIVersion(), "serving.gshare.dev/") {
		return o
	}
	if err := dryRun(t, o); err != nil {
		t.Error(err)
	}
	pod := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Pod", "spec": spec}}
	pod.SetName(o.GetName())
	pod.SetNamespace(o.GetNamespace())
	return pod
}

// enforce installs the policies and waits until they are in force.
func enforce(t *testing.T) {
	t.Helper()
	for _, o := range build(t, "manifests/admission") {
		if err := create(t, o, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	refused(t, "gshare/sm: 9999, gshare/mem: 1", "gshare/sm:")
}

// asking returns a pod with these limits.
func asking(t *testing.T, limits string) *unstructured.Unstructured {
	t.Helper()
	return objects(t, "", "apiVersion: v1\nkind: Pod\nmetadata: {name: asking}\nspec:\n  containers:\n"+
		"  - {name: main, image: x, resources: {limits: {"+limits+"}}}\n")[0]
}

// refused waits until a policy is in force that refuses a pod with these limits, for the given reason.
func refused(t *testing.T, limits, why string) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		last = dryRun(t, asking(t, limits))
		return last != nil && strings.Contains(last.Error(), why), nil
	})
	if err != nil {
		t.Fatalf("nothing refuses %s: %v", limits, last)
	}
}

// TestLargestGPU: the documented policy refuses exactly the pods that no GPU of the cluster could hold.
func TestLargestGPU(t *testing.T) {
	enforce(t)
	made := 0
	for _, b := range blocks(t) {
		if b.Language != "yaml" || !strings.Contains(b.Text, "name: largest-gpu") {
			continue
		}
		for _, o := range objects(t, b.File, b.Text) {
			made++
			if err := create(t, o, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if made != 2 {
		t.Fatalf("%d objects", made)
	}
	refused(t, "gshare/sm: 50, gshare/mem: 81921", "no GPU here has more")
	refused(t, "gshare/sm: 200, gshare/vgpu: 2, gshare/mem: 163842", "no GPU here has more")
	refused(t, "gshare/sm: 900, gshare/vgpu: 9, gshare/mem: 90", "no node here has more")
	for _, limits := range []string{"gshare/sm: 50, gshare/mem: 81920", "gshare/sm: 200, gshare/mem: 163840", "cpu: 1", "gshare/sm: 1, gshare/mem: 1"} {
		if err := dryRun(t, asking(t, limits)); err != nil {
			t.Errorf("%s: %v", limits, err)
		}
	}
}

// TestProvider: like kind, kind/tools.sh prefers Docker to podman. It recognizes a docker command that is podman's, and uses
// podman then, since kind cannot run nodes through that command.
func TestProvider(t *testing.T) {
	const podman, docker, stopped = "echo podman version 5.4.0", "echo Docker version 29.1.3", `test "$1" != info && echo Docker version 29.1.3`
	for name, test := range map[string]struct {
		docker, podman, asked, want string
	}{
		"both":                     {docker, podman, "", "docker"},
		"Docker does not run":      {stopped, podman, "", "podman"},
		"podman's docker":          {podman, podman, "", "podman"},
		"no docker":                {"", podman, "", "podman"},
		"podman asked for":         {docker, podman, "podman", "podman"},
		"Docker asked for, is off": {stopped, podman, "docker", "kind: cannot use docker: start it, or become a user that may"},
		"none":                     {"", "", "", "kind: neither docker nor podman can be used: install one, start it, or become a user that may"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for program, script := range map[string]string{"docker": test.docker, "podman": test.podman} {
				if script == "" {
					script = "exit 127" // behaves like a missing program
				}
				if err := os.WriteFile(filepath.Join(dir, program), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			command := exec.Command("bash", "-c", "set -euo pipefail; source "+root+"kind/tools.sh; need_provider; echo $KIND_EXPERIMENTAL_PROVIDER")
			command.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "KIND_EXPERIMENTAL_PROVIDER="+test.asked)
			out, err := command.CombinedOutput()
			if got := strings.TrimSpace(string(out)); got != test.want || (err != nil) != strings.HasPrefix(test.want, "kind:") {
				t.Errorf("%v: %q, want %q", err, got, test.want)
			}
		})
	}
}

// TestScripts checks that bash can parse the scripts of kind/, and that each reports a missing program.
func TestScripts(t *testing.T) {
	scripts, err := filepath.Glob(root + "kind/*.sh")
	if err != nil || len(scripts) != 6 {
		t.Fatalf("%v, %v", scripts, err)
	}
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Fatal(err)
	}
	for _, script := range scripts {
		if out, err := exec.Command(bash, "-n", script).CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", script, err, out)
		}
	}
	command := exec.Command(bash, "-c", "source "+root+"kind/tools.sh; need there-is-no-such-program")
	if out, err := command.CombinedOutput(); err == nil || !bytes.Contains(out, []byte("there-is-no-such-program is not installed")) {
		t.Errorf("a missing program: %v: %s", err, out)
	}
}
