package cluster

// policies maps the name of each policy to its constructor. All but firstfit and gshare are those of FGD's evaluation, with its integer
// scores.
var policies = map[string]func(*Simulation) policy{
	"random": func(s *Simulation) policy {
		return &scoredPolicy{Simulation: s, score: indifferent, draw: true, gpus: s.randomGPU}
	},
	"firstfit":   func(s *Simulation) policy { return &scoredPolicy{Simulation: s, score: indifferent} },
	"bestfit":    func(s *Simulation) policy { return &scoredPolicy{Simulation: s, score: bestFit} },
	"dotproduct": func(s *Simulation) policy { return &scoredPolicy{Simulation: s, score: dotProduct} },
	"clustering": func(s *Simulation) policy { return &scoredPolicy{Simulation: s, score: clustering} },
	"packing":    func(s *Simulation) policy { return &scoredPolicy{Simulation: s, score: packingScore} },
	"fgd":        func(s *Simulation) policy { return newFGD(s, false) },
	"fgd-stock":  func(s *Simulation) policy { return newFGD(s, true) },
	"gshare":     func(s *Simulation) policy { return newGsharePolicy(s) },
}

// Policies returns the names of the policies: gshare's, then the published ones.
func Policies() []string {
	return []string{"gshare", "random", "firstfit", "bestfit", "dotproduct", "clustering", "packing", "fgd", "fgd-stock"}
}
