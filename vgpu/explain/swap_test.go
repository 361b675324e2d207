package explain

import (
	"testing"

	"github.com/gshare-dev/gshare/vgpu/packing"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// A share of class swap may have what the host has room for beside the others, and what they leave of the slice while they wait.
func TestChangesOfMemoryInTurn(t *testing.T) {
	for name, tc := range map[string]struct {
		there []share.Bytes // on a slice of 40 GiB, of which those that wait keep 1 GiB each, with 20 GiB of the host
		want  string
	}{
		"the host has too little":   {[]share.Bytes{30 * gib}, "mem 38912>30720 @n"},
		"more than the slice":       {[]share.Bytes{30 * gib, 12 * gib}, "mem 38912>18432 @n"},
		"what others keep":          {[]share.Bytes{gib, gib, gib}, "mem 38912>37888 @n"},
		"one that needs all of it":  {[]share.Bytes{40 * gib}, ""},
		"the host has nothing left": {[]share.Bytes{38 * gib, 22 * gib}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := gpu("g", "A100")
			s.Classes = append(s.Classes, share.Swap)
			s.Swap = packing.SwapSpace{Host: 20 * gib, Kept: gib}
			n := nodeOf("n", s)
			for _, memory := range tc.there {
				n.Loads[0].Add(packing.Resident{Tenant: "ml", Model: packing.Slots, Class: share.Swap, Share: shareOf(100, 1000, memory)})
			}
			pod := podOf(shareOf(100, 1000, 38*gib), 1)
			pod.Request.Isolation = share.Swap
			q := question(pod, n)
			if got := SliceRefusals(q.Packer.Rules, n, pod)[0][0]; got != packing.NoMemory {
				t.Errorf("refused: %s", got)
			}
			if got := text(q.Changes()); got != tc.want {
				t.Errorf("changes: %q, want %q", got, tc.want)
			}
		})
	}
}
