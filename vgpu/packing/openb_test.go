package packing

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// TestOpenbAllocation has lower bounds slightly below what was measured, and above the best published policy: FGD allocates 95.2 %
// of openb's default list once as much has arrived as the cluster has, and 95.4 % once 1.3 times as much has (means of ten
// published runs).
func TestOpenbAllocation(t *testing.T) {
	for name, c := range map[string]struct {
		seed             uint64
		learn            learning
		terms            Terms
		want100, want130 float64
		most130          float64
	}{
		"learned online":         {seed: 0, learn: online, terms: AllTerms, want100: 95.6, want130: 95.7, most130: 100},
		"learned online, seed 1": {seed: 1, learn: online, terms: AllTerms, want100: 95.6, want130: 95.7, most130: 100},
		"known in advance":       {seed: 0, learn: inAdvance, terms: AllTerms, want100: 95.6, want130: 95.7, most130: 100},
		// Best fit is the yardstick: if it were as good, the terms would be of no use.
		"best fit": {seed: 0, learn: inAdvance, terms: Terms{}, want100: 92, want130: 92, most130: 94},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := replayOpenb(t, "default", c.seed, c.terms, c.learn)
			if raceDetector {
				c.want100, c.want130, c.most130 = c.want100-1, c.want130-1, c.most130+1 // a small cluster packs less evenly
			}
			t.Logf("allocated %.2f %% at full load, %.2f %% at 1.3 of it, with %d demands", r.at100, r.at130, r.epochs)
			if r.at100 < c.want100 || r.at130 < c.want130 || r.at130 > c.most130 {
				t.Errorf("allocated %.2f %% and %.2f %%, want at least %.1f %% and %.1f %%, at most %.1f %%", r.at100, r.at130, c.want100, c.want130, c.most130)
			}
		})
	}
}

// learning selects where the demand takes the mix of pods from: from the running pods, as in the scheduler, or from the list.
type learning int

const (
	online learning = iota
	inAdvance
)

// openbRun is one replay of an openb list by the method of the FGD study: the list is shuffled and topped up by random draws until
// 1.3 times the GPUs of the cluster are requested; a pod that does not fit is dropped.
type openbRun struct {
	random  *rand.Rand
	nodes   []*Node
	cpu     []MilliCPU // of each node when empty
	fleet   *Fleet
	version int64
	terms   Terms
	rules   Rules

	mix          Mix
	total        Capacity
	epoch        Epoch
	epochs       int
	at100, at130 float64
}

func replayOpenb(t testing.TB, list string, seed uint64, terms Terms, learn learning) *openbRun {
	t.Helper()
	return replayOpenbOf(t, list, seed, terms, learn, func(int, *Pod) {})
}

// replayOpenbOf is like replayOpenb, and changes pods by their number in the shuffled list.
func replayOpenbOf(t testing.TB, list string, seed uint64, terms Terms, learn learning, change func(int, *Pod)) *openbRun {
	t.Helper()
	r := &openbRun{random: rand.New(rand.NewPCG(seed, 1)), terms: terms, rules: NewRules(Slots)}
	r.nodes = openbNodes(t, r.random)
	if raceDetector { // an eighth of the cluster, with the same kinds of nodes
		r.nodes = every(8, r.nodes)
	}
	r.total.Models = map[string]MilliGPU{}
	for _, n := range r.nodes {
		r.cpu = append(r.cpu, n.CPU)
		r.total.Add(CapacityOf(n, n.CPU), 1)
	}
	pods := openbPods(t, list)
	r.random.Shuffle(len(pods), func(i, j int) { pods[i], pods[j] = pods[j], pods[i] })
	for i, pod := range pods {
		change(i, pod)
	}
	if learn == inAdvance {
		r.freezeAll(pods)
	} else {
		r.setPacker(&Demand{})
	}
	for i, n := range r.nodes {
		r.set(i, n)
	}
	r.arriveAll(pods, learn)
	return r
}

func every(n int, nodes []*Node) (out []*Node) {
	for i := 0; i < len(nodes); i += n {
		out = append(out, nodes[i])
	}
	return out
}

// arriveAll lets pods arrive until 1.3 times the capacity of the cluster was requested: first those of the list, then random pods
// of it.
func (r *openbRun) arriveAll(pods []*Pod, learn learning) {
	whole := share.Area(r.total.GPU) * share.Area(share.Whole)
	var arrived share.Area
	for i := 0; ; i++ {
		pod := pods[i%len(pods)]
		if i >= len(pods) {
			pod = pods[r.random.IntN(len(pods))]
		}
		before := arrived
		if arrived += pod.Request.Area(); arrived > whole*13/10 {
			break
		}
		if before <= whole && arrived > whole {
			r.at100 = r.allocated()
		}
		if learn == online && r.epoch.Expired(&r.mix, r.total) {
			r.epochs++
			r.epoch = NewEpoch(&r.mix, r.total)
			r.setPacker(NewDemand(&r.mix, r.total))
		}
		r.arrive(pod)
	}
	r.at130 = r.allocated()
}

func (r *openbRun) setPacker(d *Demand) {
	p := Packer{Rules: r.rules, Ranker: Balance{Terms: r.terms, Demand: d}}
	if r.fleet == nil {
		r.fleet = NewFleet(p, len(r.nodes))
	}
	r.fleet.SetPacker(p)
}

// freezeAll computes one demand from the whole list, for a cluster that runs it.
func (r *openbRun) freezeAll(pods []*Pod) {
	var all Mix
	c := r.total
	for _, p := range pods {
		c.FreeCPU -= p.CPU
		if len(p.Request.Containers) > 0 {
			all.Add(ShapeOf(p), 1)
		}
	}
	r.setPacker(NewDemand(&all, c))
}

// arrive places the pod on the best node with enough CPU and memory. If there is none, the pod is dropped.
func (r *openbRun) arrive(pod *Pod) {
	best, ok := r.fleet.BestWithCapacity(fmt.Sprint(pod.Request, pod.CPU, pod.RAM), pod)
	if !ok {
		return
	}
	i := best.Node
	plan, _, _ := r.fleet.packer.Place(r.nodes[i], pod)
	n := r.nodes[i].Clone()
	n.Take(r.rules.Model, pod, plan)
	n.CPU -= pod.CPU
	n.RAM -= pod.RAM
	r.total.Add(CapacityOf(r.nodes[i], r.cpu[i]), -1)
	r.total.Add(CapacityOf(n, r.cpu[i]), 1)
	if len(pod.Request.Containers) > 0 {
		r.mix.Add(ShapeOf(pod), 1)
	}
	r.set(i, n)
}

func (r *openbRun) set(i int, n *Node) {
	r.nodes[i] = n
	r.version++
	r.fleet.Set(i, n, r.version)
}

func (r *openbRun) allocated() float64 {
	return 100 * float64(r.total.GPU-r.total.FreeGPU) / float64(r.total.GPU)
}
