package gpu

import (
	"testing"

	"github.com/gshare-dev/gshare/vgpu/share"
)

func TestMemoryForShares(t *testing.T) {
	const gib = 1024 * share.MiB
	alone, shared := []share.Isolation{share.Exclusive}, []share.Isolation{share.Exclusive, share.MPS}
	for name, test := range map[string]struct {
		memory, reserve, want share.Bytes
		classes               []share.Isolation
	}{
		"a GPU":                          {80 * gib, gib, 79 * gib, shared},
		"class swap alone":               {80 * gib, gib, 79 * gib, []share.Isolation{share.Swap}},
		"nothing is to be kept":          {80 * gib, 0, 80 * gib, shared},
		"a GPU that is not shared":       {80 * gib, gib, 80 * gib, alone},
		"classes are not known":          {80 * gib, gib, 80 * gib, nil},
		"at most an eighth":              {4 * gib, gib, 7 * gib / 2, shared},
		"just an eighth":                 {8 * gib, gib, 7 * gib, shared},
		"an instance with a MiB":         {share.MiB, gib, share.MiB - share.MiB/8, shared},
		"what the driver does not count": {0, gib, 0, shared},
	} {
		t.Run(name, func(t *testing.T) {
			if got := MemoryForShares(test.memory, test.reserve, test.classes); got != test.want {
				t.Errorf("got %d MiB, want %d", got/share.MiB, test.want/share.MiB)
			}
		})
	}
}
