package explain

import (
	"strings"
	"testing"

	"github.com/gshare-dev/gshare/vgpu/packing"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// A pod is kept off a device by its key alone: no smaller share helps, and the key is what to leave out. A slice that has its key and no memory
// left says that the memory is missing.
func TestChangesOfAntiAffinity(t *testing.T) {
	for name, tc := range map[string]struct {
		key    string // of the share that is there
		memory share.Bytes
		want   string
		why    packing.Refusal
	}{
		"the same key":              {"x", 10 * gib, "anti-affinity x> @n", packing.Repelled},
		"another key":               {"y", 10 * gib, "", packing.Admitted},
		"the same key and too much": {"x", 38 * gib, "", packing.NoMemory},
	} {
		t.Run(name, func(t *testing.T) {
			n := nodeOf("n", gpu("g", "A100"))
			n.Loads[0].Add(packing.Resident{Tenant: "ml", Model: packing.Slots, Class: share.MPS, Share: shareOf(100, 1000, tc.memory), AntiAffinity: tc.key})
			pod := podOf(shareOf(100, 1000, 5*gib), 1)
			pod.Request.AntiAffinity = "x"
			q := question(pod, n)
			if got := SliceRefusals(q.Packer.Rules, n, pod)[0][0]; got != tc.why {
				t.Errorf("refused: %s, want %s", got, tc.why)
			}
			if got := text(q.Changes()); got != tc.want {
				t.Errorf("changes: %q, want %q", got, tc.want)
			}
		})
	}
	if !strings.Contains(Advice(packing.Repelled), share.FieldAntiAffinity) {
		t.Error("the advice does not name the annotation")
	}
}
