package packing

import (
	"reflect"
	"testing"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// TestEquals: two nodes are equal until any field of the node, of a slice or of a share differs.
func TestEquals(t *testing.T) {
	build := func() (*Node, *Resident) {
		n := gpuNode("n", 2)
		r := runs(fixed(50, 50))
		r.Use.Workload, r.Weights = "a", []share.Weights{{Digest: "d", Memory: 1}}
		n.Loads[1].Add(r)
		return n, &n.Loads[1].residents[0]
	}
	n, _ := build()
	if other, _ := build(); !n.Equals(other) || !n.Equals(n.Clone()) {
		t.Error("equal nodes differ")
	}
	for name, part := range map[string]func(*Node, *Resident) any{
		"node": func(n *Node, _ *Resident) any { return n }, "slice": func(n *Node, _ *Resident) any { return &n.Slices[1] },
		"share": func(_ *Node, r *Resident) any { return r },
	} {
		t.Run(name, func(t *testing.T) {
			for i := range reflect.TypeOf(part(build())).Elem().NumField() {
				other, resident := build()
				whole := reflect.ValueOf(part(other, resident)).Elem()
				change(t, whole.Field(i))
				if n.Equals(other) || other.Equals(n) {
					t.Errorf("another %s makes no difference", whole.Type().Field(i).Name)
				}
			}
		})
	}
	if other, _ := build(); n.Equals(load(other, 0, runs(fixed(1, 1)))) {
		t.Error("one share more makes no difference")
	}
}

// change sets a value to another one.
func change(t *testing.T, v reflect.Value) {
	t.Helper()
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(!v.Bool())
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(v.Int() + 1)
	case reflect.Uint8:
		v.SetUint(v.Uint() + 1)
	case reflect.String:
		v.SetString(v.String() + "x")
	case reflect.Slice:
		v.Set(v.Slice(0, v.Len()-1))
	case reflect.Struct:
		change(t, v.Field(0))
	default:
		t.Fatalf("no other value of %v", v.Type())
	}
}
