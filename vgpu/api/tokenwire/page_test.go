package tokenwire

import (
	"fmt"
	"os/exec"
	"reflect"
	"strings"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
)

// snake converts a Go name to the form of C names.
func snake(name string) string {
	var b strings.Builder
	for i, r := range name {
		if i > 0 && r >= 'A' && r <= 'Z' {
			b.WriteByte('_')
		}
		b.WriteRune(r)
	}
	return strings.ToLower(b.String())
}

// layoutOf returns the fields of a page with their offsets. The head is listed once.
func layoutOf(page string, of reflect.Type, head bool) (lines []string) {
	for i := range of.NumField() {
		f := of.Field(i)
		switch {
		case f.Anonymous && head:
			for k := range f.Type.NumField() {
				inner := f.Type.Field(k)
				lines = append(lines, fmt.Sprintf("%s %s %d", page, snake(inner.Name), f.Offset+inner.Offset))
			}
		case !f.Anonymous && f.Name != "_":
			lines = append(lines, fmt.Sprintf("%s %s %d", page, snake(f.Name), f.Offset))
		}
	}
	return lines
}

// TestLayout compares the layouts of Go and C pages, field by field.
func TestLayout(t *testing.T) {
	out, err := exec.Command(buildC(t, "layout.c")).Output()
	if err != nil {
		t.Fatal(err)
	}
	want := layoutOf("server", reflect.TypeFor[ServerPage](), true)
	want = append(want, layoutOf("container", reflect.TypeFor[ContainerPage](), false)...)
	want = append(want, layoutOf("client", reflect.TypeFor[ClientPage](), false)...)
	want = append(want, fmt.Sprintf("server size %d", unsafe.Sizeof(ServerPage{})),
		fmt.Sprintf("container size %d", unsafe.Sizeof(ContainerPage{})),
		fmt.Sprintf("client size %d", unsafe.Sizeof(ClientPage{})),
		fmt.Sprintf("unserved start %d length %d", int64(UnservedStart), UnservedLength))
	if diff := cmp.Diff(want, strings.Split(strings.TrimSpace(string(out)), "\n")); diff != "" {
		t.Errorf("C and Go differ (-Go +C):\n%s", diff)
	}
}

func TestSetStateChangesGeneration(t *testing.T) {
	var p ServerPage
	p.SetState(Run)
	if p.State.Load() != uint32(Run) || p.Generation.Load() != 1 {
		t.Errorf("state %d, generation %d", p.State.Load(), p.Generation.Load())
	}
}
