package tokenserver_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/gshare-dev/gshare/test/tokenclient"
	"github.com/gshare-dev/gshare/vgpu/api/tokenwire"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// BenchmarkNeed measures the time from a NEED frame until the process runs, on a slice of 16 shares with a process each: the frame,
// one step, and the wake-up.
func BenchmarkNeed(b *testing.B) {
	r := newFixture(b, tempDir(b))
	small := share.Share{SMRequest: 60, SMLimit: 60, QuotaRequest: 1000, QuotaLimit: 1000, Memory: gib}
	var clients []*tokenclient.Client
	for i := range 16 {
		name := fmt.Sprint(i)
		r.add(b, name, small)
		clients = append(clients, r.dial(b, name))
	}
	for i := 0; b.Loop(); i++ {
		c := clients[i%len(clients)]
		if !c.WaitRun(0, time.Second) {
			b.Fatal("no token")
		}
		b.StopTimer()
		for state(c) != tokenwire.Pause {
			time.Sleep(time.Millisecond)
		}
		b.StartTimer()
	}
}

// BenchmarkTick measures one tick of an elastic slice of 16 shares, each with a process that launches all the time.
func BenchmarkTick(b *testing.B) {
	r, clock := newElasticFixture(b)
	small := share.Share{SMRequest: 60, SMLimit: 120, QuotaRequest: 1000, QuotaLimit: 1000, Memory: gib}
	var clients []*tokenclient.Client
	for i := range 16 {
		r.add(b, fmt.Sprint(i), small, elastic)
		clients = append(clients, r.dial(b, fmt.Sprint(i)))
	}
	for b.Loop() {
		for _, c := range clients {
			c.VGPUs[0].Container.Taken.Add(100)
		}
		clock.tick()
	}
}
