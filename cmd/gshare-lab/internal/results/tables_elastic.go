package results

import (
	"fmt"
	"slices"
)

// elasticShares defines the table that compares policies when a training job and an inference function share a GPU, as Dilu does.
func elasticShares() table {
	policies := []string{"rckm", "rckm-tokens", "mps-l", "mps-r"}
	return table{
		name: "elastic", title: "Elastic shares: training beside inference on one GPU",
		text: "Four pairs of Dilu's functions on a model of a GPU; ratios to a GPU for each, means over the pairs. `mps-l` and `mps-r` are static\n" +
			"caps at the limits and the requests, `rckm` is Dilu's block tokens, corrected, with best effort at MPS's lower priority,\n" +
			"`rckm-tokens` the same without the priority. p95 of inference; throughput of training, percent. The times of requests differ by a fifth\n" +
			"if a fifth is the standard deviation of their logarithm, about what a convolution net has alone on an H200.",
		command: []string{"simulate", "elastic"},
		rows: []row{
			{name: "Poisson"}, {name: "CV 6", args: []string{"--cv", "6"}},
			{name: "30 % interference", args: []string{"--interference", "30"}},
			{name: "times differ by a fifth", args: []string{"--spread", "0.2"}},
			{name: "times differ, 30 % interference", args: []string{"--spread", "0.2", "--interference", "30"}},
			{name: "times differ, a GPU ten times as fast", args: []string{"--spread", "0.2", "--speed", "10"}},
		},
		columns: append(columnsOf("p95_ratio", "", 2, policies...), columnsOf("training_percent", ", training", 1, policies...)...),
		targets: []target{
			{rows: []string{"Poisson"}, column: "rckm p95_ratio", bound: 1.28},
			{rows: []string{"Poisson"}, column: "rckm training_percent", least: true, bound: 97},
			{rows: []string{"CV 6"}, column: "rckm p95_ratio", bound: 1.3},
			{column: "rckm p95_ratio", other: "mps-l p95_ratio", strict: true},
			{column: "rckm p95_ratio", other: "mps-r p95_ratio", strict: true},
		},
		figures: []chartFile{{file: "elastic.svg", caption: "p95 over the variation of the gaps between requests",
			args: []string{"simulate", "elastic", "--seconds", "20", "--policy", "rckm,rckm-tokens,mps-l,mps-r"}}},
	}
}

// elasticLoads defines the table that compares policies at every load that one GPU can serve alone, with gaps between requests of CV 6, the
// largest in Dilu's sweep. The paper does not say at which load it measured.
func elasticLoads() table {
	lost := []target{{column: "mps-l p95_ratio", least: true, strict: true, bound: 2}, {column: "mps-r p95_ratio", least: true, strict: true, bound: 2}}
	return table{
		name: "elastic-loads", title: "Elastic shares: uneven requests at every load",
		text: "Training beside inference as above, one pair after another, gaps with a CV of 6: from half of the rate of Dilu's figure 7 on in steps of a half, while\n" +
			"a GPU of one's own is busy with the requests for at most nine tenths of the time. Figure 10 b of the paper is the pair of GPT2-large.",
		command: []string{"simulate", "elastic", "--cv", "6", "--seconds", "120"},
		rows: slices.Concat(
			loadRows("resnet152+bert-base", 35, 4), loadRows("roberta-large+bert-base", 20, 3),
			loadRows("gpt2-large+roberta-large", 10, 5), loadRows("llama2-7b+roberta-large", 3, 3)),
		columns: append(columnsOf("p95_ratio", "", 2, "rckm", "mps-l", "mps-r"), columnsOf("training_percent", ", training", 1, "rckm", "mps-l", "mps-r")...),
		targets: []target{{column: "rckm p95_ratio", bound: 1.3, where: lost}},
	}
}

// loadRows returns n rows for a pair of functions: at half of the rate (requests a second), at the rate, at one and a half of it, and so on.
func loadRows(pair string, rate float64, n int) []row {
	var list []row
	for k := 1; k <= n; k++ {
		load := float64(k) / 2
		list = append(list, row{name: fmt.Sprintf("%s, %g/s", pair, load*rate), args: []string{"--pair", pair, "--load", fmt.Sprint(load)}})
	}
	return list
}

