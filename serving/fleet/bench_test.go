package fleet

import (
	"fmt"
	"log/slog"
	"testing"

	"github.com/gshare-dev/gshare/serving/gateway"
	"github.com/gshare-dev/gshare/serving/rules/scaling"
)

// nothing is a Platform on which nothing happens.
type nothing struct{}

func (nothing) Create(Instance)      {}
func (nothing) Delete(string)        {}
func (nothing) Events() <-chan Event { return nil }

// BenchmarkTick10000 measures one tick of a fleet with 10,000 functions that nobody calls: without replicas, with one ready replica each, and
// with these after each function was set once more without a change. It does not include the cost of the gateways' reports.
func BenchmarkTick10000(b *testing.B) {
	const functions = 10_000
	for _, test := range []struct {
		name     string
		replicas int
		again    bool
	}{{"no replicas", 0, false}, {"one replica each", 1, false}, {"set again", 1, true}} {
		b.Run(test.name, func(b *testing.B) {
			f, err := New(Config{Gateways: &remote{Gateway: gateway.New(gateway.Config{})}, Platform: nothing{}, Log: slog.New(slog.DiscardHandler)}, nil)
			if err != nil {
				b.Fatal(err)
			}
			for n := range functions {
				object := decode(b, fmt.Sprintf("requestsPerSecond: 10, minReplicas: %d", test.replicas), nil)
				object.Name = fmt.Sprintf("f%d", n)
				var existing []Existing
				for id := range test.replicas {
					existing = append(existing, Existing{ID: scaling.ID(id + 1), Address: "10.0.0.1:8080"})
				}
				if err := f.Restore(object, existing, nil); err != nil {
					b.Fatal(err)
				}
				if test.again {
					if err := f.Set(object.DeepCopy()); err != nil {
						b.Fatal(err)
					}
				}
			}
			tick := func() { f.locked(func() { f.ticks++; f.scaleAll() }) }
			for range 100 { // until windows and statistics are full
				tick()
			}
			b.ReportAllocs()
			for b.Loop() {
				tick()
			}
			if len(f.instances) != functions*test.replicas {
				b.Errorf("%d instances", len(f.instances))
			}
		})
	}
}
