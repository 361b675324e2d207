package nvidia_test

import (
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gshare-dev/gshare/test/nvidia"
)

// exports returns the functions that the driver's library exports, sorted.
func exports(t *testing.T, driver string) []string {
	t.Helper()
	file, err := elf.Open(filepath.Join(nvidia.Folder(t, driver), "lib/libcuda.so.1"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	list, err := file.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, s := range list {
		if s.Section != elf.SHN_UNDEF && strings.HasPrefix(s.Name, "cu") {
			names = append(names, s.Name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// route is the function that cuGetProcAddress returns for a name, from a version on.
type route struct {
	name    string // the name that was requested
	flags   int
	version int
	real    string // the exported function at the returned address, or "?"
	hooked  string // the wrapper that the hook returns, "=" for the same address, or "?"
}

// routes returns what a real driver's cuGetProcAddress returns for every name that the driver exports.
func routes(t *testing.T, driver string) []route {
	t.Helper()
	folder, dir := nvidia.Folder(t, driver), built(t)
	program := filepath.Join(t.TempDir(), "routes")
	output(t, exec.Command("gcc", "-O1", "-Wall", "-Wextra", "-Werror", "-o", program, "test/nvidia/programs/routes.c", "hook/src/libc.c", "-ldl"))
	var names []string
	for _, name := range exports(t, driver) {
		names = append(names, baseName(name))
	}
	slices.Sort(names)
	command := exec.Command(program)
	command.Stdin = strings.NewReader(strings.Join(slices.Compact(names), "\n"))
	command.Env = append(os.Environ(), "LD_LIBRARY_PATH="+filepath.Join(folder, "lib"), "LD_PRELOAD="+filepath.Join(dir, "libgshare.so"))
	var list []route
	for line := range strings.Lines(output(t, command)) {
		fields := strings.Fields(line)
		flags, err := strconv.Atoi(fields[1])
		if err != nil || len(fields) != 5 {
			t.Fatalf("routes printed %q", line)
		}
		version, _ := strconv.Atoi(fields[2])
		list = append(list, route{fields[0], flags, version, fields[3], fields[4]})
	}
	return list
}

// wrong describes what is wrong with a route under the hook. It returns "" if the route leads to the wrapper of a function in
// symbols.def, or past the hook to a function in unhandled.txt.
func wrong(r route, wrapped, bases map[string]bool, left []string) string {
	switch {
	case r.real == "?":
		return "the driver answers with what it does not export"
	case wrapped[r.real] && r.hooked != r.real:
		return fmt.Sprintf("the hook answers %q for %s", r.hooked, r.real)
	case !wrapped[r.real] && r.hooked != "=":
		return fmt.Sprintf("the hook answers %q for %s, which symbols.def lacks", r.hooked, r.real)
	case bases[r.name] && !wrapped[r.real] && !slices.Contains(left, r.real):
		return r.real + " is neither in symbols.def nor in unhandled.txt"
	}
	return ""
}

// TestRoutes queries real drivers for all their functions, with the hook and without.
func TestRoutes(t *testing.T) {
	wrapped, bases := names(symbols(t))
	left := unhandled(t)
	for _, bad := range []route{
		{"cuInit", 0, 2000, "?", "="},
		{"cuInit", 0, 2000, "cuInit", "="},
		{"cuMemAlloc", 0, 3020, "cuMemAlloc_v2", "cuMemAlloc"},
		{"cuCtxGetId", 0, 12000, "cuCtxGetId", "cuInit"},
		{"cuMemAlloc", 0, 14000, "cuMemAlloc_v9", "="},
	} {
		if wrong(bad, wrapped, bases, left) == "" {
			t.Errorf("nothing is wrong with %+v", bad)
		}
	}
	for _, driver := range nvidia.Drivers() {
		t.Run(driver, func(t *testing.T) {
			wrappers := 0
			for _, r := range routes(t, driver) {
				if text := wrong(r, wrapped, bases, left); text != "" {
					t.Errorf("%s at version %d, flags %d: %s", r.name, r.version, r.flags, text)
				}
				if wrapped[r.real] {
					wrappers++
				}
			}
			if wrappers < 200 {
				t.Errorf("%d answers are wrappers", wrappers)
			}
		})
	}
}

// TestVersions compares the base name and the first version of each function in symbols.def with real drivers. Per-thread
// variants are returned from version 7000 on.
func TestVersions(t *testing.T) {
	for _, driver := range nvidia.Drivers() {
		t.Run(driver, func(t *testing.T) {
			first := map[string]route{} // by function, with default flags or with those for per-thread variants
			newest := 0
			for _, r := range routes(t, driver) {
				newest = max(newest, r.version)
				if _, ok := first[r.real]; !ok && (r.flags == 0) != strings.Contains(r.real, "_pt") {
					first[r.real] = r
				}
			}
			compared := 0
			for _, s := range symbols(t) {
				got, ok := first[s.name]
				want := s.since
				if s.twin {
					want = max(want, 7000)
				}
				switch {
				case s.base == "" || s.since > newest:
				case !ok:
					t.Errorf("the driver never answers with %s", s.name)
				case got.name != s.base || got.version != want:
					t.Errorf("the driver answers %q with %s from version %d on, not %q from version %d on", got.name, s.name, got.version, s.base, want)
				default:
					compared++
				}
			}
			if compared < 90 {
				t.Errorf("compared %d functions", compared)
			}
		})
	}
}

// missing returns the exported functions that are in neither list. A name in unhandled.txt covers all versions of a function,
// unless symbols.def wraps one of them.
func missing(exported []string, handled []symbol, left []string) []string {
	known, bases := names(handled)
	var list []string
	for _, name := range exported {
		base := baseName(name)
		if !known[name] && !matches(left, name) && (bases[base] || !matches(left, base)) {
			list = append(list, name)
		}
	}
	return list
}

// TestUnhandled checks that every function of the real drivers is either wrapped or listed in unhandled.txt with a reason.
func TestUnhandled(t *testing.T) {
	handled, left := symbols(t), unhandled(t)
	invented := []string{"cuLaunchKernel_v9", "cuMemAlloc_v3", "cuMemAllocMore", "cuInit", "cuMemcpyDtoA_v2", "cuGetErrorName"}
	if got := missing(invented, handled, left); !slices.Equal(got, invented[:3]) {
		t.Errorf("of invented functions these are missing: %q", got)
	}
	added := []string{"cuLogsCurrent", "cuLogsDumpToFile", "cuLogsDumpToMemory", "cuLogsRegisterCallback", "cuLogsUnregisterCallback"} // 13.0
	if got := missing(added, handled, left); len(got) > 0 {
		t.Errorf("of cuda.h 13.0 these are missing: %q", got)
	}
	if !slices.Contains(left, "cuGetExportTable") {
		t.Error("cuGetExportTable has no reason of its own, but that of a pattern")
	}
	wrapped, _ := names(handled)
	for _, name := range left {
		if wrapped[name] {
			t.Errorf("%s is in symbols.def and in unhandled.txt", name)
		}
	}
	for _, driver := range nvidia.Drivers() {
		t.Run(driver, func(t *testing.T) {
			if list := missing(exports(t, driver), handled, left); len(list) > 0 {
				t.Errorf("in neither symbols.def nor unhandled.txt: %s", strings.Join(list, " "))
			}
		})
	}
}
