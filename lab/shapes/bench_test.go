package shapes

import (
	"testing"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// BenchmarkFill measures a decision of each policy while 1,000 pods arrive. The target for slots on papermix is 15 µs.
func BenchmarkFill(b *testing.B) {
	for _, family := range []string{"papermix", "fastgrid", "uniform"} {
		for _, policy := range Policies() {
			b.Run(family+"/"+policy, func(b *testing.B) {
				for seed := uint64(0); b.Loop(); seed++ {
					pods := Draw(Families()[family], 1000, seed)
					if _, err := Fill(b.Context(), newFleet(b, policy, Config{GPUs: len(pods)}), pods); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1000, "ns/pod")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

// BenchmarkLowerBound measures the program over 1,000 pods; uniform has 56 SM shares.
func BenchmarkLowerBound(b *testing.B) {
	for _, family := range []string{"papermix", "fastgrid", "uniform"} {
		pods := Draw(Families()[family], 1000, 1)
		b.Run(family, func(b *testing.B) {
			for b.Loop() {
				LowerBound(pods, share.MiB, 50)
			}
		})
	}
}
