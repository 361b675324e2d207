package planning

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gshare-dev/gshare/serving/rules/profile"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// wideResNet is WRN-50-k by its architecture: a stem, 16 bottleneck blocks with k times the channels of ResNet-50, and the
// classifier; a picture of 224 x 224. Work is multiplications at the given number a second.
func wideResNet(k int, perSecond float64) Chain {
	const bytes = 4
	c := Chain{Input: 224 * 224 * 3 * bytes}
	add := func(name string, macs float64, weights, output int, halo float64) {
		c.Layers = append(c.Layers, Layer{name, profile.Seconds(macs / perSecond), share.Bytes(weights * bytes), share.Bytes(output * bytes), halo})
	}
	in := 64 * k
	add("stem", 112*112*7*7*3*float64(in), 7*7*3*in, 56*56*in, 0.05)
	for g, blocks := range []int{3, 4, 6, 3} {
		side, middle := 56>>g, 64*k<<g
		out := 4 * middle
		for b := range blocks {
			weights := in*middle + 9*middle*middle + middle*out
			if b == 0 {
				weights += in * out
			}
			add(fmt.Sprintf("group %d block %d", g+1, b+1), float64(side*side)*float64(weights), weights, side*side*out, 2/float64(side))
			in = out
		}
	}
	add("classifier", float64(in*1000), in*1000, 1000, 0)
	return c
}

// TestWideResNet compares templates with the fastest one, as Gillis splits models. PAMBA reports 42 % and 43 % less cost for WRN-50-4 and
// WRN-50-5 at about the same latency. Within 5 % of the fastest latency the chains of this test allow 42 % in three of nine cases and 32
// to 41 % in the others: the test checks that no template within the limit is cheaper than the chosen one, so more cannot be had there.
// With 10 % more latency it is at least 42 % for all.
func TestWideResNet(t *testing.T) {
	for _, c := range []struct {
		k                int // WRN-50-k
		cpu              profile.MilliCPU
		percent, relaxed float64 // how much cheaper, at no more than 5 % and 10 % more latency
	}{
		{3, 1000, 40.5, 47}, {3, 2000, 37, 42}, {3, 4000, 40, 49},
		{4, 1000, 38.5, 48}, {4, 2000, 42, 48}, {4, 4000, 42, 51},
		{5, 1000, 34.5, 42}, {5, 2000, 31.5, 42}, {5, 4000, 42, 47},
	} {
		chain := wideResNet(c.k, 15e9*float64(c.cpu)/1000)
		for _, limit := range []struct{ slack, percent float64 }{{0.05, c.percent}, {0.1, c.relaxed}} {
			terms := DefaultTemplateParameters(alibaba(), DefaultPlatform())
			terms.CPU, terms.Slack = c.cpu, limit.slack
			got, err := FindTemplates(chain, terms)
			if err != nil {
				t.Fatal(err)
			}
			least := got.Fastest.Cost
			for _, x := range newStageTable(chain, terms).candidates() {
				least = min(least, x.Cost)
			}
			cheaper, slower := 100*(1-got.Chosen.Cost/got.Fastest.Cost), 100*(got.Chosen.Latency/got.Fastest.Latency-1)
			t.Logf("WRN-50-%d, %d milli-vCPU: %d stages and %d workers instead of %d and %d: %.1f %% cheaper, %.1f %% slower; memory %.0f %% below the whole's",
				c.k, c.cpu, len(got.Chosen.Cuts), workers(got.Chosen), len(got.Fastest.Cuts), workers(got.Fastest), cheaper, slower,
				100*(1-float64(got.Chosen.Memory)/float64(got.Whole.Memory)))
			if float64(cheaper) < limit.percent || float64(slower) > 100*limit.slack+1e-9 || got.Chosen.Memory > got.Whole.Memory*6/10 {
				t.Errorf("want %v %% less cost within %v of the fastest, and 40 %% less memory in the largest function", limit.percent, limit.slack)
			}
			if got.Chosen.Cost > least*1.005 {
				t.Errorf("a template within the limit costs %v, the chosen one %v", least, got.Chosen.Cost)
			}
		}
	}
}

