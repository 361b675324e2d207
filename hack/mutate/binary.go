package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// selector is the environment variable with the number of the mutation that a combined test binary runs with. Without it, the binary runs with
// none.
const selector = "GSHARE_MUTATION"

// combined holds the test binaries of a package that contain several mutations, each in a copy of its function. That saves building a binary for
// each mutation.
type combined struct {
	work    string
	folders []string // in which the tests run
	paths   []string // binaries, one for each folder
	limit   time.Duration
}

// combine builds the test binaries of a package with all given mutations, which must lie in functions. It leaves out the mutations that do not
// compile and returns their numbers. It fails if the tests fail without any mutation.
func combine(ctx context.Context, p *pack, mutations []mutation, timeout time.Duration) (c *combined, invalid []int, err error) {
	c = &combined{limit: timeout}
	if c.work, err = os.MkdirTemp("", "mutate"); err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			os.RemoveAll(c.work)
		}
	}()
	for _, folder := range []string{p.folder, furtherTests[p.folder]} {
		if folder != "" && (folder != p.folder || p.tests) {
			c.folders = append(c.folders, folder)
		}
	}
	for {
		overlay, at, err := writeCombined(c.work, p, mutations, invalid)
		if err != nil {
			return nil, nil, err
		}
		wrong, err := c.build(ctx, overlay, at)
		if err != nil {
			return nil, nil, err
		}
		if len(wrong) == 0 {
			break
		}
		invalid = append(invalid, wrong...)
	}
	begin := time.Now()
	if v, why := c.test(ctx, -1); v != survived {
		return nil, nil, fmt.Errorf("tests of %s fail without a mutation: %s", p.folder, why)
	}
	c.limit = min(timeout, 10*time.Second+5*time.Since(begin))
	return c, invalid, nil
}

// lines holds, by the number of a mutation, the first and the last line of the copy of its function in a file.
type lines map[int][2]int

var compileError = regexp.MustCompile(`(?m)^(\S*?)([^/\s]+\.go):(\d+):\d+: `)

// build builds the binaries. It returns the numbers of the mutations in whose copies the compiler found errors.
func (c *combined) build(ctx context.Context, overlay string, at map[string]lines) ([]int, error) {
	c.paths = nil
	for i, folder := range c.folders {
		path := filepath.Join(c.work, fmt.Sprintf("%d.test", i))
		cmd := exec.CommandContext(ctx, "go", "test", "-c", "-o", path, "-overlay", overlay, "-vet=off", "-gcflags=-e", "./"+folder)
		cmd.Env = append(os.Environ(), "GOFLAGS=-buildvcs=false")
		out, err := cmd.CombinedOutput()
		if err == nil {
			c.paths = append(c.paths, path)
			continue
		}
		var wrong []int
		for _, found := range compileError.FindAllSubmatch(out, -1) {
			line, _ := strconv.Atoi(string(found[3]))
			for number, taken := range at[string(found[2])] {
				if taken[0] <= line && line <= taken[1] && !slices.Contains(wrong, number) {
					wrong = append(wrong, number)
				}
			}
		}
		if len(wrong) == 0 {
			return nil, fmt.Errorf("build tests of %s: %w: %.2000s", folder, err, out)
		}
		return wrong, nil
	}
	return nil, nil
}

// test runs the binaries with one mutation, or with none if number is -1, until a test notices. It returns the verdict, and the test that
// noticed.
func (c *combined) test(ctx context.Context, number int) (verdict, string) {
	for i, path := range c.paths {
		ctx, cancel := context.WithTimeout(ctx, c.limit+time.Minute)
		cmd := exec.CommandContext(ctx, path, "-test.failfast", "-test.paniconexit0", "-test.timeout", c.limit.String())
		cmd.Dir, cmd.Env = c.folders[i], append(os.Environ(), selector+"="+strconv.Itoa(number))
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
		cmd.WaitDelay = 10 * time.Second
		out, err := cmd.CombinedOutput()
		cancel()
		if err != nil {
			return noticed, reason(out)
		}
	}
	return survived, "no test failed"
}

// writeCombined writes the files of a package with a copy of a function for each mutation, and the overlay file that makes the go command read
// them in place of the originals. It returns the lines of the copies by the name of the file.
func writeCombined(work string, p *pack, mutations []mutation, without []int) (overlay string, at map[string]lines, err error) {
	replace, packageName := map[string]string{}, ""
	at = map[string]lines{}
	for _, name := range p.files {
		file := filepath.Join(p.folder, name)
		source, err := os.ReadFile(file)
		if err != nil {
			return "", nil, err
		}
		text, taken, inPackage, err := withCopies(file, source, mutations, without)
		if err != nil {
			return "", nil, err
		}
		packageName = inPackage
		if len(taken) == 0 {
			continue
		}
		at[name] = taken
		if err := put(work, replace, file, text); err != nil {
			return "", nil, err
		}
	}
	text := fmt.Sprintf("package %s\n\nimport (\n\t\"os\"\n\t\"strconv\"\n)\n\nvar selectedMutation = func() int {\n"+
		"\tif n, err := strconv.Atoi(os.Getenv(%q)); err == nil {\n\t\treturn n\n\t}\n\treturn -1\n}()\n", packageName, selector)
	if err := put(work, replace, filepath.Join(p.folder, "selectedmutation.go"), text); err != nil {
		return "", nil, err
	}
	description, err := json.Marshal(map[string]map[string]string{"Replace": replace})
	if err != nil {
		return "", nil, err
	}
	overlay = filepath.Join(work, "overlay.json")
	return overlay, at, os.WriteFile(overlay, description, 0o600)
}

