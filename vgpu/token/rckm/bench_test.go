package rckm

import (
	"testing"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
	"github.com/gshare-dev/gshare/vgpu/token"
)

// BenchmarkTick measures one tick of a slice with the largest number of members, all of them busy.
func BenchmarkTick(b *testing.B) {
	s, err := New(Config{})
	if err != nil {
		b.Fatal(err)
	}
	const members = 16
	for id := range token.ID(members) {
		m := Member{ID: id, Priority: [...]share.Priority{share.SLO, share.BestEffort}[id%2], Request: 60, Limit: 90}
		if err := s.Join(0, m); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	now := time.Duration(0)
	for b.Loop() {
		now += tick
		for id := range token.ID(members) {
			_ = s.Report(now, id, Launches{Blocks: 1000, First: now - tick, Last: now, Batch: 4 * ms})
		}
		s.Advance(now)
	}
}
