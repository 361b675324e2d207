package planning

import (
	"cmp"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gshare-dev/gshare/serving/rules/batching"
	"github.com/gshare-dev/gshare/serving/rules/profile"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// candidate is one configuration of the exhaustive search: plain loops, nothing pruned.
type candidate struct {
	batch  int
	p99    float64
	cost   float64 // of a batch, or of a second if reserved
	held   bool
	serves float64
	reply  float64
}

func candidates(in *Input) []candidate {
	m, p, prices := &in.Models[0], in.Platform, in.Prices
	function := func(c profile.MilliCPU, memory share.Bytes, seconds profile.Seconds, quantum Milliseconds) float64 {
		billed := float64(seconds)
		if quantum > 0 {
			billed = math.Ceil(math.Round(billed*1e9)/1e6/float64(quantum)) * float64(quantum) / 1e3
		}
		return float64(prices.Call) + (float64(prices.VCPU)*float64(c)/1000+float64(prices.Memory)*float64(memory)/(1<<30))*billed
	}
	var all []candidate
	for b := 1; b <= len(m.CPU.Mean); b++ {
		for c := p.MinCPU; c <= p.MaxCPU; c += p.CPUStep {
			if memory, ok := p.functionMemory(c, m.CPU.Memory.Memory(b)); ok {
				l := m.CPU.Latency(b, c)
				all = append(all, candidate{batch: b, p99: float64(l.P99), cost: function(c, memory, l.Mean, prices.Quantum.CPU)})
			}
		}
	}
	for b := 1; b <= m.GPU.MaxBatch; b++ {
		for g := 1; g <= m.GPU.CardGB; g++ {
			if m.GPU.Memory.Memory(b) > share.Bytes(g)<<30 {
				continue
			}
			l := m.GPU.Latency(b, g)
			all = append(all, candidate{batch: b, p99: float64(l.P99), cost: function(profile.MilliCPU(g)*p.MilliCPUPerGB, m.GPU.HostMemory.Memory(b), l.Mean, prices.Quantum.GPU) +
				float64(prices.GPUMemory)*float64(g)*float64(prices.Quantum.GPU.roundUp(l.Mean))})
		}
	}
	for b := 1; b <= m.Partitioned.Batches(); b++ {
		all = append(all, undominatedCandidates(partitionedCandidates(in, b, function))...)
	}
	if m.Share != nil {
		for i, curve := range m.Share.Curves {
			for q := p.QuotaStep; q <= 1000; q += p.QuotaStep {
				for b := 1; b <= m.Share.MaxBatch; b++ {
					l := m.Share.Latency(b, i, q)
					for _, n := range []float64{2, 4, 8} {
						x := math.Pow(math.Sqrt((n-1)*float64(b)+2.326*2.326/4)-2.326/2, 2) / (n - 1)
						all = append(all, candidate{held: true, batch: b, reply: n * float64(l.P99), serves: min(x, 0.8*float64(b)) / float64(l.Mean),
							cost: float64(prices.Slice)*float64(curve.SM)*float64(q)/1e6 + float64(prices.SliceMemory)*float64(m.Share.Memory.Memory(b))/(1<<30)})
					}
				}
			}
		}
	}
	return all
}

// partitionedCandidates returns a candidate for every combination of the sizes of all workers.
func partitionedCandidates(in *Input, b int, function func(profile.MilliCPU, share.Bytes, profile.Seconds, Milliseconds) float64) []candidate {
	m, p := in.Models[0].Partitioned, in.Platform
	type stage struct{ mean, p99, cost float64 }
	all := []stage{{}}
	for s := range m.Stages {
		options := []stage{{}}
		for w := range m.Stages[s].Workers {
			var next []stage
			for _, o := range options {
				for c := p.MinCPU; c <= p.MaxCPU; c += p.CPUStep {
					worker := &m.Stages[s].Workers[w]
					if memory, ok := p.functionMemory(c, worker.Memory.Memory(b)); ok {
						l := worker.Latency(b, c)
						next = append(next, stage{max(o.mean, float64(l.Mean)), max(o.p99, float64(l.P99)), o.cost + function(c, memory, l.Mean, in.Prices.Quantum.Partitioned)})
					}
				}
			}
			options = next
		}
		var next []stage
		for _, a := range all {
			for _, o := range options {
				next = append(next, stage{a.mean + o.mean, a.p99 + o.p99, a.cost + o.cost})
			}
		}
		all = next
	}
	transfers := float64(m.Transfers(b))
	var out []candidate
	for _, x := range all {
		master := function(m.Master.CPU, share.Bytes(m.Master.MemoryMiB)*share.MiB, profile.Seconds(x.mean+transfers), in.Prices.Quantum.Partitioned)
		out = append(out, candidate{batch: b, p99: x.p99 + transfers, cost: x.cost + master})
	}
	return out
}

// undominatedCandidates returns the candidates that no other of the same batch size beats in both p99 and cost. There are
// hundreds of thousands of others.
func undominatedCandidates(all []candidate) []candidate {
	slices.SortFunc(all, func(a, b candidate) int { return cmp.Or(cmp.Compare(a.p99, b.p99), cmp.Compare(a.cost, b.cost)) })
	var kept []candidate
	for _, c := range all {
		if len(kept) == 0 || c.cost < kept[len(kept)-1].cost {
			kept = append(kept, c)
		}
	}
	return kept
}

// leastCost returns the least cost per second of one group over all candidates.
func leastCost(all []candidate, apps []Application) float64 {
	var classes []batching.Class
	slo, rate := math.Inf(1), 0.0
	for _, a := range apps {
		classes = append(classes, batching.Class{Timeout: float64(a.SLO), Rate: a.Rate})
		slo, rate = min(slo, float64(a.SLO)), rate+a.Rate
	}
	timeout := batching.EquivalentTimeout(classes)
	least := math.Inf(1)
	for i := range all {
		c := &all[i]
		switch {
		case c.held && c.reply <= slo:
			least = min(least, c.cost*math.Ceil(rate/c.serves))
		case !c.held && c.p99 <= slo && rate*(timeout-c.p99)+1 >= float64(c.batch):
			least = min(least, c.cost*rate/float64(c.batch))
		}
	}
	return least
}

// exhaustive returns the least cost over all partitions of the applications into groups and all configurations of each.
func exhaustive(in *Input, apps []Application) float64 {
	all := candidates(in)
	n := len(apps)
	group := make([]float64, 1<<n)
	best := make([]float64, 1<<n)
	for set := 1; set < 1<<n; set++ {
		var own []Application
		for i := range apps {
			if set>>i&1 == 1 {
				own = append(own, apps[i])
			}
		}
		group[set] = leastCost(all, own)
		best[set] = math.Inf(1)
		first := 1 << bits.TrailingZeros(uint(set))
		for sub := set; sub > 0; sub = (sub - 1) & set {
			if sub&first != 0 {
				best[set] = min(best[set], group[sub]+best[set&^sub])
			}
		}
	}
	return best[1<<n-1]
}

// TestBestAgainstExhaustive: within 1 % of the best of all partitions and all configurations.
func TestBestAgainstExhaustive(t *testing.T) {
	instances := 1000
	if testing.Short() || raceDetector {
		instances = 60
	}
	worst, exact, feasible := 0.0, 0, 0

	for seed := range instances {
		r := rand.New(rand.NewPCG(uint64(seed), 1))
		in := randomInput(r, 1+r.IntN(8), coarse())
		plan, err := Best(in)
		if err != nil {
			t.Fatal(err)
		}
		var served []Application
		for _, g := range plan.Groups {
			served = append(served, g.Applications...)
		}
		if len(served)+len(plan.Infeasible) != len(in.Applications) {
			t.Fatalf("seed %d: %d served and %d not, of %d", seed, len(served), len(plan.Infeasible), len(in.Applications))
		}
		if len(served) == 0 {
			continue
		}
		feasible++
		least := exhaustive(&in, served)
		over := float64(plan.Cost)/least - 1
		if over < -1e-9 {
			t.Fatalf("seed %d: the plan costs %v, the exhaustive search found %v: it misses something", seed, plan.Cost, least)
		}
		if over < 1e-9 {
			exact++
		}
		if worst = max(worst, over); over > 0.01 {
			t.Errorf("seed %d: the plan costs %.2f %% more than the best", seed, 100*over)
		}
	}
	t.Logf("%d instances, %d of them with the same cost, the worst %.3f %% dearer", feasible, exact, 100*worst)
}

// TestImproveAgainstExact: what plans for many applications, tried on few, where the cheapest grouping is known.
func TestImproveAgainstExact(t *testing.T) {
	const instances = 300
	sum, over1, worst := 0.0, 0, 0.0
	for seed := range uint64(instances) {
		r := rand.New(rand.NewPCG(seed, 2))
		in := randomInput(r, 2+r.IntN(9), coarse())
		o := newOptions(&in.Models[0], &in, in.Modes)
		var p Plan
		sorted := p.addInfeasible(o, in.applicationsOf("m"))
		if len(sorted) == 0 {
			continue
		}
		exact, found := total(cheapestSets(o, sorted)), total(improve(o, cheapestRuns(o, sorted)))
		over := float64(found/exact) - 1
		if over < -1e-9 {
			t.Fatalf("seed %d: %v is less than the least, %v", seed, found, exact)
		}
		if over > 0.01 {
			over1++
		}
		sum, worst = sum+over, max(worst, over)
	}
	t.Logf("mean %.3f %% above the cheapest grouping, worst %.1f %%, %d of %d more than 1 %%", 100*sum/instances, 100*worst, over1, instances)
	if sum/instances > 0.005 || over1 > instances/20 {
		t.Error("too far from the cheapest grouping")
	}
}

func total(groups []Group) Cost {
	sum := Cost(0)
	for _, g := range groups {
		sum += g.Cost
	}
	return sum
}
