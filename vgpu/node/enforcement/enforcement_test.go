package enforcement

import (
	"testing"

	"github.com/gshare-dev/gshare/vgpu/share"
)

func TestTexts(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ got, want string }{
		"SMs":                {SMs(MPS(false), 300, 108, ""), "MPS, 32 of 108 SMs"},
		"SMs inside MIG":     {SMs(MPS(true), 500, 14, "1g.10gb"), "MPS namespace, 6 of 14 SMs, inside of MIG 1g.10gb"},
		"memory":             {Memory(MPS(true), 0), "hook, MPS namespace"},
		"memory, the driver": {Memory(MPS(false), 1536*share.MiB), "dmem (1536 MiB), hook, MPS"},
	} {
		t.Run(name, func(t *testing.T) {
			if test.got != test.want {
				t.Errorf("%q, want %q", test.got, test.want)
			}
		})
	}
}
