package cluster

import (
	"slices"
	"testing"

	"github.com/gshare-dev/gshare/vgpu/packing"
)

// before is a pod that runs on a machine already.
type before struct {
	machine int
	gpus    []int
	pod     Pod
}

// choice is one decision worked out by hand. The pods that run, and the next one, are the typical ones.
type choice struct {
	nodes   []Node
	runs    []before
	next    Pod
	machine int
	gpus    []int
}

func (c choice) prepare(t *testing.T, policy string, seed uint64) (*Simulation, *shape) {
	pods := []Pod{c.next}
	for _, r := range c.runs {
		pods = append(pods, r.pod)
	}
	s := simulation(t, Config{Nodes: c.nodes, Pods: pods, Policy: policy, Seed: seed})
	shapes, list := shapesOf(pods)
	if len(shapes) != len(s.shapes) {
		t.Fatal("shapes changed")
	}
	for i, r := range c.runs {
		s.machines[r.machine].place(list[i+1], r.gpus)
	}
	return s, list[0]
}

func TestChoices(t *testing.T) {
	two := []Node{node(64, 2), node(64, 2)}
	half, whole := pod(4, 1, 500), pod(8, 1, 1000)
	for policy, cases := range map[string]map[string]choice{
		"firstfit": {
			"the first":                   {nodes: two, next: half, machine: 0, gpus: []int{0}},
			"the first with CPU":          {nodes: []Node{node(2, 2), node(64, 2)}, next: half, machine: 1, gpus: []int{0}},
			"the first of the model":      {nodes: two, next: pod(1, 1, 500, "T4"), machine: 0, gpus: []int{0}},
			"whole GPUs are not in parts": {nodes: two, runs: []before{{0, []int{0}, half}, {0, []int{1}, half}}, next: whole, machine: 1, gpus: []int{0}},
			"the tightest GPU":            {nodes: two, runs: []before{{0, []int{1}, half}}, next: half, machine: 0, gpus: []int{1}},
		},
		"bestfit": {
			"least GPU left": {nodes: two, runs: []before{{1, []int{0}, whole}}, next: half, machine: 1, gpus: []int{1}},
			"least CPU left": {nodes: []Node{node(64, 2), node(32, 2)}, next: half, machine: 1, gpus: []int{0}},
		},
		"dotproduct": {
			// With so many CPUs asked for, the machine with few of them is aligned least, although its GPUs are free.
			"little of what is asked": {nodes: []Node{node(128, 1), node(64, 2)}, next: pod(60, 1, 100), machine: 1, gpus: []int{0}},
			"little GPU for a GPU":    {nodes: []Node{node(64, 8), node(64, 2)}, next: pod(1, 2, 1000), machine: 1, gpus: []int{0, 1}},
		},
		"clustering": {
			"with its kind alone":     {nodes: []Node{node(64, 4), node(64, 4), node(64, 4)}, runs: []before{{1, []int{0}, half}, {0, []int{0}, half}, {0, []int{1}, whole}}, next: half, machine: 1, gpus: []int{0}},
			"then with others too":    {nodes: []Node{node(64, 4), node(64, 4)}, runs: []before{{1, []int{0}, half}, {1, []int{1}, whole}}, next: half, machine: 1, gpus: []int{0}},
			"then an empty machine":   {nodes: []Node{node(64, 4), node(64, 4)}, runs: []before{{0, []int{0}, whole}}, next: half, machine: 1, gpus: []int{0}},
			"the fullest of its kind": {nodes: []Node{node(64, 4), node(64, 4)}, runs: []before{{0, []int{0}, half}, {1, []int{0}, half}, {1, []int{0}, half}}, next: half, machine: 1, gpus: []int{1}},
		},
		"packing": {
			"a GPU in use":          {nodes: two, runs: []before{{1, []int{1}, half}}, next: half, machine: 1, gpus: []int{1}},
			"then a machine in use": {nodes: two, runs: []before{{1, []int{1}, whole}}, next: half, machine: 1, gpus: []int{0}},
			"of empty, the smaller": {nodes: []Node{node(96, 8), node(64, 2)}, next: half, machine: 1, gpus: []int{0}},
			"the fullest GPU":       {nodes: two, runs: []before{{0, []int{0}, pod(1, 1, 300)}, {1, []int{0}, half}}, next: half, machine: 1, gpus: []int{0}},
		},
		"fgd": {
			"the broken GPU":      {nodes: two, runs: []before{{1, []int{1}, half}, {0, []int{0}, whole}}, next: half, machine: 1, gpus: []int{1}},
			"of equals the first": {nodes: two, next: half, machine: 0, gpus: []int{0}},
		},
		"gshare": {
			"the broken GPU":           {nodes: two, runs: []before{{1, []int{1}, half}, {0, []int{0}, whole}}, next: half, machine: 1, gpus: []int{1}},
			"where CPU is not wasted":  {nodes: []Node{node(16, 1), node(64, 1), node(8, 1)}, runs: []before{{2, []int{0}, half}}, next: pod(16, 0, 0), machine: 1},
			"only machines with room":  {nodes: []Node{node(3, 2), node(64, 2)}, next: half, machine: 1, gpus: []int{0}},
			"several GPUs, on devices": {nodes: two, runs: []before{{0, []int{0}, half}}, next: pod(4, 2, 1000), machine: 1, gpus: []int{0, 1}},
		},
	} {
		for name, c := range cases {
			t.Run(policy+"/"+name, func(t *testing.T) {
				s, next := c.prepare(t, policy, 1)
				if policy == "gshare" {
					c.follow(s, next)
				}
				machine, gpus, ok := s.policy.choose(next)
				if !ok || machine != c.machine || !slices.Equal(gpus, c.gpus) {
					t.Errorf("chose GPUs %v of machine %d (%v), want %v of %d", gpus, machine, ok, c.gpus, c.machine)
				}
			})
		}
	}
}