// put writes a text to the work folder, and adds it to the overlay in place of the file.
func put(work string, replace map[string]string, file, text string) error {
	original, err := filepath.Abs(file)
	if err != nil {
		return err
	}
	replace[original] = filepath.Join(work, filepath.Base(file))
	return os.WriteFile(replace[original], []byte(text), 0o600)
}

// withCopies returns a source file with mutations, the lines of their copies, and the package's name. For each mutation it appends a mutated
// copy of the function to the file, and makes the function itself call the copy when that mutation is selected.
func withCopies(file string, source []byte, mutations []mutation, without []int) (string, lines, string, error) {
	fset := token.NewFileSet()
	parsed, err := parser.ParseFile(fset, file, source, parser.SkipObjectResolution)
	if err != nil {
		return "", nil, "", err
	}
	offset := func(p token.Pos) int { return fset.Position(p).Offset }
	var text, copies bytes.Buffer
	taken, done := lines{}, 0
	line := bytes.Count(source, []byte("\n")) + 2
	for _, d := range parsed.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Body == nil {
			continue
		}
		named, call, result := f.Name.Name, "", ""
		if f.Type.Results != nil {
			result = "return "
		}
		for number, m := range mutations {
			if m.file != file || m.start < offset(f.Pos()) || m.start >= offset(f.End()) || slices.Contains(without, number) {
				continue
			}
			if call == "" {
				var edits []edit
				call, edits = callOf(f, offset)
				apply(&text, source, done, offset(f.Body.Lbrace)+1, edits)
				done = offset(f.Body.Lbrace) + 1
			}
			copyName := fmt.Sprintf("%sMutation%d", named, number)
			fmt.Fprintf(&text, " if selectedMutation == %d { %s%s", number, result, fmt.Sprintf(call, copyName))
			if result == "" {
				text.WriteString("; return")
			}
			text.WriteString(" }; ")
			from, to := offset(f.Pos()), offset(f.End())
			start := copies.Len()
			copies.Write(source[from:offset(f.Name.Pos())])
			copies.WriteString(copyName)
			apply(&copies, source, offset(f.Name.End()), to, []edit{{m.start, m.end, m.text}})
			copies.WriteString("\n")
			next := line + bytes.Count(copies.Bytes()[start:], []byte("\n"))
			taken[number] = [2]int{line, next - 1}
			line = next
		}
	}
	text.Write(source[done:])
	text.WriteString("\n")
	text.Write(copies.Bytes())
	return text.String(), taken, parsed.Name.Name, nil
}

// edit replaces the bytes from start to end by text.
type edit struct {
	start, end int
	text       string
}

func apply(out *bytes.Buffer, source []byte, from, to int, edits []edit) {
	for _, e := range edits {
		if e.start >= from && e.end <= to {
			out.Write(source[from:e.start])
			out.WriteString(e.text)
			from = e.end
		}
	}
	out.Write(source[from:to])
}

// callOf returns a call of a function with its own parameters, with %s in place of the name, and the edits that name its unnamed parameters.
func callOf(f *ast.FuncDecl, offset func(token.Pos) int) (string, []edit) {
	var edits []edit
	name := func(field *ast.Field) (all []string) {
		if len(field.Names) == 0 {
			n := fmt.Sprintf("unnamed%d", len(edits))
			at := offset(field.Type.Pos())
			edits = append(edits, edit{at, at, n + " "})
			return []string{n}
		}
		for _, id := range field.Names {
			n := id.Name
			if n == "_" {
				n = fmt.Sprintf("unnamed%d", len(edits))
				edits = append(edits, edit{offset(id.Pos()), offset(id.End()), n})
			}
			all = append(all, n)
		}
		return all
	}
	call := "%s("
	if f.Recv != nil {
		call = name(f.Recv.List[0])[0] + ".%s("
	}
	var arguments []string
	for _, field := range f.Type.Params.List {
		names := name(field)
		if _, ok := field.Type.(*ast.Ellipsis); ok {
			names[len(names)-1] += "..."
		}
		arguments = append(arguments, names...)
	}
	return call + strings.Join(arguments, ", ") + ")", edits
}
