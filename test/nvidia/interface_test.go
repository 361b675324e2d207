package nvidia_test

import (
	"debug/dwarf"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/gshare-dev/gshare/test/nvidia"
)

// types are the named types and enumerators of a compiled C source.
type types struct {
	named  map[string]dwarf.Type
	values map[string]int64
}

// compile compiles a C source with the given flags and returns its types, as read from the debugging information.
func compile(t *testing.T, source string, flags ...string) types {
	t.Helper()
	object := filepath.Join(t.TempDir(), "types.o")
	arguments := append([]string{"-c", "-g", "-fno-eliminate-unused-debug-types", "-w", "-I.", "-x", "c", "-", "-o", object}, flags...)
	command := exec.Command("gcc", arguments...)
	command.Stdin = strings.NewReader(source)
	output(t, command)
	file, err := elf.Open(object)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	data, err := file.DWARF()
	if err != nil {
		t.Fatal(err)
	}
	all := types{map[string]dwarf.Type{}, map[string]int64{}}
	for r := data.Reader(); ; {
		entry, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		if entry == nil {
			return all
		}
		if entry.Tag != dwarf.TagTypedef && entry.Tag != dwarf.TagEnumerationType {
			continue
		}
		described, err := data.Type(entry.Offset)
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := described.(*dwarf.EnumType); ok {
			for _, v := range e.Val {
				all.values[v.Name] = v.Val
			}
		} else if name, ok := entry.Val(dwarf.AttrName).(string); ok {
			all.named[name] = described
		}
	}
}

// plain returns a type without typedefs and qualifiers.
func plain(t dwarf.Type) dwarf.Type {
	for {
		switch named := t.(type) {
		case *dwarf.TypedefType:
			t = named.Type
		case *dwarf.QualType:
			t = named.Type
		default:
			return t
		}
	}
}

// difference describes how a type of ours differs from the real one in its binary interface: the kind and width of values, the offsets of
// structure fields, the names of handles. It is empty if they agree. void matches any type behind a pointer. The signedness of integers
// and the names of structures do not matter, and a structure of ours may declare only some of the real one's fields.
func difference(ours, real dwarf.Type) string {
	ours, real = plain(ours), plain(real)
	switch o := ours.(type) {
	case *dwarf.PtrType:
		r, ok := real.(*dwarf.PtrType)
		if !ok {
			return fmt.Sprintf("%s instead of %s", ours, real)
		}
		if _, void := plain(o.Type).(*dwarf.VoidType); void {
			return ""
		}
		return difference(o.Type, r.Type)
	case *dwarf.FuncType:
		r, ok := real.(*dwarf.FuncType)
		if !ok || len(o.ParamType) != len(r.ParamType) {
			return fmt.Sprintf("%s instead of %s", ours, real)
		}
		for i := range o.ParamType {
			if text := difference(o.ParamType[i], r.ParamType[i]); text != "" {
				return fmt.Sprintf("argument %d: %s", i+1, text)
			}
		}
		return difference(o.ReturnType, r.ReturnType)
	case *dwarf.StructType:
		r, ok := real.(*dwarf.StructType)
		switch {
		case !ok || o.Incomplete && o.StructName != r.StructName:
			return fmt.Sprintf("%s instead of %s", ours, real)
		case o.Incomplete:
			return ""
		case o.ByteSize != r.ByteSize:
			return fmt.Sprintf("%d bytes instead of %d", o.ByteSize, r.ByteSize)
		}
		for _, f := range o.Field {
			if text := differentField(f, r.Field); text != "" {
				return f.Name + ": " + text
			}
		}
		return ""
	case *dwarf.ArrayType:
		r, ok := real.(*dwarf.ArrayType)
		if !ok || o.Count != r.Count {
			return fmt.Sprintf("%s instead of %s", ours, real)
		}
		return difference(o.Type, r.Type)
	}
	_, pointer := real.(*dwarf.PtrType)
	_, ourFloat := ours.(*dwarf.FloatType)
	_, realFloat := real.(*dwarf.FloatType)
	if pointer || ourFloat != realFloat || ours.Size() != real.Size() {
		return fmt.Sprintf("%s instead of %s", ours, real)
	}
	return ""
}

