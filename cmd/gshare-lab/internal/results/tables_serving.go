package results

import (
	"slices"

	"github.com/gshare-dev/gshare/lab/dataset"
)

const worlds = "cmd/gshare-lab/internal/simulate/testdata/serving/"

// servingColumns returns a column for each pair of a figure and a policy. The columns of one figure are side by side.
func servingColumns(policies []string, figures ...column) []column {
	var out []column
	for _, f := range figures {
		for _, p := range policies {
			c := f
			c.policy, c.head = p, p+f.head
			out = append(out, c)
		}
	}
	return out
}

func scaling() table {
	t := table{
		name: "serving-scaling", title: "Serving: when to scale, and with what",
		text: "Two functions whose instances share eight GPUs (Dilu's profiles of RoBERTa-large and ResNet152 on an A100; SLO 120 and 80\n" +
			"ms; 5 s to load from storage, assumed), at 20 and 40 requests for each of the trace, the second a third of the trace later. `eager`\n" +
			"scales by FaST-GShare's Algorithm 1 over shares of the SMs alone: the published profiles have no shares of time, and one latency for\n" +
			"mean and percentiles, so whether a configuration keeps the SLO is asked of its mean. `keepalive` is as INFless, `lazy` is Dilu. All\n" +
			"batch alike: as large as runs in half the SLO. Requests that missed their SLO, percent; cold starts; GPU-seconds that were reserved, or\n" +
			"used beyond that.",
		command: []string{"simulate", "serving", "--profiles", worlds + "scaling.yaml"},
		needs:   []string{dataset.Prefix + "dilu/bs_sm_roberta_large.csv", dataset.Prefix + "dilu/bs_sm_resnet152.csv"},
		rows: []row{
			{name: "Dilu, bursty", args: []string{"--trace", "dataset:dilu/bursty.txt"}},
			{name: "the same on one GPU", args: []string{"--trace", "dataset:dilu/bursty.txt", "--gpus", "1"}},
			{name: "2.5 times it on two GPUs", args: []string{"--trace", "dataset:dilu/bursty.txt", "--gpus", "2", "--scale", "2.5"}},
			{name: "Azure LLM, 20 min", args: []string{"--trace", "dataset:serving/AzureLLMInferenceTrace_conv.csv", "--duration", "20m"}},
			{name: "Azure 2021, 200 requests", args: []string{"--trace", "dataset:serving/Azure2021_200.csv", "--step", "60s"}},
			{name: "Azure 2021, 30 requests", args: []string{"--trace", "dataset:serving/Azure2021_30.csv", "--step", "60s"}},
			{name: "Azure 2019, 2 h", args: []string{"--trace", "dataset:serving/invocations.csv", "--duration", "2h"}},
		},
		columns: servingColumns([]string{"eager", "keepalive", "lazy", "gshare"},
			column{figure: "slo_violation_percent", head: ", % missed", digits: 2},
			column{figure: "cold_starts", head: ", cold starts", digits: 1}, column{figure: "gpu_seconds", head: ", GPU-s"}),
		figures: []chartFile{{file: "serving-scaling.svg", caption: "Violations on Dilu's bursty trace", args: []string{
			"simulate", "serving", "--profiles", worlds + "scaling.yaml", "--trace", "dataset:dilu/bursty.txt",
			"--policy", "eager,keepalive,lazy,gshare"}}},
	}
	// In the last two rows each function has one instance from its first request on. Every policy must load it once, and the papers' policies
	// reserve its share for as long as it runs: they can only tie.
	var first, last []string
	for i, r := range t.rows {
		if i < len(t.rows)-2 {
			first = append(first, r.name)
		} else {
			last = append(last, r.name)
		}
	}
	t.targets = append(t.targets, target{rows: last, column: "gshare gpu_seconds", other: "lazy gpu_seconds", times: 0.5})
	for i, functions := range []float64{2, 1} { // number of functions with requests, so that no policy can have fewer cold starts
		t.targets = append(t.targets, target{rows: last[i : i+1], column: "gshare cold_starts", bound: functions})
	}
	for _, figure := range []string{" slo_violation_percent", " cold_starts", " gpu_seconds"} {
		for _, other := range []string{"eager", "keepalive"} {
			t.targets = append(t.targets,
				target{rows: first, column: "lazy" + figure, other: other + figure, strict: true},
				target{rows: last, column: "lazy" + figure, other: other + figure, times: 1.01})
		}
		for _, other := range []string{"eager", "keepalive", "lazy"} {
			t.targets = append(t.targets, target{column: "gshare" + figure, other: other + figure})
		}
	}
	return t
}