// follow tells gshare what runs, often enough that it has learned what is typical.
func (c choice) follow(s *Simulation, next *shape) {
	b := s.policy.(*gsharePolicy)
	for _, sh := range s.shapes {
		if sh.pod.GPUs > 0 {
			b.mix.Add(b.pods[sh.index].shape, 100)
		}
	}
	for _, r := range c.runs {
		n := b.nodes[r.machine]
		p := r.pod.packingPod()
		var picks []packing.Pick
		for _, g := range r.gpus {
			picks = append(picks, packing.Pick{Slice: g, Class: "mps"})
		}
		n.Take(packing.Slots, p, packing.Plan{picks})
		n.CPU -= p.CPU
		b.set(r.machine)
	}
}

func TestNobodyFits(t *testing.T) {
	for _, policy := range slices.Concat(Policies(), Tries()) {
		for name, next := range map[string]Pod{
			"CPU": pod(65, 1, 100), "GPU": pod(1, 3, 1000), "model": pod(1, 1, 100, "H100"), "CPU alone": pod(65, 0, 0),
			"RAM": {RAM: 1 << 41, GPUs: 1, Milli: 100},
		} {
			t.Run(policy+", "+name, func(t *testing.T) {
				s, sh := choice{nodes: []Node{node(64, 2)}, runs: []before{{0, []int{0}, pod(1, 1, 1)}}, next: next}.prepare(t, policy, 1)
				if machine, _, ok := s.policy.choose(sh); ok {
					t.Errorf("chose machine %d without enough %s", machine, name)
				}
			})
		}
	}
}

// Where the rule is indifferent, random policies come everywhere and the others stay with the first.
func TestTies(t *testing.T) {
	c := choice{nodes: []Node{node(64, 2), node(64, 2), node(64, 2)}, next: pod(4, 1, 500)}
	for policy, want := range map[string]int{"random": 3, "fgd-stock": 3, "fgd": 1, "bestfit": 1, "firstfit": 1, "gshare": 1} {
		t.Run(policy, func(t *testing.T) {
			seen := map[int]bool{}
			for seed := range uint64(30) {
				s, next := c.prepare(t, policy, seed)
				machine, _, _ := s.policy.choose(next)
				seen[machine] = true
			}
			if len(seen) != want {
				t.Errorf("%s chose %d of three equal machines, want %d", policy, len(seen), want)
			}
		})
	}
}

// A machine that changed is scored again; one that did not is not.
func TestBoardAsksOnlyChangedMachines(t *testing.T) {
	s := simulation(t, Config{Nodes: []Node{node(64, 2), node(64, 2)}, Pods: []Pod{pod(4, 1, 500)}, Policy: "bestfit"})
	asked := 0
	b := s.policy.(*scoredPolicy)
	b.score = func(m *machine, p *Pod) int { asked++; return bestFit(m, p) }
	for i, want := range []int{2, 0, 1} {
		if asked = 0; i == 2 {
			s.machines[1].place(s.shapes[0], []int{0})
		}
		if s.policy.choose(s.shapes[0]); asked != want {
			t.Errorf("choice %d asked %d machines, want %d", i, asked, want)
		}
	}
}