func workers(t Template) int {
	sum := 0
	for _, w := range t.Workers {
		sum += w
	}
	return sum
}

func randomChain(r *rand.Rand, layers int) Chain {
	c := Chain{Input: share.Bytes(1e5 * r.Float64())}
	for i := range layers {
		c.Layers = append(c.Layers, Layer{
			fmt.Sprint(i), profile.Seconds(between(r, 0.01, 1)), share.Bytes(between(r, 1e6, 1e9)), share.Bytes(between(r, 1e4, 1e7)), r.Float64() / 10,
		})
	}
	return c
}

// TestCutAgainstAll goes through all cuts and workers of short chains: the fastest is the fastest, the chosen is nearly as
// fast and never dearer, and no other candidate would have been chosen before it.
func TestCutAgainstAll(t *testing.T) {
	cheaper := 0
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 10))
		c := randomChain(r, 1+r.IntN(6))
		terms := DefaultTemplateParameters(alibaba(), DefaultPlatform())
		terms.MaxStages, terms.MaxWorkers, terms.Slack = 1+r.IntN(4), 1+r.IntN(3), []float64{0, 0.05, 0.5}[r.IntN(3)]
		got, err := FindTemplates(c, terms)
		all := allTemplates(newStageTable(c, terms))
		if len(all) == 0 {
			expectField(t, err, "layers")
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		fastest := all[0]
		if math.Abs(float64(got.Fastest.Latency-fastest.Latency)) > 1e-9 {
			t.Fatalf("seed %d: fastest %+v, there is %+v", seed, got.Fastest, fastest)
		}
		if got.Chosen.Cost > got.Fastest.Cost*(1+1e-9) {
			t.Errorf("seed %d: %+v is dearer than the fastest, %+v", seed, got.Chosen, got.Fastest)
		}
		if got.Chosen.Cost < got.Fastest.Cost {
			cheaper++
		}
		best := bestByRule(all, got.Whole, terms)
		if best != nil && math.Abs(float64(best.Cost-got.Chosen.Cost)) > 1e-6*float64(best.Cost) {
			t.Errorf("seed %d: chose %+v, the rule says %+v", seed, got.Chosen, *best)
		}
	}
	if cheaper < 20 {
		t.Errorf("only %d choices were cheaper than the fastest: the test shows nothing", cheaper)
	}
}

// allTemplates returns every template, the fastest first.
func allTemplates(k *stageTable) []Template {
	var all []Template
	var add func(from int, p *partialTemplate, stages int)
	add = func(from int, p *partialTemplate, stages int) {
		if from == len(k.chain.Layers) {
			all = append(all, k.template(p))
			return
		}
		for to := from + 1; stages < k.params.MaxStages && to <= len(k.chain.Layers); to++ {
			for w := 1; w <= k.params.MaxWorkers; w++ {
				if x := k.stage(from, to, w); x.ok {
					add(to, &partialTemplate{p.latency + x.latency, p.cost + x.cost, p, to, w}, stages+1)
				}
			}
		}
	}
	add(0, &partialTemplate{}, 0)
	return fastestFirst(all)
}

// bestByRule returns the template that the rule P12 selects, by a direct search.
func bestByRule(all []Template, whole Template, terms TemplateParameters) *Template {
	limit := all[0].Latency * profile.Seconds(1+terms.Slack) * (1 + 1e-12)
	var best *Template
	for i := range all {
		p := &all[i]
		if p.Latency > limit || whole.Latency-p.Latency < profile.Seconds(terms.Gain)*whole.Latency {
			continue
		}
		if p.Cost <= whole.Cost {
			return p
		}
	}
	for i := range all {
		p := &all[i]
		if p.Latency > limit || whole.Latency-p.Latency < profile.Seconds(terms.Gain)*whole.Latency {
			continue
		}
		if best == nil || savingPerCost(*p, whole) > savingPerCost(*best, whole) {
			best = p
		}
	}
	return best
}

