package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

const text = `# what it says

test/cluster           TestA                      -     cmd/a,hook             abc        2026-11-02 1m0s
test/cluster           TestB                      full  -                      -          -          3m0s
test/cluster           TestC                      alone -                      -          -          3m0s
`

func TestParse(t *testing.T) {
	l, err := parse(text)
	if err != nil {
		t.Fatal(err)
	}
	if got := l.String(); got != text {
		t.Errorf("written again it is\n%s", got)
	}
	for name, line := range map[string]string{"fields": "test/cluster TestA - - abc 1m", "time": "test/cluster TestA - - abc 2026-11-02 soon"} {
		if _, err := parse(line); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// TestOrder: what the changes can break comes first, then what has waited longest.
func TestOrder(t *testing.T) {
	l := &list{entries: []*entry{
		{test: "new", day: "2026-11-03"}, {test: "old", day: "2026-11-01"},
		{test: "broken", day: "2026-11-04", affected: true}, {test: "never", day: "-", affected: true},
	}}
	var got []string
	for _, e := range l.order() {
		got = append(got, e.test)
	}
	if want := []string{"never", "broken", "old", "new"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestAffected changes files of a repository of its own after a commit.
func TestAffected(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) {
		t.Helper()
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	git := func(args ...string) string {
		t.Helper()
		command := exec.Command("git", append([]string{"-c", "user.name=n", "-c", "user.email=e", "-C", dir}, args...)...)
		out, err := command.Output()
		if err != nil {
			t.Fatalf("%s: %v", command, err)
		}
		return string(out)
	}
	write("go.mod", "module example.com/m\n\ngo 1.26\n")
	write("a/a.go", "package a\n\nimport _ \"example.com/m/b\"\n")
	write("b/b.go", "package b\n")
	write("c/c.go", "package c\n")
	write("started/main.go", "package main\n\nimport _ \"example.com/m/c\"\n\nfunc main() {}\n")
	write("d/d.go", "package d\n")
	write("apart/go.mod", "module example.com/apart\n\ngo 1.26\n\nrequire example.com/m v0.0.0\n\nreplace example.com/m => ../\n")
	write("apart/main.go", "package main\n\nimport _ \"example.com/m/d\"\n\nfunc main() {}\n")
	write("files/deep/x", "1")
	write("other/o.go", "package other\n")
	git("init", "-q")
	git("add", ".")
	git("commit", "-qm", "first")
	commit := git("rev-parse", "--short=10", "HEAD")[:10]
	t.Chdir(dir)
	e := func(commit string) *entry {
		return &entry{pkg: "a", test: "T", starts: []string{"started", "apart", "files"}, commit: commit, took: time.Second}
	}
	affected := func(e *entry) bool {
		t.Helper()
		got, err := (&tree{ctx: context.Background(), files: map[string][]string{}}).affects(e)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	if affected(e(commit)) {
		t.Error("affected without a change")
	}
	if !affected(e("-")) {
		t.Error("not affected, though it never passed")
	}
	if write("other/o.go", "package other // changed\n"); affected(e(commit)) {
		t.Error("affected by a package that it does not depend on")
	}
	for _, name := range []string{"a/a_test.go", "a/testdata/x", "b/b.go", "c/c.go", "d/d.go", "started/main.go", "started/deep/x.c", "apart/deep/x", "files/deep/x"} {
		write(name, "package "+filepath.Base(filepath.Dir(name))+" // changed\n")
		if name == "started/main.go" {
			write(name, "package main\n\nimport _ \"example.com/m/c\"\n\nfunc main() { println() }\n")
		}
		git("add", ".")
		if !affected(e(commit)) {
			t.Errorf("not affected by %s", name)
		}
		git("reset", "-q", "--hard", commit)
	}
	if !affected(e("0123456789")) {
		t.Error("not affected, though nobody knows what has changed")
	}
}

// TestComplete holds the repository's own list.
func TestComplete(t *testing.T) {
	t.Chdir("../..")
	content, err := os.ReadFile("test/longtests.txt")
	if err != nil {
		t.Fatal(err)
	}
	l, err := parse(string(content))
	if err != nil {
		t.Fatal(err)
	}
	if err := checkComplete(t.Context(), l); err != nil {
		t.Error(err)
	}
	for i, e := range l.entries {
		if e.pkg == "test/cluster" {
			l.entries = slices.Delete(l.entries, i, i+1)
			break
		}
	}
	if checkComplete(t.Context(), l) == nil {
		t.Error("a list without one of the tests is complete")
	}
	tree, known := &tree{ctx: t.Context()}, map[string]bool{}
	for _, e := range l.entries {
		for _, s := range e.starts {
			if _, err := os.Stat(s); err != nil {
				t.Errorf("%s starts %s: %v", e.test, s, err)
			}
		}
		if of := fmt.Sprint(e.pkg, e.starts); !known[of] {
			known[of] = true
			if folders, err := tree.folders(e); err != nil || !slices.Contains(folders, e.pkg) {
				t.Errorf("%s depends on %q, %v", e.test, folders, err)
			}
		}
	}
}