func migServing() table {
	t := table{
		name: "serving-mig", title: "Serving: pipelines over MIG fragments",
		text: "FluidFaaS's applications on eight A100-80GB, in its three geometries (Table 7) and sizes (all small, medium, large). Components are\n" +
			"models that ParvaGPU measured on MIG instances, with memory such that they need the slices of Table 5; the Azure LLM trace, 8\n" +
			"requests for each of its own; SLO 1.5 times the time on the smallest slices. `monolithic` (as ESG) keeps slices for ten minutes.\n" +
			"All serve what can still be in time before what cannot. Requests that missed their SLO, percent; answered a second; GPU-seconds\n" +
			"in which any slice worked; MIG-seconds.",
		command: []string{"simulate", "serving", "--trace", "dataset:serving/AzureLLMInferenceTrace_conv.csv", "--scale", "8"},
		columns: servingColumns([]string{"monolithic", "pipelined", "gshare"},
			column{figure: "slo_violation_percent", head: ", % missed", digits: 2}, column{figure: "completed_per_second", head: ", answers/s", digits: 1},
			column{figure: "gpu_seconds", head: ", GPU-s"}, column{figure: "mig_seconds", head: ", MIG-s"}),
		figures: []chartFile{{file: "serving-mig.svg", caption: "Violations, heavy, geometry P2", args: []string{
			"simulate", "serving", "--trace", "dataset:serving/AzureLLMInferenceTrace_conv.csv", "--scale", "8",
			"--profiles", worlds + "heavy.yaml", "--geometry", "p2", "--policy", "monolithic,pipelined,gshare"}}},
	}
	var light, others []string
	for _, size := range []string{"light", "medium", "heavy"} {
		for _, geometry := range []string{"p1", "p2", "hybrid"} {
			name := size + ", " + geometry
			t.rows = append(t.rows, row{name: name, args: []string{"--profiles", worlds + size + ".yaml", "--geometry", geometry}})
			if size == "light" {
				light = append(light, name)
			} else {
				others = append(others, name)
			}
		}
	}
	missed, answered, gpu := " slo_violation_percent", " completed_per_second", " gpu_seconds"
	t.targets = []target{
		{rows: light, column: "pipelined" + missed, other: "monolithic" + missed, plus: 1},
		{rows: light, column: "pipelined" + missed, other: "monolithic" + missed, plus: -1, least: true},
		{rows: light, column: "pipelined" + answered, other: "monolithic" + answered, times: 0.99, least: true},
		{rows: light, column: "pipelined" + answered, other: "monolithic" + answered, times: 1.01},
		{rows: others, column: "pipelined" + missed, other: "monolithic" + missed, plus: -10},
		{rows: slices.Concat(light, others), column: "gshare" + missed, other: "pipelined" + missed},
		{rows: slices.Concat(light, others), column: "gshare" + gpu, other: "pipelined" + gpu},
	}
	return t
}

func callServing() table {
	t := table{
		name: "serving-calls", title: "Serving: plans with several SLOs",
		text: "Seven applications of two models, SLO 0.25 to 8 s, served by a provider's functions as each planner says, on Dilu's bursty trace. The\n" +
			"models and prices are made up (those of `gshare plan`'s example): the table compares planners and says nothing of a real model or bill.\n" +
			"Execution times are random, with the profile's mean and p99, and are billed as they are. The plan is for the mean rates, the load is\n" +
			"not steady. `gshare` takes the cheapest plan that needs no more GPU time than that of the papers which needs the least. Requests that\n" +
			"missed their SLO, percent; cost in USD; GPU-seconds of whole cards.",
		command: []string{"simulate", "serving", "--profiles", worlds + "calls.yaml", "--trace", "dataset:dilu/bursty.txt"},
		rows:    rows("--scale", "0.2", "1", "5", "20"),
		columns: servingColumns([]string{"harmonybatch", "pamba", "gshare"},
			column{figure: "slo_violation_percent", head: ", % missed", digits: 2}, column{figure: "cost", head: ", cost", digits: 3},
			column{figure: "gpu_seconds", head: ", GPU-s"}),
	}
	for _, p := range []string{"harmonybatch", "pamba"} {
		t.targets = append(t.targets,
			target{column: "gshare slo_violation_percent", other: p + " slo_violation_percent"},
			target{column: "gshare cost", other: p + " cost", times: 1.01},
			target{column: "gshare gpu_seconds", other: p + " gpu_seconds"})
	}
	return t
}
