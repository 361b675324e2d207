package nvidia_test

import (
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/gshare-dev/gshare/test/native"
)

// root is the root of the repository, relative to this package.
const root = "../.."

// build holds the only build of the hook, the fake driver and the programs, which all tests of the package share.
var build struct {
	once sync.Once
	dir  string
	err  error
	log  []byte
}

// built compiles the hook, the fake driver, the command and the agent on the first call and returns their folder.
func built(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("gcc is not installed")
	}
	build.once.Do(func() {
		if build.dir, build.err = os.MkdirTemp("", "gshare-nvidia"); build.err != nil {
			return
		}
		if build.err = native.Build(root, build.dir, native.Driver, native.Hook); build.err != nil {
			return
		}
		command := exec.Command("go", "build", "-o", build.dir, "./cmd/gshare", "./cmd/gshare-node")
		command.Dir = root
		build.log, build.err = command.CombinedOutput()
	})
	if build.err != nil {
		t.Fatalf("build: %v\n%s", build.err, build.log)
	}
	return build.dir
}

func TestMain(m *testing.M) {
	code := m.Run()
	os.RemoveAll(build.dir)
	os.Exit(code)
}

// output runs a program in the repository and returns what it prints, or fails the test.
func output(t *testing.T, command *exec.Cmd) string {
	t.Helper()
	var complaint strings.Builder
	command.Dir, command.Stderr = root, &complaint
	out, err := command.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s%s", strings.Join(command.Args, " "), err, out, complaint.String())
	}
	return string(out)
}

// symbol is a function of the driver or NVML in hook/src/symbols.def.
type symbol struct {
	name  string // as the driver exports it, including the suffix of a per-thread variant
	base  string // the name passed to cuGetProcAddress; empty for functions of NVML and those that the hook only calls
	since int    // the first CUDA version for which the base name resolves to this function
	twin  bool
}

// symbols returns the functions in hook/src/symbols.def.
func symbols(t *testing.T) []symbol {
	t.Helper()
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("gcc is not installed")
	}
	command := exec.Command("gcc", "-E", "-P", "-I.", "-x", "c", "-")
	command.Stdin = strings.NewReader(`
#define CU(kind, by, name, base, since, ...) @name base since
#define CUP(kind, by, name, twin, base, since, ...) @name base since @name##_##twin base since twin
#define NVML(kind, name, ...) @name
#define USE(name, ...) @name
#include "hook/src/symbols.def"
`)
	var list []symbol
	for _, entry := range strings.Split(output(t, command), "@")[1:] {
		fields := strings.Fields(entry)
		s := symbol{name: fields[0], twin: len(fields) == 4}
		if len(fields) > 1 {
			s.base = strings.Trim(fields[1], `"`)
			s.since, _ = strconv.Atoi(fields[2])
		}
		list = append(list, s)
	}
	if len(list) < 100 {
		t.Fatalf("read %d functions from symbols.def", len(list))
	}
	return list
}

// names returns the names of the driver functions that the hook wraps, and their base names.
func names(list []symbol) (wrapped, bases map[string]bool) {
	wrapped, bases = map[string]bool{}, map[string]bool{}
	for _, s := range list {
		if s.base != "" {
			wrapped[s.name], bases[s.base] = true, true
		}
	}
	return wrapped, bases
}

// suffix matches what follows the base name of an exported function: the version and the suffix of a per-thread variant, in
// any order.
var suffix = regexp.MustCompile(`(_v\d+|_pt[ds]z?s?z?)+$`)

// baseName returns the name of an exported function without these suffixes.
func baseName(name string) string { return suffix.ReplaceAllString(name, "") }

// unhandled returns the names and patterns of hook/src/unhandled.txt.
func unhandled(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "hook/src/unhandled.txt"))
	if err != nil {
		t.Fatal(err)
	}
	var patterns []string
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "#") && !strings.HasPrefix(line, "!") {
			patterns = append(patterns, strings.Fields(line)...)
		}
	}
	return patterns
}

// matches reports whether one of the patterns matches the name.
func matches(patterns []string, name string) bool {
	for _, pattern := range patterns {
		if ok, err := path.Match(pattern, name); ok && err == nil {
			return true
		}
	}
	return false
}
