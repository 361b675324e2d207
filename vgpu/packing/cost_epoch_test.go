package packing

import "testing"

// epochWorld returns the mix of this many running pods with half a GPU and with a whole one, and the capacity of their
// cluster.
func epochWorld(halves, wholes int) (*Mix, Capacity) {
	var m Mix
	m.Add(Shape{VGPUs: 1, Milli: 500, CPU: 4000}, halves)
	m.Add(Shape{VGPUs: 1, Milli: 1000, CPU: 8000}, wholes)
	return &m, Capacity{GPU: 4_000_000, FreeGPU: 500_000, CPU: 1 << 40, FreeCPU: 1 << 40, Models: map[string]MilliGPU{"A100": 1_000_000}}
}

func TestEpochEndsWhenDemandChanges(t *testing.T) {
	for name, c := range map[string]struct {
		halves, wholes int
		change         func(*Capacity)
		want           bool
	}{
		"nothing":                              {halves: 400, wholes: 400},
		"a few more of another kind":           {halves: 400, wholes: 500},
		"twice as many, the bound":             {halves: 800, wholes: 800},
		"twice as many, others":                {halves: 400, wholes: 1200, want: true},
		"half of them are gone, the bound":     {halves: 200, wholes: 200},
		"the free GPUs are gone, pods as ever": {halves: 400, wholes: 400, change: func(c *Capacity) { c.FreeGPU = 1000 }},
		"more GPUs": {halves: 400, wholes: 400, want: true,
			change: func(c *Capacity) { c.GPU += c.GPU / 10 }},
		"CPU becomes scarce": {halves: 800, wholes: 800, want: true,
			change: func(c *Capacity) { c.CPU, c.FreeCPU = 10_000_000, 100_000 }},
	} {
		t.Run(name, func(t *testing.T) {
			e := NewEpoch(epochWorld(400, 400))
			m, now := epochWorld(c.halves, c.wholes)
			if c.change != nil {
				c.change(&now)
			}
			if got := e.Expired(m, now); got != c.want {
				t.Errorf("over: %v, want %v", got, c.want)
			}
		})
	}
}

func TestFirstPodsEndTheFirstEpoch(t *testing.T) {
	var e Epoch
	m, c := epochWorld(40, 40)
	if !e.Expired(m, c) {
		t.Error("the demand of an unknown cluster lasts")
	}
}

// TestEpochLooksRarely: the demand is compared again only after the cluster has changed by half since the last comparison.
func TestEpochLooksRarely(t *testing.T) {
	e := NewEpoch(epochWorld(400, 400))
	m, c := epochWorld(800, 800)
	if e.Expired(m, c) || e.pods != 1600 {
		t.Fatalf("looked at %d pods, want 1600 and no end", e.pods)
	}
	m, c = epochWorld(800, 1500) // a fifth of them others, but no half more
	if e.Expired(m, c) {
		t.Error("looked again too early")
	}
}