// differentField describes how a field of ours differs from the real structure's field of the same name.
func differentField(ours *dwarf.StructField, real []*dwarf.StructField) string {
	for _, r := range real {
		if r.Name == ours.Name {
			if r.ByteOffset != ours.ByteOffset {
				return fmt.Sprintf("at offset %d instead of %d", ours.ByteOffset, r.ByteOffset)
			}
			return difference(ours.Type, r.Type)
		}
	}
	return "no such field"
}

// constants matches the macros of hook/include/gshare_cuda.h, which debugging information does not describe.
var constants = regexp.MustCompile(`(?m)^#define (CU\w+) `)

// enumerators returns declarations of an enumerator MACRO_X for each macro X, which debugging information does describe.
func enumerators(macros []string) string {
	var text strings.Builder
	for _, m := range macros {
		fmt.Fprintf(&text, "enum { MACRO_%s = (long)%s };\n", m, m)
	}
	return text.String()
}

// graphics replaces the headers of OpenGL and VDPAU, which need not be installed, and includes the CUDA headers that need them.
const graphics = `typedef unsigned GLuint, GLenum, VdpDevice, VdpVideoSurface, VdpOutputSurface;
typedef void VdpGetProcAddress(void);
#include <cudaGLTypedefs.h>
#include <cudaVDPAUTypedefs.h>
`

