package results

var families = []string{"papermix", "fastgrid", "smallgrid", "uniform", "overhalf"}

// familyRows returns a row for each generated family of pod shapes, and one for shapes drawn from the fractional pods of the openb trace.
func familyRows() []row {
	return append(rows("--family", families...),
		row{name: "openb", args: []string{"--family", "openb", "--openb-pods", "dataset:openb/openb_pod_list_default.csv"}})
}

func shapes(reserve string) table {
	t := table{
		name: "shapes-" + reserve, title: "GPUs for 1,000 pods, over the lower bound; reserve " + reserve,
		text: "The bound is the configuration LP over all pods at once, with the same reserve for every policy. `mra` is FaST-GShare's\n" +
			"maximal rectangles, corrected, but never packed again to fit a pod; `mra-repack` packs them again before it takes an empty GPU\n" +
			"(F27 of `docs/glossary.md`). Both leave the reserve free by rectangles that are wider by as much. `best-area` is the profile\n" +
			"`gshare-rectangle`: rectangles computed anew from the set of pods, as wide as the quotas, if they have a slot table as well.\n" +
			"`slot` is the exact slot model; `slot-best-fit` the same with plain best fit by area.",
		command: []string{"simulate", "shapes", "--pods", "1000", "--reserve", reserve},
		rows:    familyRows(),
		columns: append(columnsOf("ratio", "", 3, "mra", "mra-repack", "best-area", "maxrects-bssf", "replan", "slot-best-fit", "slot"),
			column{policy: "slot", figure: "ns_per_pod", head: "slot, ns a pod", speed: true}),
	}
	if reserve != "0" {
		t.targets = []target{{rows: []string{"papermix", "overhalf"}, column: "slot ratio", strict: true, other: "mra ratio"}}
		return t
	}
	for family, bound := range map[string]float64{"papermix": 1.01, "smallgrid": 1.01, "uniform": 1.06, "overhalf": 1.03, "fastgrid": 1.036} {
		t.targets = append(t.targets, target{rows: []string{family}, column: "slot ratio", bound: bound})
	}
	t.targets = append(t.targets,
		target{rows: []string{"papermix"}, column: "mra ratio", least: true, bound: 1.089 * 0.99},
		target{rows: []string{"papermix"}, column: "mra ratio", bound: 1.089 * 1.01},
		target{rows: []string{"papermix"}, column: "slot ns_per_pod", bound: 15_000})
	return t
}

func churn() table {
	return table{
		name: "churn", title: "Density while pods come and go",
		text: "30 GPUs, Poisson arrivals that offer 1.1 of their SM-time, exponential lifetimes, 5,000 arrivals of which the first\n" +
			"third is not counted. SM-time in use, percent. `mra` keeps the rectangles of pods that left, `mra-repack` too, but packs a GPU again\n" +
			"where that makes room; `best-area`, the profile `gshare-rectangle`, keeps none (ADR 0020). `maxrects-bssf` keeps the places of\n" +
			"pods, and joins what is free.",
		command: []string{"simulate", "shapes", "--churn"},
		rows:    familyRows(),
		columns: columnsOf("density_percent", "", 1, "mra", "mra-repack", "best-area", "maxrects-bssf", "slot-best-fit", "slot"),
		targets: []target{
			{rows: []string{"papermix"}, column: "slot density_percent", least: true, bound: 90},
			{rows: []string{"overhalf"}, column: "slot density_percent", least: true, bound: 94},
			{column: "best-area density_percent", least: true, other: "mra-repack density_percent"},
			{column: "mra-repack density_percent", least: true, strict: true, other: "mra density_percent"},
		},
		figures: []chartFile{{file: "churn.svg", caption: "Density under churn, papermix",
			args: []string{"simulate", "shapes", "--churn", "--family", "papermix", "--policy", "all", "--runs", "3"}}},
	}
}

func mig() table {
	t := table{
		name: "mig", title: "MIG slices created on demand",
		text: "60 A100-80GB, Poisson arrivals, exponential lifetimes, no running instance is ever disturbed. Accepted compute slices,\n" +
			"percent of those asked for.",
		command: []string{"simulate", "mig"},
		columns: columnsOf("accepted_percent", "", 1, "static", "firstfit", "bestfit", "laststart", "remaining", "gradient"),
		targets: []target{{rows: []string{"uniform, load 1.1"}, column: "gradient accepted_percent", least: true, bound: 81}},
		figures: []chartFile{{file: "mig.svg", caption: "Accepted compute slices over load, uniform mix",
			args: []string{"simulate", "mig", "--mix", "uniform", "--policy", "all"}}},
	}
	for _, mix := range []string{"uniform", "small", "mid"} {
		for _, load := range []string{"0.9", "1.1"} {
			t.rows = append(t.rows, row{name: mix + ", load " + load, args: []string{"--mix", mix, "--load", load}})
		}
	}
	return t
}

func delivery() table {
	t := table{
		name: "delivery", title: "Does every pod get what it was admitted for?",
		text: "100 GPUs filled by each admission rule, every pod busy all the time, turns of 5 ms, 1 ms lost whenever a pod starts. GPUs\n" +
			"on which every pod gets 99 % of its quota in each second, percent. `table` executes the slot table, `hol` is the FaST\n" +
			"paper's order (stop at the first pod that does not fit), `skip` that of its code, `fast` the corrected one.",
		command: []string{"simulate", "delivery", "--gpus", "100", "--turn", "5ms", "--switch-loss", "1ms"},
		columns: append(columnsOf("gpus_all_served_percent", "", 1, "hol", "skip", "fast", "table"),
			column{policy: "table", figure: "worst_share", head: "table, worst share", digits: 3},
			column{policy: "table", figure: "longest_gap_ms", head: "table, longest gap ms", digits: 0}),
		figures: []chartFile{{file: "delivery.svg", caption: "Share of the worst pod on each GPU, papermix",
			args: []string{"simulate", "delivery", "--family", "papermix", "--policy", "all"}}},
	}
	for _, family := range families {
		for _, admission := range []string{"mra", "slot"} {
			name := family + ", " + admission
			t.rows = append(t.rows, row{name: name, args: []string{"--family", family, "--admission", admission}})
			if admission == "slot" {
				t.targets = append(t.targets, target{rows: []string{name}, column: "table gpus_all_served_percent", least: true, bound: 100})
			}
		}
	}
	return t
}
