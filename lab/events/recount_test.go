package events

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/gshare-dev/gshare/vgpu/packing"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// gpu is one GPU of the recount.
type gpu struct{ node, slice int }

// recount adds up every GPU from the bookings alone, without code of the packer, and returns what is wrong.
func recount(c *cluster, cfg Config) error {
	requests, limits, memory := map[gpu]int64{}, map[gpu]int64{}, map[gpu]share.Bytes{}
	workers, nodes := map[string]map[gpu]bool{}, map[string]map[int]bool{}
	for node, list := range c.booked {
		for _, b := range list {
			if workers[b.instance] == nil {
				workers[b.instance], nodes[b.instance] = map[gpu]bool{}, map[int]bool{}
			}
			nodes[b.instance][node] = true
			for i, picks := range b.plan {
				sh := b.pod.Request.Containers[i].Share
				for _, p := range picks {
					at := gpu{node, p.Slice}
					if workers[b.instance][at] {
						return fmt.Errorf("%s is on %v twice", b.instance, at)
					}
					workers[b.instance][at] = true
					requests[at] += int64(sh.SMRequest)
					limits[at] += int64(sh.SMLimit)
					memory[at] += sh.Memory
				}
			}
		}
	}
	for at := range requests {
		if requests[at] > 1000 || memory[at] > cfg.Memory || limits[at] > cfg.Gamma && c.policy.isolation == share.Elastic {
			return fmt.Errorf("%v: requests %d, limits %d, memory %d", at, requests[at], limits[at], memory[at])
		}
	}
	if len(requests) != c.active {
		return fmt.Errorf("%d GPUs are active, %d were counted", len(requests), c.active)
	}
	return recountInstances(c, workers, nodes)
}

func recountInstances(c *cluster, workers map[string]map[gpu]bool, nodes map[string]map[int]bool) error {
	var asked demand
	for name, on := range workers {
		in, ok := c.running[name]
		cut := in.LLM && len(on) > in.GPUs
		switch {
		case !ok:
			return fmt.Errorf("%s does not run", name)
		case len(on) != in.GPUs && !cut:
			return fmt.Errorf("%s is on %d GPUs, not %d", name, len(on), in.GPUs)
		case len(nodes[name]) > 1 && !c.policy.apart:
			return fmt.Errorf("%s is on %d nodes", name, len(nodes[name]))
		}
		asked.sm += share.PerMille(in.GPUs) * in.Request
		asked.memory += share.Bytes(in.GPUs) * in.Memory
	}
	if len(workers) != len(c.running) || len(workers) != len(c.where) || asked != c.requested {
		return fmt.Errorf("%d instances with %+v; recorded are %d, %d with %+v", len(workers), asked, len(c.running), len(c.where), c.requested)
	}
	return nil
}

// small is a cluster that fills up.
var small = Config{Nodes: 6, GPUsPerNode: 4, Memory: 40 * gib, Gamma: 1500}

// randomList lets so many instances come, and most of them go.
func randomList(random *rand.Rand, count int) []Event {
	var list []Event
	var running []Instance
	for i := range count {
		in := part(fmt.Sprint("i", i), 0, 0, share.Bytes(1+random.IntN(20)))
		in.Request = share.PerMille(100 + random.IntN(500))
		in.Limit = min(share.Whole, in.Request+share.PerMille(random.IntN(400)))
		switch random.IntN(4) {
		case 0:
			in.GPUs = 1 + random.IntN(4)
		case 1:
			in.LLM, in.Memory = true, share.Bytes(20+random.IntN(30))*gib
		}
		list = append(list, starts(i, in))
		running = append(running, in)
		for len(running) > 0 && random.IntN(3) == 0 {
			at := random.IntN(len(running))
			list = append(list, ends(i, running[at]))
			running = append(running[:at], running[at+1:]...)
		}
	}
	return list
}

// Under every policy, after every event: no bound is broken, gangs are whole and on GPUs of their own, books are right.
func TestRecount(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 3))
	for _, p := range Policies() {
		refused, cuts := 0, 0
		for range 20 {
			c := newCluster(small, p)
			for i, e := range randomList(random, 60) {
				if !e.Start {
					c.stop(e.Instance.Name)
				} else if !c.start(e.Instance) {
					refused++
				}
				if err := recount(c, small); err != nil {
					t.Fatalf("%s, event %d: %v", p.Name, i, err)
				}
				if b := c.where[e.Instance.Name]; e.Start && e.Instance.LLM && len(b) == 1 {
					last := c.booked[b[0]][len(c.booked[b[0]])-1]
					cuts += min(1, len(last.plan)-1)
				}
			}
		}
		if refused == 0 || (cuts > 0) != p.cuts {
			t.Errorf("%s: %d refused, %d cut: the lists are too tame", p.Name, refused, cuts)
		}
	}
}

// The recount objects to every kind of wrong booking.
func TestRecountFindsFaults(t *testing.T) {
	gang := part("gang", 60, 80, 30)
	gang.GPUs = 2
	for name, spoil := range map[string]func(*cluster, *booking){
		"a GPU twice":       func(_ *cluster, b *booking) { b.plan[0][1] = b.plan[0][0] },
		"too few GPUs":      func(_ *cluster, b *booking) { b.plan[0] = b.plan[0][:1] },
		"another GPU":       func(c *cluster, _ *booking) { c.active++ },
		"requests":          func(_ *cluster, b *booking) { b.pod.Request.Containers[0].Share.SMRequest = 1001 },
		"limits":            func(_ *cluster, b *booking) { b.pod.Request.Containers[0].Share.SMLimit = 1501 },
		"memory":            func(_ *cluster, b *booking) { b.pod.Request.Containers[0].Share.Memory = 41 * gib },
		"unknown instance":  func(_ *cluster, b *booking) { b.instance = "nobody" },
		"demand":            func(c *cluster, _ *booking) { c.requested.sm++ },
		"two nodes":         func(c *cluster, b *booking) { moveHalf(c, b) },
		"not booked at all": func(c *cluster, _ *booking) { c.booked[0], c.active = nil, 0 },
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(small, policy(t, "complementary"))
			if !c.start(gang) {
				t.Fatal("refused")
			}
			if err := recount(c, small); err != nil {
				t.Fatal(err)
			}
			spoil(c, &c.booked[0][0])
			if recount(c, small) == nil {
				t.Errorf("no objection")
			}
		})
	}
}

func moveHalf(c *cluster, b *booking) {
	moved := *b
	moved.plan = packing.Plan{b.plan[0][1:]}
	b.plan = packing.Plan{b.plan[0][:1]}
	c.booked[1] = append(c.booked[1], moved)
}

func policy(t testing.TB, name string) Policy {
	t.Helper()
	for _, p := range Policies() {
		if p.Name == name {
			return p
		}
	}
	t.Fatalf("no policy %s", name)
	return Policy{}
}
