package planning

import (
	"cmp"
	"math"
	"slices"

	"github.com/gshare-dev/gshare/serving/rules/profile"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// partialTemplate is a template (partition into stages) of the first layers of a model.
type partialTemplate struct {
	latency profile.Seconds
	cost    Cost // of the workers
	from    *partialTemplate
	end     int // index after the last layer
	workers int
}

// candidates returns the templates (partitions into stages) that are at most Slack slower than the fastest and for which none is
// better in both latency and cost, the fastest first. Latency and cost add up over stages, and the bill of the master function never
// falls as the latency grows, so only the undominated templates of each prefix of layers are kept; if these are very many, only a
// sample of them.
func (k *stageTable) candidates() []Template {
	n := len(k.chain.Layers)
	rest := k.fastestRest()
	limit := rest[k.params.MaxStages][0] * profile.Seconds(1+k.params.Slack)
	if rest[k.params.MaxStages][0] == never {
		return nil
	}
	reached := make([][]*partialTemplate, n+1) // templates of the stages so far, by end
	reached[0] = []*partialTemplate{{}}
	var all []Template
	for s := 1; s <= k.params.MaxStages; s++ {
		next := make([][]*partialTemplate, n+1)
		for i, partials := range reached {
			for j := i + 1; j <= n && len(partials) > 0; j++ {
				next[j] = k.extendPartials(next[j], partials, i, j, limit-rest[k.params.MaxStages-s][j])
			}
		}
		for j := range next {
			next[j] = evenly(undominatedPartials(next[j]), k.mostPartials())
		}
		for _, p := range next[n] {
			all = append(all, k.template(p))
		}
		reached = next
	}
	return fastestFirst(all)
}

// maxExtensions limits how many times candidates extends a shorter template by a stage.
const maxExtensions = 200_000_000

// mostPartials returns how many templates of each prefix of layers are kept, so that candidates ends in reasonable time: 1250 for a model of 50 layers. The
// more layers there are, the less one template differs from the next.
func (k *stageTable) mostPartials() int {
	n := len(k.chain.Layers)
	return max(16, maxExtensions/(n*(n+1)/2*k.params.MaxWorkers*k.params.MaxStages))
}

// evenly returns at most `most` elements, evenly spaced in all and including the first and the last.
func evenly[T any](all []T, most int) []T {
	if len(all) <= most {
		return all
	}
	kept := make([]T, most)
	for i := range kept {
		kept[i] = all[i*(len(all)-1)/(most-1)]
	}
	return kept
}

// extendPartials appends the stage of layers i to j-1 to each template of the layers before it, for each number of workers, if the
// latency stays within the limit.
func (k *stageTable) extendPartials(next, partials []*partialTemplate, i, j int, limit profile.Seconds) []*partialTemplate {
	for workers := 1; workers <= k.params.MaxWorkers; workers++ {
		x := k.stage(i, j, workers)
		for _, p := range partials {
			if sum := p.latency + x.latency; x.ok && sum <= limit*(1+1e-12) {
				next = append(next, &partialTemplate{sum, p.cost + x.cost, p, j, workers})
			}
		}
	}
	return next
}

// fastestRest returns the least latency of the layers from i to the last in at most s stages, indexed by s and i.
func (k *stageTable) fastestRest() [][]profile.Seconds {
	n := len(k.chain.Layers)
	rest := make([][]profile.Seconds, k.params.MaxStages+1)
	for s := range rest {
		rest[s] = slices.Repeat([]profile.Seconds{never}, n+1)
		rest[s][n] = 0
		for i := range n {
			for j := i + 1; s > 0 && j <= n; j++ {
				rest[s][i] = min(rest[s][i], k.fastestStage(i, j)+rest[s-1][j])
			}
		}
	}
	return rest
}

func (k *stageTable) fastestStage(i, j int) profile.Seconds {
	least := never
	for workers := 1; workers <= k.params.MaxWorkers; workers++ {
		if x := k.stage(i, j, workers); x.ok {
			least = min(least, x.latency)
		}
	}
	return least
}

func undominatedPartials(all []*partialTemplate) []*partialTemplate {
	slices.SortStableFunc(all, func(a, b *partialTemplate) int {
		return cmp.Or(cmp.Compare(a.latency, b.latency), cmp.Compare(a.cost, b.cost))
	})
	kept := all[:0]
	for _, p := range all {
		if len(kept) == 0 || p.cost < kept[len(kept)-1].cost {
			kept = append(kept, p)
		}
	}
	return kept
}

func (k *stageTable) template(last *partialTemplate) Template {
	t := Template{Latency: last.latency, Cost: last.cost + k.masterCost(last.latency)}
	for p := last; p.from != nil; p = p.from {
		t.Cuts, t.Workers = append(t.Cuts, p.end), append(t.Workers, p.workers)
		t.Memory = max(t.Memory, k.stage(p.from.end, p.end, p.workers).memory)
	}
	slices.Reverse(t.Cuts)
	slices.Reverse(t.Workers)
	return t
}

func fastestFirst(all []Template) []Template {
	slices.SortStableFunc(all, func(a, b Template) int {
		return cmp.Or(cmp.Compare(a.Latency, b.Latency), cmp.Compare(a.Cost, b.Cost), cmp.Compare(len(a.Cuts), len(b.Cuts)))
	})
	return all
}

// stageTable holds the precomputed latency, cost and memory of all possible stages of a model.
type stageTable struct {
	params  TemplateParameters
	chain   Chain
	weights []share.Bytes // of the layers before i
	stages  [][][]stage   // by first layer, number of layers - 1, and number of workers - 1
}

type stage struct {
	latency profile.Seconds
	cost    Cost        // of the workers
	memory  share.Bytes // that each needs
	ok      bool        // fits into a function's memory and time
}

func newStageTable(c Chain, terms TemplateParameters) *stageTable {
	k := &stageTable{params: terms, chain: c, weights: make([]share.Bytes, 1), stages: make([][][]stage, len(c.Layers))}
	for i, l := range c.Layers {
		k.weights = append(k.weights, k.weights[i]+l.Weights)
	}
	for i := range c.Layers {
		peak := share.Bytes(0)
		for j := i + 1; j <= len(c.Layers); j++ {
			peak = max(peak, k.inputSize(j-1)+c.Layers[j-1].Output)
			k.stages[i] = append(k.stages[i], k.byWorkers(i, j, peak))
		}
	}
	return k
}

func (k *stageTable) stage(i, j, workers int) stage { return k.stages[i][j-i-1][workers-1] }

// inputSize returns the size in bytes of the input of layer i, which is the output of the layer before.
func (k *stageTable) inputSize(i int) share.Bytes {
	if i == 0 {
		return k.chain.Input
	}
	return k.chain.Layers[i-1].Output
}

func (k *stageTable) byWorkers(i, j int, peak share.Bytes) []stage {
	var all []stage
	for workers := 1; workers <= k.params.MaxWorkers; workers++ {
		all = append(all, k.newStage(i, j, workers, peak))
	}
	return all
}

// newStage returns the stage that runs layers i to j-1 on a number of workers: its latency with transfers (PAMBA, eq. 4.14), the cost of
// the workers, and whether they fit a function's memory and time limit. Each worker holds all weights of the stage, and a fraction of one
// layer's input and output at a time.
func (k *stageTable) newStage(i, j, workers int, peak share.Bytes) stage {
	memory := k.weights[j] - k.weights[i] + peak/share.Bytes(workers)
	sold, ok := k.params.Platform.functionMemory(k.params.CPU, memory)
	billed := k.computeTime(i, j, workers) + k.transferTime(i, j)
	rate := k.params.Prices.VCPU.rate(k.params.CPU) + k.params.Prices.Memory.rate(sold)
	cost := Cost(k.params.Prices.Call) + rate*Cost(k.params.Prices.Quantum.Partitioned.roundUp(billed))
	latency := billed + k.params.Call*profile.Seconds(workers)
	return stage{latency, Cost(workers) * cost, memory, ok && billed <= k.params.MaxTime}
}

// computeTime returns the execution time of one worker for its fraction of each layer of a stage, and for the halos (input that
// neighbouring workers compute too) of the layers after it.
func (k *stageTable) computeTime(i, j, workers int) profile.Seconds {
	work, halo := profile.Seconds(0), 0.0
	for l := j - 1; l >= i; l-- {
		work += k.chain.Layers[l].Work * profile.Seconds(min(1, 1/float64(workers)+halo))
		if workers > 1 {
			halo += k.chain.Layers[l].Halo
		}
	}
	return work
}

func (k *stageTable) transferTime(i, j int) profile.Seconds {
	return profile.Seconds(float64(k.inputSize(i)+k.chain.Layers[j-1].Output) / k.params.Bandwidth)
}

// wholeModel returns the template that runs the model in one function, called directly without a master function and transfers, and false
// if the model does not fit.
func (k *stageTable) wholeModel() (Template, bool) {
	n := len(k.chain.Layers)
	peak := share.Bytes(0)
	for i, l := range k.chain.Layers {
		peak = max(peak, k.inputSize(i)+l.Output)
	}
	memory := k.weights[n] + peak
	sold, ok := k.params.Platform.functionMemory(k.params.CPU, memory)
	latency := k.computeTime(0, n, 1)
	rate := k.params.Prices.VCPU.rate(k.params.CPU) + k.params.Prices.Memory.rate(sold)
	cost := Cost(k.params.Prices.Call) + rate*Cost(k.params.Prices.Quantum.CPU.roundUp(latency))
	return Template{[]int{n}, []int{1}, latency, cost, memory}, ok && latency <= k.params.MaxTime
}

// masterCost returns the cost of the master function of a partitioned model for the given latency.
func (k *stageTable) masterCost(latency profile.Seconds) Cost {
	quantum := k.params.Prices.Quantum.Partitioned
	return Cost(k.params.Prices.Call) + (k.params.Prices.VCPU.rate(k.params.Master.CPU)+
		Cost(k.params.Prices.Memory)*Cost(k.params.Master.MemoryMiB)/1024)*Cost(quantum.roundUp(latency))
}

var never = profile.Seconds(math.Inf(1))
