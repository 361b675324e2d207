package cluster

import (
	"fmt"
	"testing"
)

// BenchmarkOpenb replays openb's default list, on its cluster and on four of them.
func BenchmarkOpenb(b *testing.B) {
	for _, policy := range []string{"gshare", "fgd"} {
		for _, k := range []int{1, 4} {
			b.Run(fmt.Sprintf("%s/%d", policy, k), func(b *testing.B) {
				nodes, pods := openb(b, "default", k)
				decisions := 0
				for i := 0; b.Loop(); i++ {
					b.StopTimer()
					s, err := New(Config{Nodes: nodes, Pods: pods, Policy: policy, Order: RandomOrder, Load: 1.3, Seed: uint64(i)})
					if err != nil {
						b.Fatal(err)
					}
					b.StartTimer()
					r, err := s.Run(b.Context())
					if err != nil {
						b.Fatal(err)
					}
					decisions += r.Decisions
				}
				b.ReportMetric(float64(decisions)/b.Elapsed().Seconds(), "decisions/s")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}