// elasticPolicies defines the table that compares variants of RCKM, among them the algorithm as Dilu prints it (D12), and time tokens, for
// training beside inference.
func elasticPolicies() table {
	policies := []string{"rckm", "rckm-gaps", "rckm-printed", "fast", "table", "tgs"}
	return table{
		name: "elastic-policies", title: "Elastic shares: other policies",
		text: "Training beside inference as above. `rckm-gaps` is `rckm` where the host does not tell when a batch ends, `rckm-printed` the\n" +
			"algorithm as the paper prints it, `fast` and `table` are time tokens at the limits, `tgs` priority in the manner of TGS.",
		command: []string{"simulate", "elastic"},
		rows:    []row{{name: "Poisson"}},
		columns: append(columnsOf("p95_ratio", "", 2, policies...), columnsOf("training_percent", ", training", 1, policies...)...),
	}
}

// elasticInference defines the table that compares latency when two inference functions share a GPU and the first receives bursts, as Dilu
// does.
func elasticInference() table {
	policies := []string{"rckm", "rckm-uncapped", "mps-l", "mps-r", "fast", "table", "tgs"}
	return table{
		name: "elastic-inference", title: "Elastic shares: inference beside inference",
		text: "Four pairs; the first function has bursts of 4, 6, 6 and 4 times its rate. p95 over that of a GPU for each. With an SLO of 4.6 times its time,\n" +
			"the bound with which Dilu's public table gives the share that it deploys RoBERTa-large with, limits are below what a function can use.\n" +
			"`rckm-uncapped` is `rckm` without MPS caps, so that tokens alone keep the limits; MaxTokens are so much that a function at its limit\n" +
			"launches what it does there under a cap, or half as much again. Below `mps-l`, as the paper has it, `rckm` is nowhere: docs/adr/0008.",
		command: []string{"simulate", "elastic", "--kind", "inference-inference"},
		rows: []row{
			{name: "bursts"}, {name: "bursts, CV 6", args: []string{"--cv", "6"}}, {name: "bursts, 30 % interference", args: []string{"--interference", "30"}},
			{name: "bursts, SLO 4.6, tokens of the limit", args: []string{"--slo", "4.6", "--max-tokens", "0.5"}},
			{name: "bursts, SLO 4.6, tokens of 1.5 limits", args: []string{"--slo", "4.6", "--max-tokens", "0.75"}},
		},
		columns: columnsOf("p95_ratio", "", 2, policies...),
		targets: []target{{column: "rckm p95_ratio", other: "mps-r p95_ratio", strict: true}},
	}
}

// elasticTraining defines the table that compares throughput when two training jobs share a GPU, as Dilu does.
func elasticTraining() table {
	return table{
		name: "elastic-training", title: "Elastic shares: training beside training",
		text:    "Two pairs; throughput of each training, percent of that of a GPU for each. Twice that is what one GPU does.",
		command: []string{"simulate", "elastic", "--kind", "training-training", "--seconds", "20"},
		rows:    []row{{name: "two trainings"}},
		columns: columnsOf("training_percent", "", 1, "rckm", "mps-l", "mps-r", "fast", "table", "tgs"),
	}
}

// maxTokens defines the table that compares values of MaxTokens, the upper bound of a share's block tokens, as Dilu's figure 18 b does.
func maxTokens() table {
	policies := []string{"rckm", "rckm-tokens"}
	return table{
		name: "elastic-maxtokens", title: "Elastic shares: MaxTokens",
		text: "Training beside inference, with 30 % interference. MaxTokens times what makes the launches of a function without neighbours its\n" +
			"request; calibrated is what shares have if nobody sets it.",
		command: []string{"simulate", "elastic", "--interference", "30", "--seconds", "20"},
		rows:    append(rows("--max-tokens", "0.1", "0.3", "1", "2", "10", "100"), row{name: "calibrated"}),
		columns: append(columnsOf("p95_ratio", "", 2, policies...), columnsOf("training_percent", ", training", 1, policies...)...),
	}
}
