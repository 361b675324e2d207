// Package planning minimises the cost of serving applications with deadlines: it decides which share a deployment, in which mode,
// on which resources and in which batches. It implements PAMBA's planner with the corrections that docs/glossary.md lists, and
// HarmonyBatch's as a baseline.
package planning

import (
	"cmp"

	"github.com/gshare-dev/gshare/vgpu/profile"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Application is a stream of inference requests for one model, with a mean arrival rate and a latency objective.
type Application struct {
	Name  string          `json:"name"`
	Model string          `json:"model"`
	SLO   profile.Seconds `json:"slo"`  // from arrival to answer, of the p99
	Rate  float64         `json:"rate"` // requests a second, mean
}

// Bounds of an Input.
const (
	MaxSLO  = 86400 // seconds: a day
	MinRate = 1e-6  // a second: one in eleven days
	MaxRate = 1e7   // a second

	maxApplications = 2000
	maxShares       = 200_000 // configurations of one model
)

func (a *Application) validate() error {
	switch {
	case a.Name == "":
		return share.Invalid("name", "is empty")
	case !(a.SLO > 0 && a.SLO <= MaxSLO): // NaN too
		return share.Invalid("slo", "%v s is not above 0 and at most %d s", float64(a.SLO), MaxSLO)
	case !(a.Rate >= MinRate && a.Rate <= MaxRate):
		return share.Invalid("rate", "%v a second is outside %g to %g", a.Rate, MinRate, float64(MaxRate))
	}
	return nil
}

// compareUrgency orders applications by SLO, then rate, then name.
func compareUrgency(a, b Application) int {
	return cmp.Or(cmp.Compare(a.SLO, b.SLO), cmp.Compare(a.Rate, b.Rate), cmp.Compare(a.Name, b.Name)) // P17
}
