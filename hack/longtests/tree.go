package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/gshare-dev/gshare/hack/testevent"
)

// testFunction matches the name of a test function where it is declared.
var testFunction = regexp.MustCompile(`(?m)^func (Test\w+)\(\w+ \*testing\.T\)`)

// functions returns the names of a package's tests.
func functions(ctx context.Context, pkg string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(pkg, "*_test.go"))
	if err != nil {
		return nil, err
	}
	var names []string
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		for _, m := range testFunction.FindAllStringSubmatch(string(content), -1) {
			names = append(names, m[1])
		}
	}
	return names, ctx.Err()
}

// tree answers which changes to the checkout can break a test.
type tree struct {
	ctx   context.Context
	files map[string][]string // changed since a commit
}

// affects reports whether a file that a test depends on has changed since it last passed: a file in the folder of its package, of a package that
// this imports, or of what it starts. A test that never passed, or whose commit the repository does not have, is affected.
func (t *tree) affects(e *entry) (bool, error) {
	if e.commit == "-" {
		return true, nil
	}
	changed, ok := t.files[e.commit]
	if !ok {
		out, err := output(t.ctx, "git", "diff", "--name-only", e.commit)
		if err != nil {
			out = "go.mod"
		}
		changed = strings.Fields(out)
		t.files[e.commit] = changed
	}
	if len(changed) == 0 {
		return false, nil
	}
	folders, err := t.folders(e)
	if err != nil {
		return false, err
	}
	for _, file := range changed {
		if file == "go.mod" || slices.ContainsFunc(folders, func(folder string) bool { return contains(folder, file) }) {
			return true, nil
		}
	}
	return false, nil
}

// contains reports whether a folder, or with /... at its end any folder below it, contains a file.
func contains(folder, file string) bool {
	if above, deep := strings.CutSuffix(folder, "/..."); deep {
		return strings.HasPrefix(file, above+"/")
	}
	return filepath.Dir(file) == folder || strings.HasPrefix(file, folder+"/testdata/")
}

// folders returns what a test depends on. What it starts counts with all that lies in its folder and, if that is a Go package, what it imports.
func (t *tree) folders(e *entry) ([]string, error) {
	folders, packages, modules := []string{}, []string{"./" + e.pkg}, []string{}
	for _, s := range e.starts {
		folders = append(folders, s+"/...")
		if files, _ := filepath.Glob(filepath.Join(s, "*.go")); len(files) == 0 {
			continue
		}
		if _, err := os.Stat(filepath.Join(s, "go.mod")); err == nil {
			modules = append(modules, s)
		} else {
			packages = append(packages, "./"+s)
		}
	}
	imported, err := t.imported(".", packages...)
	if err != nil {
		return nil, err
	}
	folders = append(folders, imported...)
	for _, module := range modules {
		if imported, err = t.imported(module, "."); err != nil {
			return nil, err
		}
		folders = append(folders, imported...)
	}
	return folders, nil
}

// imported returns the folders of the checkout that packages of a module and their tests import, directly or not, themselves included.
func (t *tree) imported(module string, packages ...string) ([]string, error) {
	args := append([]string{"-C", module, "list", "-deps", "-test", "-f", "{{if not .Standard}}{{.Dir}}{{end}}"}, packages...)
	out, err := output(t.ctx, "go", args...)
	if err != nil {
		return nil, err
	}
	root, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	var folders []string
	for _, dir := range strings.Fields(out) {
		if folder, err := filepath.Rel(root, dir); err == nil && filepath.IsLocal(folder) {
			folders = append(folders, folder)
		}
	}
	return folders, nil
}

// errSkipped is the error of a test that did not fail, but did not run either.
var errSkipped = errors.New("skipped")

// run runs the test, and prints what it prints, as events. The test's binary, which is compiled once for each package, is kept in the folder.
func (e *entry) run(ctx context.Context, folder string) error {
	binary := filepath.Join(folder, strings.ReplaceAll(e.pkg, "/", "-")+".test")
	if _, err := os.Stat(binary); err != nil {
		compile := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-ldflags=-s -w", "-o", binary, "./"+e.pkg)
		if out, err := compile.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w\n%s", compile, err, out)
		}
	}
	module, err := output(ctx, "go", "list", "-m")
	if err != nil {
		return err
	}
	args := []string{"tool", "test2json", "-t", "-p", module + "/" + e.pkg, binary, "-test.v=test2json", "-test.timeout=90m", "-test.run=^" + e.test + "$"}
	if e.full {
		args = append(args, "-full")
	}
	command := exec.CommandContext(ctx, "go", args...)
	command.Dir, command.Stderr = e.pkg, os.Stderr
	command.Cancel = func() error { return command.Process.Signal(syscall.SIGTERM) }
	command.WaitDelay = 20 * time.Second
	events, err := command.StdoutPipe()
	if err != nil {
		return err
	}
	if err := command.Start(); err != nil {
		return err
	}
	skipped := false
	err = testevent.Read(io.TeeReader(events, os.Stdout), func(e testevent.Event) {
		skipped = skipped || e.Action == "skip" && !strings.Contains(e.Test, "/")
	}, func(string) {})
	if err := errors.Join(err, command.Wait()); err != nil {
		return err
	}
	if skipped {
		return errSkipped
	}
	return nil
}
