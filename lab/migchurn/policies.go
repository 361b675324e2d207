package migchurn

import (
	"fmt"

	"github.com/gshare-dev/gshare/vgpu/mig"
)

// Policies lists the names that PolicyNamed accepts.
var Policies = []string{"gradient", "remaining", "laststart", "bestfit", "firstfit", "static"}

// PolicyNamed returns a new policy with the given name for GPUs of a model, or an error.
func PolicyNamed(name string, m *mig.Model) (Policy, error) {
	switch name {
	case "gradient":
		return Gradient(m), nil
	case "remaining":
		return Remaining(m), nil
	case "laststart":
		return LastStart, nil
	case "bestfit":
		return BestFit, nil
	case "firstfit":
		return FirstFit, nil
	case "static":
		return Static(m), nil
	}
	return nil, fmt.Errorf("no policy is called %.64q", name)
}

// Gradient returns the policy of gshare itself, that of mig.Chooser.
func Gradient(m *mig.Model) Policy {
	chooser := mig.NewChooser(m)
	return func(gpus []mig.Layout, p *mig.Profile) (int, mig.Instance, bool) {
		gpu, start, ok := chooser.Choose(gpus, p)
		return gpu, mig.Instance{Profile: p, Start: start}, ok
	}
}

// Remaining returns a Policy that keeps the largest number of start positions at which instances can still be created, summed over all GPUs
// and profiles.
func Remaining(m *mig.Model) Policy {
	var places [256]int
	for s := range places {
		for _, room := range m.Available(mig.Layout{Used: mig.Slices(s), Media: true}) {
			places[s] += len(room.Starts)
		}
	}
	return func(gpus []mig.Layout, p *mig.Profile) (gpu int, made mig.Instance, ok bool) {
		var least int
		for g, l := range gpus {
			for _, start := range l.Starts(p) {
				i := mig.Instance{Profile: p, Start: start}
				if lost := places[l.Used] - places[l.With(i).Used]; !ok || lost < least {
					gpu, made, ok, least = g, i, true, lost
				}
			}
		}
		return gpu, made, ok
	}
}
