package events

import (
	"slices"
	"testing"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// on returns the GPUs of an instance, by node and number.
func on(c *cluster, name string) []gpu {
	var out []gpu
	for _, node := range c.where[name] {
		for _, b := range c.booked[node] {
			if b.instance != name {
				continue
			}
			for _, picks := range b.plan {
				for _, p := range picks {
					out = append(out, gpu{node, p.Slice})
				}
			}
		}
	}
	return out
}

// of returns a gang of the instance.
func of(gpus int, in Instance) Instance {
	in.GPUs = gpus
	return in
}

func asLLM(in Instance) Instance {
	in.LLM = true
	return in
}

// Each case fills two nodes of two GPUs in order and expects a place for the last instance; nil is none.
func TestPlaces(t *testing.T) {
	pair := Config{Nodes: 2, GPUsPerNode: 2, Memory: 40 * gib, Gamma: 1500}
	whole := pair
	whole.Whole = true
	for name, c := range map[string]struct {
		policy string
		cfg    Config
		before []Instance
		last   Instance
		want   []gpu
	}{
		"exclusive shares nothing":           {"exclusive", pair, []Instance{part("a", 10, 10, 1)}, part("z", 10, 10, 1), []gpu{{0, 1}}},
		"limits fill a GPU":                  {"limit", pair, []Instance{part("a", 10, 60, 1)}, part("z", 10, 50, 1), []gpu{{0, 1}}},
		"limits just fit":                    {"limit", pair, []Instance{part("a", 10, 60, 1)}, part("z", 10, 40, 1), []gpu{{0, 0}}},
		"requests ignore limits":             {"request", pair, []Instance{part("a", 50, 100, 1)}, part("z", 50, 100, 1), []gpu{{0, 0}}},
		"γ bounds limits":                    {"complementary", pair, []Instance{part("a", 50, 100, 1)}, part("z", 50, 60, 1), []gpu{{0, 1}}},
		"γ is reached":                       {"complementary", pair, []Instance{part("a", 50, 100, 1)}, part("z", 50, 50, 1), []gpu{{0, 0}}},
		"memory binds":                       {"request", pair, []Instance{part("a", 10, 10, 30)}, part("z", 10, 10, 11), []gpu{{0, 1}}},
		"first fit takes the first":          {"firstfit", pair, []Instance{part("a", 30, 30, 1), part("b", 80, 80, 1)}, part("z", 20, 20, 1), []gpu{{0, 0}}},
		"even a fresh one":                   {"firstfit", pair, []Instance{part("gone", 90, 90, 1), part("b", 80, 80, 1)}, part("z", 20, 20, 1), []gpu{{0, 0}}},
		"best fit takes the tightest":        {"request", pair, []Instance{part("a", 30, 30, 1), part("b", 80, 80, 1)}, part("z", 20, 20, 1), []gpu{{0, 1}}},
		"memory weighs too":                  {"complementary", pair, []Instance{part("a", 45, 45, 30), part("b", 60, 60, 1)}, part("z", 20, 20, 1), []gpu{{0, 0}}},
		"but not for INFless":                {"request", pair, []Instance{part("a", 45, 45, 30), part("b", 60, 60, 1)}, part("z", 20, 20, 1), []gpu{{0, 1}}},
		"a gang on two GPUs (D3)":            {"complementary", pair, nil, of(2, part("z", 20, 20, 1)), []gpu{{0, 0}, {0, 1}}},
		"workers apart are on two GPUs (D3)": {"gshare", pair, nil, of(2, part("z", 20, 20, 1)), []gpu{{0, 0}, {0, 1}}},
		"a gang stays on one node (D11)":     {"complementary", pair, []Instance{part("a", 90, 90, 1)}, of(2, part("z", 20, 20, 1)), []gpu{{1, 0}, {1, 1}}},
		"workers apart need not":             {"gshare", pair, []Instance{part("a", 90, 90, 1)}, of(3, part("z", 20, 20, 1)), []gpu{{0, 1}, {1, 0}, {1, 1}}},
		"a gang too large is refused (D4)":   {"gshare", pair, []Instance{part("a", 90, 90, 1)}, of(4, part("z", 20, 20, 1)), nil},
		"none on one node (D4)":              {"complementary", pair, nil, of(3, part("z", 20, 20, 1)), nil},
		"a model is cut before a GPU starts": {"complementary", pair, []Instance{of(2, part("a", 50, 50, 20))}, asLLM(part("z", 40, 60, 30)), []gpu{{0, 0}, {0, 1}}},
		"not if it fits one fragment":        {"complementary", pair, []Instance{of(2, part("a", 50, 50, 20))}, asLLM(part("z", 40, 60, 20)), []gpu{{0, 0}}},
		"not if that is forbidden":           {"complementary", whole, []Instance{of(2, part("a", 50, 50, 20))}, asLLM(part("z", 40, 60, 30)), []gpu{{1, 0}}},
		"not another kind":                   {"complementary", pair, []Instance{of(2, part("a", 50, 50, 20))}, part("z", 40, 60, 30), []gpu{{1, 0}}},
		"not if the requests do not fit":     {"complementary", pair, []Instance{of(2, part("a", 70, 70, 20))}, asLLM(part("z", 40, 60, 30)), []gpu{{1, 0}}},
		"not if the memory does not suffice": {"complementary", pair, []Instance{of(2, part("a", 50, 50, 26))}, asLLM(part("z", 40, 60, 30)), []gpu{{1, 0}}},
		"a model larger than a GPU":          {"gshare", pair, []Instance{part("a", 50, 50, 20)}, asLLM(part("z", 40, 60, 70)), []gpu{{1, 0}, {1, 1}}},
		"a model larger than a node":         {"gshare", pair, nil, asLLM(part("z", 40, 60, 81)), nil},
	} {
		t.Run(name, func(t *testing.T) {
			cl := newCluster(c.cfg, policy(t, c.policy))
			for _, in := range c.before {
				if !cl.start(in) {
					t.Fatalf("%s is refused", in.Name)
				}
			}
			cl.stop("gone")
			before := cl.active
			ok := cl.start(c.last)
			if got := on(cl, "z"); ok != (c.want != nil) || !slices.Equal(got, c.want) {
				t.Errorf("on %v, want %v", got, c.want)
			}
			if err := recount(cl, c.cfg); err != nil {
				t.Errorf("%v", err)
			}
			if cl.stop("z"); cl.active != before {
				t.Errorf("%d GPUs stay active, want %d", cl.active, before)
			}
		})
	}
}

// A model is cut where the fewest stages do, the GPU with the most free memory first, and each is charged in full (D9).
func TestCut(t *testing.T) {
	c := newCluster(Config{Nodes: 2, GPUsPerNode: 4, Memory: 40 * gib, Gamma: 1500}, policy(t, "complementary"))
	for _, in := range []Instance{
		of(4, part("a", 50, 50, 29)),                                                               // 11 GiB free on each GPU of node 0: a cut of three
		part("b", 50, 50, 28), part("c", 50, 50, 20), part("d", 50, 50, 30), part("e", 50, 50, 36), // 12, 20, 10 and 4 GiB on node 1
	} {
		if !c.start(in) {
			t.Fatal("refused")
		}
	}
	if !c.start(asLLM(part("z", 40, 60, 28))) {
		t.Fatal("refused")
	}
	node := c.where["z"][0]
	b := c.booked[node][len(c.booked[node])-1]
	var memory []share.Bytes
	for _, stage := range b.pod.Request.Containers {
		memory = append(memory, stage.Share.Memory/gib)
		if stage.Share.SMRequest != 400 || stage.Share.SMLimit != 400 {
			t.Errorf("a stage is charged %v", stage.Share)
		}
	}
	if got := on(c, "z"); !slices.Equal(got, []gpu{{1, 1}, {1, 0}}) || !slices.Equal(memory, []share.Bytes{20, 8}) {
		t.Errorf("on %v with %v GiB, want the second GPU of node 1 with 20 and the first with 8", got, memory)
	}
}
