package planning

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/gshare-dev/gshare/serving/rules/profile"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Catalogue holds what is known of models: their latency models, and how some of them can be partitioned.
type Catalogue struct {
	Models []profile.Model `json:"models"`
	Chains []MeasuredChain `json:"chains,omitempty"`
}

// MeasuredChain is a model as a sequence of layers, with those of its partitions that were measured. It connects the offline search for
// stages, FindTemplates, with the measurements that planning needs.
type MeasuredChain struct {
	Model string `json:"model"` // key in Catalogue.Models
	Chain
	Partitions []Partition `json:"partitions,omitempty"`
}

// Partition is a partition of a model into stages, with its measured latencies.
type Partition struct {
	Cuts    []int               `json:"cuts"` // for each stage, the index after its last layer, as in Template
	Profile profile.Partitioned `json:"profile"`
}

// workers returns the number of workers of each stage.
func (p *Partition) workers() []int {
	var all []int
	for i := range p.Profile.Stages {
		all = append(all, len(p.Profile.Stages[i].Workers))
	}
	return all
}

// Joined is what JoinTemplates did with one chain.
type Joined struct {
	Model string
	// Template is the chosen template if it was measured, or else the fastest one if that was measured, or else the chosen one, to be
	// measured.
	Template Template
	Measured bool // the model now has the measurements of the template
}

// String returns what was done, as a sentence.
func (j Joined) String() string {
	on := fmt.Sprintf("stages up to layers %v on %v workers of up to %d MiB", j.Template.Cuts, j.Template.Workers, (j.Template.Memory+share.MiB-1)/share.MiB)
	if j.Measured {
		return fmt.Sprintf("%s: planned with its measured %s", j.Model, on)
	}
	return fmt.Sprintf("%s: its best partition was not measured: measure %s", j.Model, on)
}

// JoinTemplates searches the templates of each chain and adds the measured latencies of the chosen template to the model, as
// Model.Partitioned, so that plans may use the mode Partitioned. If the chosen template was not measured but the fastest one was, it adds
// those of the fastest. A chain whose best template is the whole model is left alone. The catalogue is not changed; the returned models
// are copies. Errors are *share.FieldError.
func JoinTemplates(c Catalogue, prices PriceList, platform Platform) ([]profile.Model, []Joined, error) {
	models := slices.Clone(c.Models)
	var all []Joined
	for i := range c.Chains {
		chain, path := &c.Chains[i], fmt.Sprintf("chains[%d]", i)
		at := slices.IndexFunc(models, func(m profile.Model) bool { return m.Name == chain.Model })
		switch {
		case at < 0:
			return nil, nil, share.Invalid(path+".model", "there is no profile of %.64q", chain.Model)
		case slices.ContainsFunc(c.Chains[:i], func(other MeasuredChain) bool { return other.Model == chain.Model }): // a search takes a while
			return nil, nil, share.Invalid(path+".model", "there is a chain of %.64q already", chain.Model)
		case models[at].Partitioned != nil:
			return nil, nil, share.Invalid(path+".model", "%.64q has a profile of stages already: move it to partitions, with its cuts", chain.Model)
		}
		j, partitioned, err := chain.join(DefaultTemplateParameters(prices, platform))
		if err != nil {
			return nil, nil, profile.WithinField(path, err)
		}
		if len(j.Template.Cuts) < 2 && slices.Max(append(j.Template.Workers, 1)) == 1 {
			continue // the whole model in one function: the mode CPU
		}
		models[at].Partitioned = partitioned
		all = append(all, j)
	}
	return models, all, nil
}

// join returns the template to plan with for a chain, and its measurements; these are nil if neither the chosen nor the fastest template
// was measured.
func (m *MeasuredChain) join(terms TemplateParameters) (Joined, *profile.Partitioned, error) {
	for i := range m.Partitions {
		if err := m.Partitions[i].validate(len(m.Layers)); err != nil {
			return Joined{}, nil, profile.WithinField(fmt.Sprintf("partitions[%d]", i), err)
		}
	}
	found, err := FindTemplates(m.Chain, terms)
	if err != nil {
		return Joined{}, nil, err
	}
	for _, t := range []Template{found.Chosen, found.Fastest} {
		for i := range m.Partitions {
			if p := &m.Partitions[i]; slices.Equal(p.Cuts, t.Cuts) && slices.Equal(p.workers(), t.Workers) {
				return Joined{m.Model, t, true}, &p.Profile, nil
			}
		}
	}
	return Joined{m.Model, found.Chosen, false}, nil, nil
}

func (p *Partition) validate(layers int) error {
	if len(p.Cuts) == 0 || !slices.IsSortedFunc(p.Cuts, cmp.Compare[int]) || p.Cuts[len(p.Cuts)-1] != layers || len(p.Cuts) != len(p.Profile.Stages) {
		return share.Invalid("cuts", "want the layer after the last of each of the %d stages, the last of them %d", len(p.Profile.Stages), layers)
	}
	return profile.WithinField("profile", p.Profile.Validate())
}
