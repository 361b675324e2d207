package migchurn

import (
	"fmt"

	"github.com/gshare-dev/gshare/vgpu/mig"
)

// Mix is the distribution of requests over instance sizes: the weights of 1g, 2g, 3g, 4g and 7g, each with the least memory of its size.
type Mix struct {
	Name    string
	Weights [5]float64
}

// Mixes are the request mixes for which docs/packing.md reports figures.
var Mixes = []Mix{
	{"uniform", [5]float64{1, 1, 1, 1, 1}},
	{"small", [5]float64{5, 3, 1.5, 0.5, 0}},
	{"mid", [5]float64{2, 3, 3, 2, 0}},
}

var computes = [5]int{1, 2, 3, 4, 7}

// MixNamed returns the mix of Mixes with the given name, or an error.
func MixNamed(name string) (Mix, error) {
	for _, m := range Mixes {
		if m.Name == name {
			return m, nil
		}
	}
	return Mix{}, fmt.Errorf("%q is none of uniform, small, mid", name)
}

// demand is a MIG profile and the weight of its requests in a mix.
type demand struct {
	profile *mig.Profile
	weight  float64
}

// demandsOn returns the profiles and weights of the mix on a GPU model, without the sizes that the model lacks.
func (x Mix) demandsOn(m *mig.Model) []demand {
	var out []demand
	for i, compute := range computes {
		if p := smallestProfile(m, compute); p != nil && x.Weights[i] > 0 {
			out = append(out, demand{p, x.Weights[i]})
		}
	}
	return out
}

// smallestProfile returns the profile with the given number of compute slices that has the least memory and no media engines, or nil.
func smallestProfile(m *mig.Model, compute int) *mig.Profile {
	for i := range m.Profiles {
		if p := &m.Profiles[i]; p.Compute == compute && !p.Media {
			return p // the first one: a model lists profiles with double memory after the plain ones
		}
	}
	return nil
}

func meanCompute(demands []demand) float64 {
	var sum, weight float64
	for _, d := range demands {
		sum += d.weight * float64(d.profile.Compute)
		weight += d.weight
	}
	return sum / weight
}

// pick returns a profile with the probability of its weight, given a uniform random number u in [0, 1).
func pick(demands []demand, u float64) *mig.Profile {
	var total float64
	for _, d := range demands {
		total += d.weight
	}
	u *= total
	for _, d := range demands[:len(demands)-1] {
		if u -= d.weight; u < 0 {
			return d.profile
		}
	}
	return demands[len(demands)-1].profile
}
