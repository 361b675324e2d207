package planning

import (
	"strings"
	"testing"

	"github.com/gshare-dev/gshare/serving/rules/profile"
)

// partitionOf returns made-up measurements of a template.
func partitionOf(t Template) Partition {
	p := Partition{Cuts: t.Cuts, Profile: profile.Partitioned{Transfer: profile.Linear{Intercept: 0.01}, Master: profile.Master{CPU: 100, MemoryMiB: 128}}}
	for _, n := range t.Workers {
		stage := profile.Stage{}
		for range n {
			curve := profile.Exponential{Alpha: 0.5, Beta: 0.4, Gamma: 0.05}
			stage.Workers = append(stage.Workers, profile.CPU{Mean: []profile.Exponential{curve}, P99: []profile.Exponential{curve}, Memory: profile.Linear{Intercept: 300}})
		}
		p.Profile.Stages = append(p.Profile.Stages, stage)
	}
	return p
}

// TestJoinTemplates: a model gets the measurements of the template that FindTemplates chooses, or of the fastest one; if neither was measured,
// which to measure is said.
func TestJoinTemplates(t *testing.T) {
	chain := wideResNet(4, 30e9)
	found, err := FindTemplates(chain, DefaultTemplateParameters(alibaba(), DefaultPlatform()))
	if err != nil {
		t.Fatal(err)
	}
	chosen, fastest := partitionOf(found.Chosen), partitionOf(found.Fastest)
	otherWorkers := partitionOf(found.Chosen)
	otherWorkers.Profile.Stages[0].Workers = append(otherWorkers.Profile.Stages[0].Workers, otherWorkers.Profile.Stages[0].Workers...)
	cpu := chosen.Profile.Stages[0].Workers[0]
	for name, test := range map[string]struct {
		partitions []Partition
		measured   bool
		stages     int
	}{
		"none":            {nil, false, 0},
		"chosen":          {[]Partition{otherWorkers, chosen}, true, len(chosen.Cuts)},
		"both":            {[]Partition{fastest, chosen}, true, len(chosen.Cuts)},
		"fastest":         {[]Partition{fastest}, true, len(fastest.Cuts)},
		"another's sizes": {[]Partition{otherWorkers}, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			c := Catalogue{Models: []profile.Model{{Name: "m", CPU: &cpu}}, Chains: []MeasuredChain{{Model: "m", Chain: chain, Partitions: test.partitions}}}
			models, joined, err := JoinTemplates(c, alibaba(), DefaultPlatform())
			if err != nil || len(joined) != 1 || joined[0].Measured != test.measured {
				t.Fatalf("%v %v", joined, err)
			}
			if p := models[0].Partitioned; (p != nil) != test.measured || p != nil && len(p.Stages) != test.stages {
				t.Errorf("stages of %+v, want %d", p, test.stages)
			}
			if c.Models[0].Partitioned != nil {
				t.Error("the catalogue has changed")
			}
			if text := joined[0].String(); strings.Contains(text, "measure stages") == test.measured {
				t.Error(text)
			}
		})
	}
}

// TestJoinedTemplateIsPlanned: a model that is partitioned by its template is planned so where no other mode is fast enough.
func TestJoinedTemplateIsPlanned(t *testing.T) {
	chain := wideResNet(4, 30e9)
	found, err := FindTemplates(chain, DefaultTemplateParameters(alibaba(), DefaultPlatform()))
	if err != nil {
		t.Fatal(err)
	}
	slow := profile.Exponential{Alpha: 5, Beta: 0.4, Gamma: 3}
	c := Catalogue{
		Models: []profile.Model{{Name: "m", CPU: &profile.CPU{Mean: []profile.Exponential{slow}, P99: []profile.Exponential{slow}, Memory: profile.Linear{Intercept: 1000}}}},
		Chains: []MeasuredChain{{Model: "m", Chain: chain, Partitions: []Partition{partitionOf(found.Chosen)}}},
	}
	models, _, err := JoinTemplates(c, alibaba(), DefaultPlatform())
	if err != nil {
		t.Fatal(err)
	}
	in := Input{Models: models, Prices: alibaba(), Platform: DefaultPlatform(), Modes: Modes(), Applications: []Application{{"a", "m", 2, 1}}}
	plan := mustPlan(t, Best, in)
	if len(plan.Groups) != 1 || plan.Groups[0].Config.Mode != Partitioned || len(plan.Groups[0].Config.Workers) != len(found.Chosen.Cuts) {
		t.Errorf("%+v", plan)
	}
	in.Models = c.Models
	if plan = mustPlan(t, Best, in); len(plan.Infeasible) != 1 {
		t.Errorf("without the join %+v", plan)
	}
}

func TestJoinTemplatesRefuses(t *testing.T) {
	chain := wideResNet(3, 30e9)
	cpu := partitionOf(Template{Workers: []int{1}}).Profile.Stages[0].Workers[0]
	model := profile.Model{Name: "m", CPU: &cpu}
	cut := partitionOf(Template{Cuts: []int{3, len(chain.Layers)}, Workers: []int{1, 1}})
	with := func(change func(*Partition)) []Partition {
		p := cut
		p.Cuts = append([]int(nil), p.Cuts...)
		change(&p)
		return []Partition{p}
	}
	for field, c := range map[string]Catalogue{
		"chains[0].model":                 {Chains: []MeasuredChain{{Model: "m", Chain: chain}}},
		"chains[1].model":                 {Models: []profile.Model{model, {Name: "n", Partitioned: &cut.Profile}}, Chains: []MeasuredChain{{Model: "m", Chain: chain}, {Model: "n", Chain: chain}}},
		"chains[1].model: there is":       {Models: []profile.Model{model}, Chains: []MeasuredChain{{Model: "m", Chain: chain}, {Model: "m", Chain: chain}}},
		"chains[0].layers":                {Models: []profile.Model{model}, Chains: []MeasuredChain{{Model: "m"}}},
		"chains[0].partitions[0].cuts":    {Models: []profile.Model{model}, Chains: []MeasuredChain{{Model: "m", Chain: chain, Partitions: with(func(p *Partition) { p.Cuts[1]-- })}}},
		"chains[0].partitions[0].profile": {Models: []profile.Model{model}, Chains: []MeasuredChain{{Model: "m", Chain: chain, Partitions: with(func(p *Partition) { p.Profile.Transfer.Slope = -1 })}}},
	} {
		t.Run(field, func(t *testing.T) {
			if _, _, err := JoinTemplates(c, alibaba(), DefaultPlatform()); err == nil || !strings.Contains(err.Error(), field) {
				t.Errorf("error %v, want one of %s", err, field)
			}
		})
	}
}
