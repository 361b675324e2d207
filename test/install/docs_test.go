package install_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	yamls "k8s.io/apimachinery/pkg/util/yaml"

	"github.com/gshare-dev/gshare/test/monitoring"
)

// block is an example in a document.
type block struct{ file, language, text string }

var fence = regexp.MustCompile("(?ms)^```([a-z]*)\n(.*?)^```$")

// blocks are the examples of all documents.
func blocks(t *testing.T) (all []block) {
	t.Helper()
	files, err := filepath.Glob(root + "manifests/docs/*.md")
	if err != nil || len(files) < 5 {
		t.Fatalf("%d documents, %v", len(files), err)
	}
	for _, file := range append(files, root+"manifests/README.md", root+"kind/README.md") {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range fence.FindAllSubmatch(text, -1) {
			all = append(all, block{filepath.Base(file), string(m[1]), string(m[2])})
		}
	}
	return all
}

func objects(t *testing.T, where, text string) (all []*unstructured.Unstructured) {
	t.Helper()
	decoder := yamls.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096)
	for {
		o := &unstructured.Unstructured{}
		if err := decoder.Decode(o); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatalf("%s: %v", where, err)
		}
		if o.GetNamespace() == "" {
			o.SetNamespace("default")
		}
		all = append(all, o)
	}
}

// TestExamples: the API server with the policies takes every object of the documents, and of the demo on kind.
func TestExamples(t *testing.T) {
	enforce(t)
	demo, err := os.ReadFile(root + "kind/demo.yaml")
	if err != nil {
		t.Fatal(err)
	}
	tried := 0
	for _, b := range append(blocks(t), block{"demo.yaml", "yaml", string(demo)}) {
		if b.language != "yaml" {
			continue
		}
		for _, o := range objects(t, b.file, b.text) {
			if strings.HasPrefix(o.GetAPIVersion(), "kueue.") {
				continue // Kueue is not here
			}
			tried++
			if err := dryRun(t, podFor(t, o)); err != nil {
				t.Errorf("%s: %s: %v", b.file, key(o), err)
			}
		}
	}
	if tried < 8 {
		t.Errorf("only %d examples", tried)
	}
}

// podFor is the pod that an object would make, since no controller runs here; other objects stay.
func podFor(t *testing.T, o *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	spec, present, err := unstructured.NestedMap(o.Object, "spec", "template", "spec")
	if err != nil || !present {
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

// enforce installs the policies and waits until they refuse.
func enforce(t *testing.T) {
	t.Helper()
	for _, o := range build(t, "manifests/admission") {
		if err := create(t, o, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	wrong := objects(t, "", "apiVersion: v1\nkind: Pod\nmetadata: {name: wrong}\nspec:\n  containers:\n"+
		"  - {name: main, image: x, resources: {limits: {gshare/sm: 9999, gshare/mem: 1}}}\n")[0]
	err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		err := dryRun(t, wrong)
		return err != nil && strings.Contains(err.Error(), "gshare/sm:"), nil
	})
	if err != nil {
		t.Fatal("the policies refuse nothing: ", err)
	}
}

var paths = regexp.MustCompile(`(?:-k|-f|--patch-file) (\S+)`)

// TestCommands: what the commands of the documents name is there.
func TestCommands(t *testing.T) {
	named := 0
	for _, b := range blocks(t) {
		for _, m := range paths.FindAllStringSubmatch(b.text, -1) {
			named++
			if _, err := os.Stat(root + m[1]); err != nil {
				t.Errorf("%s: %v", b.file, err)
			}
		}
	}
	if named < 3 {
		t.Errorf("only %d files are named", named)
	}
}

// TestQueries: Prometheus takes the queries of the documents.
func TestQueries(t *testing.T) {
	judge, err := monitoring.Build(root, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	asked := 0
	for _, b := range blocks(t) {
		if b.language != "promql" {
			continue
		}
		asked++
		answers, err := judge.Ask(nil, 0, monitoring.Query{Name: b.file, Expr: b.text})
		if err != nil || answers[0].Error != "" {
			t.Errorf("%s: %v %s", b.file, err, answers[0].Error)
		}
	}
	if asked < 2 {
		t.Errorf("only %d queries", asked)
	}
}

// TestScripts: bash can read the scripts of kind, and each says so where a program is missing.
func TestScripts(t *testing.T) {
	scripts, err := filepath.Glob(root + "kind/*.sh")
	if err != nil || len(scripts) != 4 {
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
