package results

func events() table {
	return table{
		name: "events", title: "Dilu's instances on 4,000 GPUs",
		text: "Event lists of Dilu's simulation (100, 400 and 1,600 instances; 40 GiB GPUs, four a node), most GPUs active at a time.\n" +
			"`exclusive`, `limit` and `request` are the published baselines, `complementary` is Dilu's Algorithm 1, corrected.\n" +
			"Nothing in these runs is random.",
		command: []string{"simulate", "events"},
		rows: []row{
			{name: "100", args: []string{"--file", "dataset:dilu/instances-100.txt"}},
			{name: "400", args: []string{"--file", "dataset:dilu/instances-400.txt"}},
			{name: "1600", args: []string{"--file", "dataset:dilu/instances-1600.txt"}},
		},
		columns: append(columnsOf("peak_gpus", "", 0, "exclusive", "limit", "request", "firstfit", "complementary", "gshare"),
			columnsOf("mean_gpus", ", mean", 1, "complementary", "gshare")...),
		targets: append([]target{{column: "gshare peak_gpus", other: "complementary peak_gpus"}}, eventPeaks()...),
		figures: []chartFile{{file: "events.svg", caption: "Active GPUs over time, 1,600 instances",
			args: []string{"simulate", "events", "--file", "dataset:dilu/instances-1600.txt", "--policy", "all"}}},
	}
}

// eventPeaks returns the targets by which Dilu's two simplest placement policies, exclusive and limit, reach their published peak numbers
// of GPUs within 1 %.
func eventPeaks() []target {
	var out []target
	for _, p := range []struct {
		row, policy string
		peak        float64
	}{
		{"100", "exclusive", 132}, {"400", "exclusive", 386}, {"1600", "exclusive", 1112},
		{"100", "limit", 117}, {"400", "limit", 348}, {"1600", "limit", 997},
	} {
		out = append(out,
			target{rows: []string{p.row}, column: p.policy + " peak_gpus", least: true, bound: p.peak * 0.99},
			target{rows: []string{p.row}, column: p.policy + " peak_gpus", bound: p.peak * 1.01})
	}
	return out
}
