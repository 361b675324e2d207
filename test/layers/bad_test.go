package layers_test

import (
	"strings"
	"testing"
	"testing/fstest"
)

// TestFiles runs the checks on small files, most of which violate a rule: a check that cannot fail enforces nothing.
func TestFiles(t *testing.T) {
	for name, test := range map[string]struct {
		path, content string
		want          string // contained in the only violation; empty if there is none
	}{
		"rule, standard library": {"vgpu/share/a.go", `import ("fmt"; "time"); var _ = time.Second; var _ = fmt.Sprint`, ""},
		"rule, gonum":            {"vgpu/share/a.go", `import _ "gonum.org/v1/gonum/mat"`, ""},
		"rule, rule":             {"vgpu/packing/slot/a.go", `import _ "` + module + `vgpu/share"`, ""},
		"rule, Kubernetes":       {"vgpu/share/a.go", `import _ "k8s.io/api/core/v1"`, "gonum"},
		"rule, files":            {"vgpu/share/a.go", `import _ "os"`, "no I/O"},
		"rule, network":          {"vgpu/new/a.go", `import _ "net/http"`, "no I/O"},
		"rule, logger":           {"vgpu/share/a.go", `import _ "log/slog"`, "no I/O"},
		"rule, testing":          {"vgpu/share/a.go", `import _ "testing/quick"`, "no I/O"},
		"rule test, testing":     {"vgpu/share/a_test.go", `import _ "testing/quick"`, ""},
		"rule, contract":         {"vgpu/share/a.go", `import _ "` + module + `vgpu/kube"`, "points up"},
		"rule test, contract":    {"vgpu/share/a_test.go", `import _ "` + module + `vgpu/kube"`, "points up"},
		"rule, clock":            {"vgpu/share/a.go", `import "time"; var _ = time.Now()`, "no clock"},
		"rule, renamed clock":    {"vgpu/share/a.go", `import t "time"; var f = t.Since`, "no clock"},
		"contract, API types":    {"vgpu/kube/a.go", `import _ "k8s.io/api/core/v1"`, ""},
		"contract, clients":      {"vgpu/kube/a.go", `import _ "k8s.io/client-go/kubernetes"`, "nobody"},
		"contract, adapter":      {"vgpu/api/config/a.go", `import _ "` + module + `plugins"`, "points up"},
		"adapter, framework":     {"plugins/slot/a.go", `import _ "k8s.io/kube-scheduler/framework"`, ""},
		"adapter, Kubernetes":    {"plugins/slot/a.go", `import _ "k8s.io/kubernetes/pkg/scheduler"`, "only cmd"},
		"adapter test":           {"plugins/slot/a_test.go", `import _ "k8s.io/kubernetes/pkg/scheduler"`, ""},
		"adapter, command":       {"node/nvml/a.go", `import _ "` + module + `cmd/internal/boot"`, "points up"},
		"adapter, test helper":   {"plugins/a.go", `import _ "` + module + `test/cluster"`, "only tests"},
		"adapter test, helper":   {"plugins/a_test.go", `import _ "` + module + `test/cluster"`, ""},
		"adapter, exit":          {"plugins/a.go", `import "os"; func f() { os.Exit(1) }`, "end the process"},
		"adapter, log.Fatalf":    {"deviceplugin/a.go", `import "log"; func f() { log.Fatalf("x") }`, "end the process"},
		"adapter, klog.Fatal":    {"serving/a.go", `import "k8s.io/klog/v2"; func f() { klog.Fatal("x") }`, "end the process"},
		"TestMain, exit":         {"test/a_test.go", `import "os"; func TestMain() { os.Exit(1) }`, ""},
		"test, exit":             {"test/a_test.go", `import "os"; func TestX() { os.Exit(1) }`, "end the process"},
		"command":                {"cmd/x/a.go", `import ("os"; _ "k8s.io/kubernetes/cmd/kube-scheduler/app"); func f() { os.Exit(1) }`, ""},
		"tool, Kubernetes":       {"hack/x/a.go", `import _ "k8s.io/kubernetes/pkg/scheduler"`, "only cmd"},
		"command, laboratory":    {"cmd/gshare/a.go", `import _ "` + module + `lab/cluster"`, "only tests and gshare-lab"},
		"command, fake":          {"cmd/gshare-node/a.go", `import _ "` + module + `test/fake/gpu"`, "only tests and gshare-lab"},
		"gshare-lab, laboratory": {"cmd/gshare-lab/a.go", `import _ "` + module + `lab/cluster"`, ""},
		"scheduler, node":        {"plugins/a.go", `import _ "` + module + `node/mps"`, "meet in objects"},
		"node, scheduler":        {"node/agent/a.go", `import _ "` + module + `plugins/sharing"`, "meet in objects"},
		"sharing, serving":       {"vgpu/packing/a.go", `import _ "` + module + `serving/rules/scaling"`, "does not know serving"},
		"node, serving's API":    {"node/agent/a.go", `import _ "` + module + `serving/api/v1alpha1"`, "does not know serving"},
		"serving, sharing":       {"serving/rules/scaling/a.go", `import _ "` + module + `vgpu/share"`, ""},
		"unknown folder":         {"pkg/a.go", ``, "no ring"},
	} {
		t.Run(name, func(t *testing.T) {
			s := parse(t, test.path, "package a; "+test.content)
			expect(t, append(checkImports(s), checkCalls(s)...), test.want)
		})
	}
}

