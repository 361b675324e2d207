package main

// elasticShares is Dilu's comparison of training beside inference (N-D1, N-D2, N-D5).
func elasticShares() table {
	policies := []string{"rckm", "rckm-tokens", "mps-l", "mps-r"}
	return table{
		name: "elastic", title: "Elastic shares: training beside inference on one GPU",
		text: "Four pairs of Dilu's functions on a model of a GPU; ratios to a GPU for each, means over the pairs. `mps-l` and `mps-r` are static\n" +
			"caps at the limits and the requests, `rckm` is Dilu's block tokens, corrected, with best effort at MPS's lower priority,\n" +
			"`rckm-tokens` the same without the priority. p95 of inference; throughput of training, percent.",
		command: []string{"simulate", "elastic"},
		rows: []row{
			{name: "Poisson"}, {name: "CV 6", args: []string{"--cv", "6"}},
			{name: "30 % interference", args: []string{"--interference", "30"}},
		},
		columns: append(of("p95_ratio", "", 2, policies...), of("training_percent", ", training", 1, policies...)...),
		targets: []target{
			{rows: []string{"Poisson"}, column: "rckm p95_ratio", bound: 1.28},
			{rows: []string{"Poisson"}, column: "rckm training_percent", least: true, bound: 97},
			{rows: []string{"CV 6"}, column: "rckm p95_ratio", bound: 1.3},
			{column: "rckm p95_ratio", other: "mps-l p95_ratio", strict: true},
			{column: "rckm p95_ratio", other: "mps-r p95_ratio", strict: true},
		},
		figures: []figure{{file: "elastic.svg", caption: "p95 over the variation of the gaps between requests",
			args: []string{"simulate", "elastic", "--seconds", "20", "--policy", "rckm,rckm-tokens,mps-l,mps-r"}}},
	}
}
