package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// constant returns a package with one documented label, of which a part is replaced.
func constant(old, new string) string {
	return strings.ReplaceAll(`package p

// LabelPlace says where
// the pod is.
//
//	kind: label
//	object: pod
//	written by: user
//	values: here,
//	  there
//	default: none
//	example: gshare.dev/place: here
const LabelPlace = "gshare.dev/place"
`, old, new)
}

// sourceOf returns what is read of a package.
func sourceOf(t *testing.T, text string) sourceText {
	t.Helper()
	folder := filepath.Join(folderWith(t, text))
	root := t.TempDir()
	for _, source := range sources {
		if err := os.Mkdir(filepath.Join(root, source), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Rename(filepath.Join(folder, "a.go"), filepath.Join(root, "vgpu", "a.go")); err != nil {
		t.Fatal(err)
	}
	all, err := readSource(root)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestNames(t *testing.T) {
	got, err := sourceOf(t, constant("", "")).names()
	want := []entry{{constant: "LabelPlace", name: "gshare.dev/place", text: "`gshare.dev/place` says where\nthe pod is.", where: "vgpu/a.go", fields: map[string]string{
		"kind": "label", "object": "pod", "written by": "user", "values": "here, there", "default": "none", "example": "gshare.dev/place: here",
	}}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(entry{})); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	line := "| `gshare.dev/place` | pod | user | Says where the pod is. Values: here, there. Default: none. Example: `gshare.dev/place: here` |\n"
	if page := namesText(got); !strings.Contains(page, line) {
		t.Errorf("no line %q in %s", line, page)
	}
}

// TestNamesUndocumented: a name whose comment lacks what a reader needs is an error, never a line that the page lacks.
func TestNamesUndocumented(t *testing.T) {
	for name, text := range map[string]string{
		"no comment":        "package p\n\nconst a = \"gshare.dev/a\"\n",
		"no field":          constant("//\tobject: pod\n", ""),
		"an unknown field":  constant("object: pod", "object: pod\n//\tsince: 1"),
		"no text":           constant("// LabelPlace says where\n// the pod is.\n//\n", ""),
		"an unknown kind":   constant("kind: label", "kind: lable"),
		"no constant":       "package p\n\nvar a = map[string]string{\"serving.gshare.dev/b\": \"\"}\n",
		"a resource":        "package p\n\nconst a = \"gshare/a\"\n",
		"a condition":       "package p\n\nconst ConditionDone = \"Done\"\n",
		"in a group":        "package p\n\n// Names.\nconst (\n\ta = \"gshare.dev/a\"\n)\n",
		"inside a function": "package p\n\nfunc f() string { const a = \"gshare.dev/a\"; return a }\n",
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := sourceOf(t, text).names(); err == nil {
				t.Errorf("%+v", got)
			}
		})
	}
	for _, other := range []string{"gshare.dev/v1alpha1", "serving.gshare.dev/v1", "gshare.dev/", "see gshare.dev/a", "github.com/gshare-dev/gshare"} {
		if got, err := sourceOf(t, "package p\n\nconst a = \""+other+"\"\n").names(); err != nil || len(got) > 0 {
			t.Errorf("%s: %+v, %v", other, got, err)
		}
	}
}

func TestCheckMentioned(t *testing.T) {
	names := []entry{{name: "gshare.dev/place"}}
	for text, known := range map[string]bool{
		"label gshare.dev/place=x and gshare.dev/place-": true,
		"apiVersion: serving.gshare.dev/v1alpha1":        true,
		"x.gshare.dev/other":                             true,
		"[gshare.dev/placed]":                            false,
		"gshare.dev/place-of":                            false,
		"serving.gshare.dev/place":                       false,
	} {
		root := t.TempDir()
		for _, folder := range []string{"docs", "manifests"} {
			if err := os.Mkdir(filepath.Join(root, folder), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		for file, content := range map[string]string{"README.md": "", "docs/a.md": "", "manifests/a.yaml": text} {
			if err := os.WriteFile(filepath.Join(root, file), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := checkMentioned(root, names); (err == nil) != known {
			t.Errorf("%q: %v", text, err)
		}
	}
}
