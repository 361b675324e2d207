package whatif

import (
	"fmt"
	"testing"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// 700 pods of 60 sizes and four tenants on 100 nodes.
func BenchmarkCompare(b *testing.B) {
	var nodes []Node
	var pods []Pod
	for i := range 100 {
		n := testNode("", fmt.Sprintf("n%03d", i), 8)
		nodes = append(nodes, n)
		for g := range 7 {
			p := testPod(n.Name, fmt.Sprint(i, "-", g), 1, share.PerMille(10*(1+(i*7+g)%60)), 1000, gib*share.Bytes(1+(i*7+g)%60))
			p.Tenant = fmt.Sprint("t", i%4)
			pods = append(pods, p)
		}
	}
	for b.Loop() {
		Compare(nodes, pods)
	}
}
