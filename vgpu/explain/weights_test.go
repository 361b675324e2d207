package explain

import (
	"strings"
	"testing"

	"github.com/gshare-dev/gshare/vgpu/packing"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Digests of weights.
var (
	digestA = share.Digest("sha256:" + strings.Repeat("a", 64))
	digestB = share.Digest("sha256:" + strings.Repeat("b", 64))
)

// TestChangesBesideWeights: a slice of 40 GiB with a share of 10 GiB has 30 left, of which a pod's weights take what is not there yet.
func TestChangesBesideWeights(t *testing.T) {
	weights := []share.Weights{{Digest: digestA, Memory: 12 * gib}}
	for name, tc := range map[string]struct {
		there []share.Weights // on the slice
		store bool
		want  string
		why   packing.Refusal
	}{
		"to be loaded": {nil, true, "mem 27648>18432 @n", packing.NoMemory},
		"there":        {weights, true, "mem 27648>18432 @n", packing.NoMemory},
		"half there":   {[]share.Weights{{Digest: digestA, Memory: 6 * gib}}, true, "mem 27648>18432 @n", packing.NoMemory},
		"others there": {[]share.Weights{{Digest: digestB, Memory: 6 * gib}}, true, "mem 27648>12288 @n", packing.NoMemory},
		"no store":     {nil, false, "", packing.NoStore},
	} {
		t.Run(name, func(t *testing.T) {
			s := gpu("g", "A100")
			s.Store = tc.store
			n := nodeOf("n", s)
			n.Loads[0].Add(packing.Resident{Tenant: "ml", Model: packing.Slots, Class: share.MPS, Share: shareOf(100, 1000, 10*gib), Weights: tc.there})
			pod := podOf(shareOf(100, 1000, 27*gib), 1)
			pod.Request.Weights = weights
			q := question(pod, n)
			if got := SliceRefusals(q.Packer.Rules, n, pod)[0][0]; got != tc.why {
				t.Errorf("refused: %s, want %s", got, tc.why)
			}
			if got := text(q.Changes()); got != tc.want {
				t.Errorf("changes: %q, want %q", got, tc.want)
			}
			if !strings.Contains(Advice(packing.NoStore), share.FieldWeights) {
				t.Error("the advice does not name the annotation")
			}
		})
	}
}