// emptyHeaders returns a folder with empty files of the given names.
func emptyHeaders(t *testing.T, names ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range names {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// realTypes returns the types in the headers of a CUDA toolkit. It declares the type of each function under the hook's own name for it,
// and leaves out functions that are newer than the toolkit.
func realTypes(t *testing.T, include string, macros []string, list []symbol) types {
	t.Helper()
	version := 0
	text, err := os.ReadFile(filepath.Join(include, "cuda.h"))
	if found := regexp.MustCompile(`#define CUDA_VERSION (\d+)`).FindSubmatch(text); err != nil || found == nil {
		t.Fatalf("cuda.h has no version: %v", err)
	} else if version, err = strconv.Atoi(string(found[1])); err != nil {
		t.Fatal(err)
	}
	var source strings.Builder
	source.WriteString(graphics + "#include <cuda.h>\n#include <cudaTypedefs.h>\n#include <nvml.h>\n" + enumerators(macros))
	for _, s := range list {
		switch {
		case s.base == "" && strings.HasPrefix(s.name, "cu") && !regexp.MustCompile(`\b`+s.name+`\b`).Match(text):
			// a function without a version in the list that the toolkit lacks
		case s.base == "":
			fmt.Fprintf(&source, "typedef __typeof__(&%s) %s_fn;\n", s.name, s.name)
		case s.since <= version && s.twin:
			fmt.Fprintf(&source, "typedef PFN_%s_v%d%s %s_fn;\n", s.base, max(s.since, 7000), s.name[strings.LastIndex(s.name, "_"):], s.name)
		case s.since <= version:
			fmt.Fprintf(&source, "typedef PFN_%s_v%d %s_fn;\n", s.base, s.since, s.name)
		}
	}
	return compile(t, source.String(), "-D__CUDA_API_VERSION_INTERNAL", "-isystem", include, "-isystem", emptyHeaders(t, "GL/gl.h", "vdpau/vdpau.h"))
}

// compare describes how the types of ours differ from the real ones. It compares only types that have a name in the driver's interface,
// and leaves out functions that the real ones lack.
func compare(ours, real types) []string {
	var differences []string
	for name, o := range ours.named {
		if !strings.HasPrefix(name, "CU") && !strings.HasPrefix(name, "cu") && !strings.HasPrefix(name, "nvml") {
			continue
		}
		if r, ok := real.named[name]; ok {
			if text := difference(o, r); text != "" {
				differences = append(differences, name+": "+text)
			}
		} else if !strings.HasSuffix(name, "_fn") {
			differences = append(differences, name+": no such type")
		}
	}
	for name, value := range ours.values {
		r, ok := real.values[name]
		switch {
		case !strings.HasPrefix(name, "CU") && !strings.HasPrefix(name, "NVML_") && !strings.HasPrefix(name, "MACRO_"):
		case !ok:
			differences = append(differences, name+": no such constant")
		case r != value:
			differences = append(differences, fmt.Sprintf("%s: %d instead of %d", name, value, r))
		}
	}
	return differences
}

// TestInterface compares what hook/include/gshare_cuda.h and symbols.def say about the driver's binary interface with NVIDIA's headers:
// structures, constants, and the arguments of all functions.
func TestInterface(t *testing.T) {
	header, err := os.ReadFile(filepath.Join(root, "hook/include/gshare_cuda.h"))
	if err != nil {
		t.Fatal(err)
	}
	var macros []string
	for _, match := range constants.FindAllSubmatch(header, -1) {
		macros = append(macros, string(match[1]))
	}
	list := symbols(t)
	ours := compile(t, "#include \"hook/src/symbols.h\"\n"+enumerators(macros))
	for _, toolkit := range []string{"cuda-12.4", "cuda-12.5"} {
		t.Run(toolkit, func(t *testing.T) {
			real := realTypes(t, filepath.Join(nvidia.Folder(t, toolkit), "usr/include"), macros, list)
			for _, text := range compare(ours, real) {
				t.Error(text)
			}
			functions := 0
			for name := range real.named {
				if _, ok := ours.named[name]; ok && strings.HasSuffix(name, "_fn") {
					functions++
				}
			}
			if functions < len(list)*9/10 {
				t.Errorf("compared %d of %d functions", functions, len(list))
			}
		})
	}
}

// TestDifferences checks that compare finds the differences in declarations that differ.
func TestDifferences(t *testing.T) {
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("gcc is not installed")
	}
	for name, test := range map[string]struct {
		ours, real string
		want       string // contained in the only difference; empty if there is none
	}{
		"the same":            {"typedef int (*cuF_fn)(int, void *);", "typedef int (*cuF_fn)(enum {A} e, const char *p);", ""},
		"fewer arguments":     {"typedef int (*cuF_fn)(int);", "typedef int (*cuF_fn)(int, int);", "instead of"},
		"a wider argument":    {"typedef int (*cuF_fn)(int, long);", "typedef int (*cuF_fn)(int, int);", "argument 2"},
		"a pointer":           {"typedef int (*cuF_fn)(long);", "typedef int (*cuF_fn)(char *);", "argument 1"},
		"another handle":      {"typedef int (*cuF_fn)(struct a *);", "typedef int (*cuF_fn)(struct b *);", "argument 1"},
		"what is pointed at":  {"typedef int (*cuF_fn)(int *);", "typedef int (*cuF_fn)(long *);", "argument 1"},
		"a floating point":    {"typedef int (*cuF_fn)(int);", "typedef int (*cuF_fn)(float);", "argument 1"},
		"a newer function":    {"typedef int (*cuF_fn)(int);", "typedef int other;", ""},
		"no such type":        {"typedef struct { int a; } CUs;", "typedef int other;", "no such type"},
		"a longer structure":  {"typedef struct { int a; } CUs;", "typedef struct { int a, b; } CUs;", "4 bytes instead of 8"},
		"fields exchanged":    {"typedef struct { int a, b; } CUs;", "typedef struct { int b, a; } CUs;", "at offset"},
		"a field of a field":  {"typedef struct { struct { int a; } s; } CUs;", "typedef struct { struct { float a; } s; } CUs;", "s: a:"},
		"a field's name":      {"typedef struct { int a; } CUs;", "typedef struct { int b; } CUs;", "no such field"},
		"another constant":    {"enum { CU_A = 1 };", "enum { CU_A = 2 };", "1 instead of 2"},
		"a constant's name":   {"enum { CU_A = 1 };", "enum { CU_B = 1 };", "no such constant"},
		"a shorter array":     {"typedef struct { int a[2], b; } CUs;", "typedef struct { int a[3]; } CUs;", "a: "},
		"another return type": {"typedef int (*cuF_fn)(int);", "typedef long (*cuF_fn)(int);", "instead of"},
	} {
		t.Run(name, func(t *testing.T) {
			got := compare(compile(t, test.ours), compile(t, test.real))
			if test.want == "" && len(got) > 0 || test.want != "" && (len(got) != 1 || !strings.Contains(got[0], test.want)) {
				t.Errorf("got %q, want one with %q", got, test.want)
			}
		})
	}
}
