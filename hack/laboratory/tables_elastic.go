package main

// elasticShares is Dilu's comparison of training beside inference (N-D1, N-D2, N-D5).
func elasticShares() table {
	policies := []string{"rckm", "rckm-tokens", "mps-l", "mps-r"}
	loads := []row{figure10b("10", "1"), figure10b("15", "1.5"), figure10b("20", "2")}
	return table{
		name: "elastic", title: "Elastic shares: training beside inference on one GPU",
		text: "Four pairs of Dilu's functions on a model of a GPU; ratios to a GPU for each, means over the pairs. `mps-l` and `mps-r` are static\n" +
			"caps at the limits and the requests, `rckm` is Dilu's block tokens, corrected, with best effort at MPS's lower priority,\n" +
			"`rckm-tokens` the same without the priority. p95 of inference; throughput of training, percent. Figure 10 b of the paper, from which\n" +
			"its figures for caps at CV 6 are, is GPT2-large beside a training of RoBERTa-large, at a rate that it does not say: in figure 7\n" +
			"it is 10 a second. Here CV 6 and 300 s.",
		command: []string{"simulate", "elastic"},
		rows: []row{
			{name: "Poisson"}, {name: "CV 6", args: []string{"--cv", "6"}},
			loads[0], loads[1], loads[2],
			{name: "30 % interference", args: []string{"--interference", "30"}},
		},
		columns: append(of("p95_ratio", "", 2, policies...), of("training_percent", ", training", 1, policies...)...),
		targets: []target{
			{rows: []string{"Poisson"}, column: "rckm p95_ratio", bound: 1.28},
			{rows: []string{"Poisson"}, column: "rckm training_percent", least: true, bound: 97},
			{rows: []string{"CV 6", loads[0].name, loads[1].name, loads[2].name}, column: "rckm p95_ratio", bound: 1.3},
			{rows: []string{loads[1].name, loads[2].name}, column: "mps-l p95_ratio", least: true, bound: 2},
			{rows: []string{loads[1].name, loads[2].name}, column: "mps-r p95_ratio", least: true, bound: 2},
			{column: "rckm p95_ratio", other: "mps-l p95_ratio", strict: true},
			{column: "rckm p95_ratio", other: "mps-r p95_ratio", strict: true},
		},
		figures: []figure{{file: "elastic.svg", caption: "p95 over the variation of the gaps between requests",
			args: []string{"simulate", "elastic", "--seconds", "20", "--policy", "rckm,rckm-tokens,mps-l,mps-r"}}},
	}
}

// figure10b is Dilu's sweep of variations at its end, at a rate.
func figure10b(rate, load string) row {
	return row{name: "figure 10 b at " + rate + "/s",
		args: []string{"--cv", "6", "--pair", "gpt2-large+roberta-large", "--load", load, "--seconds", "300"}}
}

// elasticPolicies holds the same against the other policies, and Dilu's algorithm as printed (D12).
func elasticPolicies() table {
	policies := []string{"rckm", "rckm-gaps", "rckm-printed", "fast", "table", "tgs"}
	return table{
		name: "elastic-policies", title: "Elastic shares: other policies",
		text: "Training beside inference as above. `rckm-gaps` is `rckm` where the host does not tell when a batch ends, `rckm-printed` the\n" +
			"algorithm as the paper prints it, `fast` and `table` are time tokens at the limits, `tgs` priority in the manner of TGS.",
		command: []string{"simulate", "elastic"},
		rows:    []row{{name: "Poisson"}},
		columns: append(of("p95_ratio", "", 2, policies...), of("training_percent", ", training", 1, policies...)...),
	}
}

// elasticInference is Dilu's comparison of inference beside inference, with bursts of the first (N-D3).
func elasticInference() table {
	return table{
		name: "elastic-inference", title: "Elastic shares: inference beside inference",
		text:    "Four pairs; the first function has bursts of 4, 6, 6 and 4 times its rate. p95 over that of a GPU for each.",
		command: []string{"simulate", "elastic", "--kind", "inference-inference"},
		rows:    []row{{name: "bursts"}, {name: "bursts, CV 6", args: []string{"--cv", "6"}}},
		columns: of("p95_ratio", "", 2, "rckm", "mps-l", "mps-r", "fast", "table", "tgs"),
	}
}

// elasticTraining is Dilu's comparison of training beside training (N-D4).
func elasticTraining() table {
	return table{
		name: "elastic-training", title: "Elastic shares: training beside training",
		text:    "Two pairs; throughput of each training, percent of that of a GPU for each. Twice that is what one GPU does.",
		command: []string{"simulate", "elastic", "--kind", "training-training", "--seconds", "20"},
		rows:    []row{{name: "two trainings"}},
		columns: of("training_percent", "", 1, "rckm", "mps-l", "mps-r", "fast", "table", "tgs"),
	}
}

// maxTokens is the sweep of Dilu's figure 18 b (N-D7).
func maxTokens() table {
	policies := []string{"rckm", "rckm-tokens"}
	return table{
		name: "elastic-maxtokens", title: "Elastic shares: MaxTokens",
		text: "Training beside inference, with 30 % interference. MaxTokens times what makes the launches of a function without neighbours its\n" +
			"request; calibrated is what shares have if nobody sets it.",
		command: []string{"simulate", "elastic", "--interference", "30", "--seconds", "20"},
		rows:    append(rows("--max-tokens", "0.1", "0.3", "1", "2", "10", "100"), row{name: "calibrated"}),
		columns: append(of("p95_ratio", "", 2, policies...), of("training_percent", ", training", 1, policies...)...),
	}
}
