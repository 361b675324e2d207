package token

import (
	"testing"
	"time"
)

// BenchmarkAdvance measures a call of Advance, with its settlements, for ten members that take turns and always have work.
func BenchmarkAdvance(b *testing.B) {
	for _, policy := range Policies() {
		b.Run(policy.String(), func(b *testing.B) {
			s, err := New(Config{Policy: policy})
			if err != nil {
				b.Fatal(err)
			}
			for id := range ID(10) {
				if s.Join(0, Member{id, 250, 360, 360}) != nil || s.RequestToken(0, id) != nil {
					b.Fatal("no room")
				}
			}
			b.ReportAllocs()
			next := time.Duration(0)
			for b.Loop() {
				_, next = s.Advance(next)
			}
			b.ReportMetric(float64(next)/float64(time.Second)/b.Elapsed().Seconds(), "s/s")
		})
	}
}
