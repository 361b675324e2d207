package planning

import (
	"cmp"
	"slices"

	"github.com/gshare-dev/gshare/vgpu/profile"
)

// partialTemplate is a template (partition into stages) of the first layers of a model.
type partialTemplate struct {
	latency profile.Seconds
	cost    Cost // of the workers
	from    *partialTemplate
	end     int // layer after the last
	workers int
}

// candidates returns the templates (partitions into stages) that are at most Slack slower than the fastest and that none beats in both
// latency and cost, the fastest first. Latency and cost add up over stages, and the bill of the master function never falls with the
// latency, so only the undominated templates of each prefix of layers are kept.
func (k *stageTable) candidates() []Template {
	n := len(k.chain.Layers)
	rest := k.fastestRest()
	limit := rest[k.params.MaxStages][0] * profile.Seconds(1+k.params.Slack)
	if rest[k.params.MaxStages][0] == never {
		return nil
	}
	reached := make([][]*partialTemplate, n+1) // by end, of the stages so far
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
			next[j] = undominatedPartials(next[j])
		}
		for _, p := range next[n] {
			all = append(all, k.template(p))
		}
		reached = next
	}
	return fastestFirst(all)
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