func TestCutRefuses(t *testing.T) {
	for field, spoil := range map[string]func(*Chain, *TemplateParameters){
		"layers":            func(c *Chain, _ *TemplateParameters) { c.Layers = nil },
		"input":             func(c *Chain, _ *TemplateParameters) { c.Input = -1 },
		"layers[1].work":    func(c *Chain, _ *TemplateParameters) { c.Layers[1].Work = profile.Seconds(math.NaN()) },
		"layers[1].weights": func(c *Chain, _ *TemplateParameters) { c.Layers[1].Weights = math.MaxInt64 },
		"layers[1].output":  func(c *Chain, _ *TemplateParameters) { c.Layers[1].Output = -1 },
		"layers[1].halo":    func(c *Chain, _ *TemplateParameters) { c.Layers[1].Halo = 2 },
		"milliCPU":          func(_ *Chain, k *TemplateParameters) { k.CPU = 0 },
		"maxStages":         func(_ *Chain, k *TemplateParameters) { k.MaxStages = 0 },
		"maxWorkers":        func(_ *Chain, k *TemplateParameters) { k.MaxWorkers = 1e6 },
		"call":              func(_ *Chain, k *TemplateParameters) { k.Call = -1 },
		"bandwidth":         func(_ *Chain, k *TemplateParameters) { k.Bandwidth = 0 },
		"maxTime":           func(_ *Chain, k *TemplateParameters) { k.MaxTime = 0 },
		"gain":              func(_ *Chain, k *TemplateParameters) { k.Gain = math.NaN() },
		"slack":             func(_ *Chain, k *TemplateParameters) { k.Slack = -1 },
		"nanoPerVCPUSecond": func(_ *Chain, k *TemplateParameters) { k.Prices.VCPU = 0 },
	} {
		c, terms := randomChain(rand.New(rand.NewPCG(1, 1)), 3), DefaultTemplateParameters(alibaba(), DefaultPlatform())
		spoil(&c, &terms)
		_, err := FindTemplates(c, terms)
		expectField(t, err, field)
	}
}

