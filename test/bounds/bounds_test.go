package bounds_test

import (
	"testing"

	"github.com/gshare-dev/gshare/test/bounds"
	"github.com/gshare-dev/gshare/vgpu/share"
)

type box struct {
	count int64
	part  float64
}

func (b *box) validate() error {
	if b.count < 1 || b.count > 7 {
		return share.Invalid("count", "%d is outside 1 to 7", b.count)
	}
	if !(b.part >= 0 && b.part <= 0.5) {
		return share.Invalid("part", "%v is outside 0 to 0.5", b.part)
	}
	return nil
}

// TestCheck checks that correct bounds pass.
func TestCheck(t *testing.T) {
	valid := func() box { return box{count: 1} }
	bounds.Check(t, valid, (*box).validate, bounds.Of("count", 1, 7, func(b *box, n int64) { b.count = n }))
	bounds.Check(t, valid, (*box).validate, bounds.Of("part", 0, 0.5, func(b *box, x float64) { b.part = x }))
}

// TestCheckFails checks that wrong bounds fail. Check gets a separate testing.T, which is expected to fail.
func TestCheckFails(t *testing.T) {
	set := func(b *box, n int64) { b.count = n }
	for name, f := range map[string]bounds.Field[box, int64]{
		"least too small": bounds.Of("count", 0, 7, set), "least too large": bounds.Of("count", 2, 7, set),
		"most too small": bounds.Of("count", 1, 6, set), "most too large": bounds.Of("count", 1, 8, set),
		"another field": bounds.Of("part", 1, 7, set),
	} {
		var failed testing.T
		if bounds.Check(&failed, func() box { return box{count: 1} }, (*box).validate, f); !failed.Failed() {
			t.Errorf("%s: no error", name)
		}
	}
}