func TestPackageComments(t *testing.T) {
	for name, test := range map[string]struct {
		files map[string]string
		want  string
	}{
		"one":              {map[string]string{"a/a.go": "// Package a is.\npackage a", "a/b.go": "package a"}, ""},
		"test beside":      {map[string]string{"a/a.go": "// Package a is.\npackage a", "a/a_test.go": "package a_test"}, ""},
		"none":             {map[string]string{"a/a.go": "package a"}, "has 0"},
		"two":              {map[string]string{"a/a.go": "// Package a is.\npackage a", "a/b.go": "// Package a is.\npackage a"}, "has 2"},
		"other words":      {map[string]string{"a/a.go": "// This is a.\npackage a"}, `"Package a "`},
		"command":          {map[string]string{"cmd/x/main.go": "// Command x runs.\npackage main"}, ""},
		"command, no name": {map[string]string{"cmd/x/main.go": "// Package main runs.\npackage main"}, `"Command x "`},
		"tests alone":      {map[string]string{"test/a/a_test.go": "package a_test"}, "has 0"},
		"vague":            {map[string]string{"a/util/a.go": "// Package util is.\npackage util"}, "name it after"},
	} {
		t.Run(name, func(t *testing.T) {
			var sources []source
			for file, content := range test.files {
				sources = append(sources, parse(t, file, content))
			}
			expect(t, checkPackages(sources), test.want)
		})
	}
}

func TestReadmes(t *testing.T) {
	page := func(lines int) *fstest.MapFile { return &fstest.MapFile{Data: []byte(strings.Repeat("x\n", lines))} }
	expect(t, checkReadmes(fstest.MapFS{"a/README.md": page(60), "a/b/c.go": page(1), ".git/x": page(1), "bin/x": page(1)}), "")
	expect(t, checkReadmes(fstest.MapFS{"a/README.md": page(61)}), "more than a page")
	expect(t, checkReadmes(fstest.MapFS{"a/b.go": page(1)}), "missing")
}

func expect(t *testing.T, found []string, want string) {
	t.Helper()
	switch {
	case want == "" && len(found) > 0:
		t.Errorf("found %q, want nothing", found)
	case want != "" && (len(found) != 1 || !strings.Contains(found[0], want)):
		t.Errorf("found %q, want one with %q", found, want)
	}
}

func TestBadCitations(t *testing.T) {
	tree := fstest.MapFS{
		"docs/glossary.md": {Data: []byte("| F20 | the paper | gshare |\nF21 is not in the first column of a table\n")},
		"docs/papers/a.md": {Data: []byte("| N-F1 to N-F3 | the figure |\n")},
		"docs/adr/0001.md": {}, "docs/adr/0001-a.md": {}, "vgpu/README.md": {}, "vgpu/a.go": {Data: []byte("func turn() {}")},
	}
	known, err := defined(tree)
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct{ file, text, want string }{
		"defined":              {"a.go", "x := 1 // the larger (F20)", ""},
		"defined by a range":   {"a.c", "/* the figure (N-F2) */", ""},
		"not defined":          {"a.go", "// as printed (F21)", "F21 is defined neither"},
		"not defined, C":       {"a.h", " * as printed (N-F4)", "N-F4 is defined neither"},
		"in code":              {"a.go", "type F21 int", ""},
		"a floating point":     {"a.go", "// in F32", ""},
		"page":                 {"vgpu/packing/a.go", "// docs/adr/0001.md has the figures", ""},
		"page, beside docs":    {"vgpu/packing/a.go", "// adr/0001.md has the figures", ""},
		"no such page":         {"vgpu/packing/a.go", "// docs/adr/0002.md has the figures", "docs/adr/0002.md does not exist"},
		"outside":              {"a.go", "// as " + "DESIG" + "N 4 wants it", "outside the repository"},
		"outside, spec":        {"a.go", "// as ../spe" + "c/data and spe" + "c/b/ say", "outside the repository"},
		"JSON pointer":         {"a.go", `path := "/spec/template/spec/containers/0"`, ""},
		"outside, in a string": {"a.go", `dir := "../shar` + `ed/data"`, "outside the repository"},
		"file":                 {"a.go", "// as in vgpu/a.go, and (vgpu/a.go:turn).", ""},
		"no such file":         {"a.go", "// the order of vgpu/strides.go", "a.go:1: vgpu/strides.go does not exist"},
		"no such file, name":   {"a.c", "/* as vgpu/strides.go:issueAll does */", "vgpu/strides.go does not exist"},
		"no such name":         {"a.go", "// as vgpu/a.go:turns does", "vgpu/a.go has no turns"},
		"decision":             {"a.go", "// ADR 0001 says why", ""},
		"no such decision":     {"a.go", "// ADR 0099 says why", "a.go:1: docs/adr has no record 0099"},
		"web":                  {"a.go", "// as https://example.org/a says", "https://example.org/a is outside"},
		"web, in a string":     {"a.go", `u := "https://example.org/a"`, ""},
		"script":               {"a.sh", "# as N-U9 says", "N-U9 is defined neither"},
	} {
		t.Run(name, func(t *testing.T) { expect(t, checkCitations(tree, test.file, test.text, known), test.want) })
	}
	t.Run("paths of a page", func(t *testing.T) {
		expect(t, checkPaths(tree, "x.md", "see `docs/adr/0001.md`, `make test` and `docs/adr`"), "")
		expect(t, checkPaths(tree, "x.md", "see `docs/gone.go`"), "docs/gone.go")
		expect(t, checkPaths(tree, "vgpu/x.md", "see `a.go:turn` and `vgpu/a.go:turn`"), "")
		expect(t, checkPaths(tree, "vgpu/x.md", "see `a.go:turns`"), "vgpu/x.md: a.go:turns does not exist")
	})
}