// TestTemplateDefaults is P13.
func TestTemplateDefaults(t *testing.T) {
	got := DefaultTemplateParameters(alibaba(), DefaultPlatform())
	want := TemplateParameters{
		Prices: alibaba(), Platform: DefaultPlatform(), CPU: 2000, Master: profile.Master{CPU: 100, MemoryMiB: 128}, MaxStages: 8, MaxWorkers: 16,
		Call: profile.Seconds(5e-3), Bandwidth: 1e8, MaxTime: 600, Gain: 0.05, Slack: 0.05,
	}
	if got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// TestTemplateBounds: values at the bounds are valid, those just beyond are not.
func TestTemplateBounds(t *testing.T) {
	for name, set := range map[string]func(*TemplateParameters, float64){
		"slack":      func(k *TemplateParameters, v float64) { k.Slack = 100 * v },
		"call":       func(k *TemplateParameters, v float64) { k.Call = profile.Seconds(60 * v) },
		"bandwidth":  func(k *TemplateParameters, v float64) { k.Bandwidth = 1e15 * v },
		"maxTime":    func(k *TemplateParameters, v float64) { k.MaxTime = profile.Seconds(MaxSLO * v) },
		"maxStages":  func(k *TemplateParameters, v float64) { k.MaxStages = int(math.Ceil(64 * v)) },
		"maxWorkers": func(k *TemplateParameters, v float64) { k.MaxWorkers = int(math.Ceil(64 * v)) },
	} {
		k := DefaultTemplateParameters(alibaba(), DefaultPlatform())
		if set(&k, 1); k.Validate() != nil {
			t.Errorf("%s at its bound: %v", name, k.Validate())
		}
		set(&k, 1.001)
		expectField(t, k.Validate(), name)
	}
	long := randomChain(rand.New(rand.NewPCG(1, 1)), maxLayers)
	if err := long.Validate(); err != nil {
		t.Error(err)
	}
	long.Layers = append(long.Layers, long.Layers[0])
	expectField(t, long.Validate(), "layers")
}

// TestChooseTemplate chooses by hand (P12): a template that is no dearer than the whole model, the fastest of them, or else the one that
// saves the most latency per additional cost.
func TestChooseTemplate(t *testing.T) {
	whole := Template{Latency: 10, Cost: 100}
	for name, c := range map[string]struct {
		candidates []Template
		want       int
	}{
		"most saved per cost":       {[]Template{{Latency: 2, Cost: 200}, {Latency: 4, Cost: 110}, {Latency: 6, Cost: 108}}, 1}, // 0.08, 0.6, 0.5
		"little for nearly nothing": {[]Template{{Latency: 2, Cost: 200}, {Latency: 9, Cost: 101}}, 1},                          // 0.08, 1
		"no dearer":                 {[]Template{{Latency: 2, Cost: 101}, {Latency: 4, Cost: 100}, {Latency: 6, Cost: 90}}, 1},
	} {
		if got := chooseTemplate(c.candidates, whole); got.Latency != c.candidates[c.want].Latency {
			t.Errorf("%s: %+v, want %+v", name, got, c.candidates[c.want])
		}
	}
}

// TestSlack logs the figures of docs/adr/0019: latency and cost of the chosen template over those of the fastest, by Slack. More slack never
// makes a template dearer, nor slower than it allows.
func TestSlack(t *testing.T) {
	before := 1.0
	for _, slack := range []float64{0, 0.02, 0.05, 0.1, 0.2, 0.5, 100} {
		latency, cost, n := 0.0, 0.0, 0.0
		for k := 3; k <= 5; k++ {
			for _, cpu := range []profile.MilliCPU{1000, 2000, 4000} {
				terms := DefaultTemplateParameters(alibaba(), DefaultPlatform())
				terms.CPU, terms.Slack = cpu, slack
				got, err := FindTemplates(wideResNet(k, 15e9*float64(cpu)/1000), terms)
				if err != nil {
					t.Fatal(err)
				}
				latency += float64(got.Chosen.Latency / got.Fastest.Latency)
				cost += float64(got.Chosen.Cost / got.Fastest.Cost)
				n++
			}
		}
		latency, cost = latency/n, cost/n
		t.Logf("slack %v: %.2f times the latency and %.2f times the cost of the fastest", slack, latency, cost)
		if latency > 1+slack+1e-9 || cost > before {
			t.Errorf("slack %v: %v times the latency, and %v times the cost after %v with less", slack, latency, cost, before)
		}
		before = cost
	}
}

// TestWholeModelWithinTime: the whole model is chosen where no split saves enough time, unless it takes longer than a function may run.
func TestWholeModelWithinTime(t *testing.T) {
	c := Chain{Layers: []Layer{{Name: "a", Work: 1}, {Name: "b", Work: 1}}}
	terms := DefaultTemplateParameters(alibaba(), DefaultPlatform())
	terms.Gain, terms.MaxWorkers = 0.99, 1
	for limit, whole := range map[profile.Seconds]bool{2: true, 1.5: false} {
		terms.MaxTime = limit
		got, err := FindTemplates(c, terms)
		if err != nil {
			t.Fatal(err)
		}
		if want := got.Fastest; whole && len(got.Chosen.Cuts) != 1 || !whole && len(got.Chosen.Cuts) != len(want.Cuts) {
			t.Errorf("of at most %v s: chose %+v, fastest %+v", limit, got.Chosen, want)
		}
	}
}

// TestMostTemplates: however many layers there are, the search makes a bounded number of templates of shorter ones, and of few layers it keeps all.
func TestMostTemplates(t *testing.T) {
	for layers := 1; layers <= maxLayers; layers++ {
		k := &stageTable{params: DefaultTemplateParameters(alibaba(), DefaultPlatform()), chain: Chain{Layers: make([]Layer, layers)}}
		most := k.mostPartials()
		if made := layers * (layers + 1) / 2 * k.params.MaxWorkers * k.params.MaxStages * most; made > maxExtensions {
			t.Fatalf("%d layers: %d templates are made", layers, made)
		}
		if layers <= 50 && most < 1000 {
			t.Fatalf("%d layers: %d templates are kept", layers, most)
		}
	}
}

func TestEvenly(t *testing.T) {
	all := []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}
	for most, want := range map[int][]int{10: all, 11: all, 2: {0, 9}, 4: {0, 3, 6, 9}, 3: {0, 4, 9}} {
		if got := evenly(all, most); !slices.Equal(got, want) {
			t.Errorf("%d of them: %v, want %v", most, got, want)
		}
	}
}
