package explain

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/gshare-dev/gshare/vgpu/packing"
	"github.com/gshare-dev/gshare/vgpu/share"
)

func TestMoreGPUs(t *testing.T) {
	gpus := func(count int) (n *packing.Node) {
		var list []packing.Slice
		for i := range count {
			list = append(list, gpu(fmt.Sprint("g", i), "A100"))
		}
		return nodeOf(fmt.Sprint("n", count), list...)
	}
	part := shareOf(500, 400, 100*gib)
	raised := part
	raised.QuotaLimit = 800
	for name, tc := range map[string]struct {
		pod   *packing.Pod
		nodes []*packing.Node
		want  string // the last change
	}{
		"three of 40 GiB":     {podOf(shareOf(1000, 1000, 100*gib), 1), []*packing.Node{gpus(2), gpus(4)}, "vgpu 1>3 and sm 100>300 and mem 102400>102402 @n4"},
		"four, as two do not": {podOf(shareOf(1000, 1000, 70*gib), 2), []*packing.Node{gpus(8)}, "vgpu 2>4 and sm 200>400 @n8"},
		"a part of a GPU":     {podOf(part, 1), []*packing.Node{gpus(4)}, "vgpu 1>3 and sm 50>300 and quota 40>100 and mem 102400>102402 @n4"},
		"with a limit":        {podOf(raised, 1), []*packing.Node{gpus(4)}, "vgpu 1>3 and sm 50>300 and quota 40>100 and mem 102400>102402 and quota-limit 80> @n4"},
		"one of three is used": {podOf(shareOf(1000, 1000, 100*gib), 1),
			[]*packing.Node{occupied(gpus(3), 0, "ml", share.MPS, shareOf(100, 1000, gib))}, "mem 102400>40960 @n3"},
		"no node has three": {podOf(shareOf(1000, 1000, 100*gib), 1), []*packing.Node{gpus(2), gpus(2)}, "mem 102400>40960 @n2"},
		"a GPU is large enough": {podOf(shareOf(1000, 1000, 30*gib), 1),
			[]*packing.Node{occupied(gpus(1), 0, "ml", share.MPS, shareOf(500, 1000, 20*gib))}, "mem 30720>20480 and sm 100>50 @n1"},
	} {
		t.Run(name, func(t *testing.T) {
			all := strings.Split(text(question(tc.pod, tc.nodes...).Changes()), "; ")
			if got := all[len(all)-1]; got != tc.want {
				t.Errorf("%q, want %q at the end of %q", got, tc.want, all)
			}
		})
	}
}

// What is proposed fits, fewer GPUs do not, and nothing is proposed only if no number of GPUs fits.
func TestMoreGPUsAreTheFewest(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 3))
	proposed, none := 0, 0
	for range 400 {
		var nodes []*packing.Node
		for n := range 1 + random.IntN(3) {
			var list []packing.Slice
			for i := range 1 + random.IntN(6) {
				s := gpu(fmt.Sprint("g", n, i), "A100")
				s.Memory = share.Bytes(20+20*random.IntN(3)) * gib
				list = append(list, s)
			}
			node := nodeOf(fmt.Sprint("n", n), list...)
			for i := range list {
				if random.IntN(3) == 0 {
					occupied(node, i, "ml", share.MPS, shareOf(100, 1000, gib))
				}
			}
			nodes = append(nodes, node)
		}
		q := question(podOf(shareOf(1000, 1000, share.Bytes(61+random.IntN(200))*gib), 1), nodes...)
		fits := func(n int) bool {
			v := q.onWholeGPUs(0, n)
			if got := v.request.Containers[0].Share.Memory * share.Bytes(n); got < q.Pod.Request.Containers[0].Share.Memory {
				t.Fatalf("%d GPUs have %d together", n, got)
			}
			return q.findNode(v.request) != nowhere
		}
		found := q.moreGPUs()
		if len(found) == 0 {
			none++
			for n := 2; n <= 8; n++ {
				if fits(n) {
					t.Fatalf("%d GPUs fit, and are not proposed", n)
				}
			}
			continue
		}
		proposed++
		var n int
		if _, err := fmt.Sscan(found[0].Edits[0].To, &n); err != nil || !fits(n) {
			t.Fatalf("%+v does not fit, %v", found[0], err)
		}
		for fewer := 2; fewer < n; fewer++ {
			if fits(fewer) {
				t.Fatalf("%d GPUs are proposed, %d fit", n, fewer)
			}
		}
	}
	if proposed < 50 || none < 50 {
		t.Errorf("%d proposals, %d times none: the cases are one-sided", proposed, none)
	}
}
