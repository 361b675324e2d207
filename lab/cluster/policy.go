package cluster

// policies are the constructors of the packing rules by name. All but firstfit and gshare are those of FGD's evaluation, with its
// integer scores.
var policies = map[string]func(*Simulation) policy{
	"random": func(s *Simulation) policy {
		return &board{Simulation: s, score: indifferent, draw: true, gpus: s.anyGPU}
	},
	"firstfit":   func(s *Simulation) policy { return &board{Simulation: s, score: indifferent} },
	"bestfit":    func(s *Simulation) policy { return &board{Simulation: s, score: bestFit} },
	"dotproduct": func(s *Simulation) policy { return &board{Simulation: s, score: dotProduct} },
	"clustering": func(s *Simulation) policy { return &board{Simulation: s, score: clustering} },
	"packing":    func(s *Simulation) policy { return &board{Simulation: s, score: packingScore} },
	"fgd":        func(s *Simulation) policy { return newGradient(s, false) },
	"fgd-stock":  func(s *Simulation) policy { return newGradient(s, true) },
	"gshare":     func(s *Simulation) policy { return newBalance(s) },
}

// Policies returns the names of the packing rules: gshare's, then the published ones.
func Policies() []string {
	return []string{"gshare", "random", "firstfit", "bestfit", "dotproduct", "clustering", "packing", "fgd", "fgd-stock"}
}
