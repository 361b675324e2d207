package results

const (
	at100 = "allocation_percent_100"
	at130 = "allocation_percent_130"
)

var cluster = []string{"simulate", "cluster", "--nodes", "dataset:openb/openb_node_list_gpu_node.csv"}

func podList(name string) []string {
	return []string{"--pods", "dataset:openb/openb_pod_list_" + name + ".csv"}
}

// publishedAllocation holds the mean allocation, in percent, of FGD's ten published runs at 130 % load for each pod list of openb
// (fgd-expected-allocation.csv).
var publishedAllocation = map[string]float64{
	"default": 95.39, "cpu250": 93.41, "gpushare100": 86.90, "gpuspec10": 94.95, "gpuspec33": 94.55, "multigpu30": 96.46, "multigpu50": 97.18,
}

func openb() table {
	t := table{
		name: "openb", title: "Node choice on openb, side by side",
		text: "Method of the FGD study: the list is shuffled by the seed and topped up by random draws until 1.3 times the cluster's GPUs are\n" +
			"asked for; a pod that does not fit is dropped. Allocated GPUs in percent. `fgd` has the published tie rule (smallest of\n" +
			"randomly prefixed names, integer scores), `fgd-stock` that of stock kube-scheduler (random among equal scores). `gshare`\n" +
			"learns what is typical from the pods that run, as the scheduler does.",
		command: cluster,
		columns: append(columnsOf(at130, ", 130 %", 2, "random", "firstfit", "bestfit", "dotproduct", "clustering", "packing", "fgd-stock", "fgd", "gshare"),
			columnsOf(at100, ", 100 %", 2, "fgd", "gshare")...),
		targets: []target{
			{column: "gshare " + at130, least: true, strict: true, other: "fgd " + at130},
			{column: "gshare " + at100, least: true, strict: true, other: "fgd " + at100},
		},
		figures: []chartFile{{file: "openb.svg", caption: "Allocation over arrived load, default list",
			args: append(append(append([]string{}, cluster...), podList("default")...), "--policy", "all")}},
	}
	for _, list := range openbLists {
		t.rows = append(t.rows, row{name: list, args: podList(list)})
		t.targets = append(t.targets, targetsNear(list, "fgd "+at130, publishedAllocation[list])...)
	}
	return t
}

// targetsNear returns the two targets that require a cell to be within 0.2 of a published value.
func targetsNear(row, column string, value float64) []target {
	return []target{
		{rows: []string{row}, column: column, least: true, bound: value - 0.2},
		{rows: []string{row}, column: column, bound: value + 0.2},
	}
}

// openbBound defines the table that says how far the policies of openb are from what any policy could reach.
func openbBound() table {
	t := table{
		name: "bound", title: "How far from the optimum on openb",
		text: "The same pods as above. `clairvoyant` is an upper limit for a policy that knows all pods beforehand and may refuse any,\n" +
			"`accepting` for one that knows them too but refuses a pod only if no node has room for it (docs/packing.md). `packed` is a selection that was in\n" +
			"fact packed: no limit for clairvoyant policies can be lower; `accepted` is the same for those that accept what fits. The other columns say why GPUs are idle under `gshare`: what is left\n" +
			"of devices is too small for all that was refused, nothing refused accepts the model, or the node's CPU or memory does not\n" +
			"suffice. Percent of all GPUs.",
		command: []string{"simulate", "bound", "--nodes", "dataset:openb/openb_node_list_gpu_node.csv"},
		columns: append(columnsOf("allocation_percent", "", 2, clairvoyant, accepting, "packed", "accepted", "gshare", "fgd"),
			column{policy: "gshare", figure: "idle_fragment", head: "fragments", digits: 2},
			column{policy: "gshare", figure: "idle_model", head: "model", digits: 2},
			column{policy: "gshare", figure: "idle_cpu", head: "CPU", digits: 2},
			column{policy: "gshare", figure: "idle_memory", head: "memory", digits: 2}),
		targets: []target{
			{column: "packed allocation_percent", other: clairvoyant + " allocation_percent"},
			{column: "packed allocation_percent", least: true, other: clairvoyant + " allocation_percent", plus: -1},
			{column: "accepted allocation_percent", other: accepting + " allocation_percent"},
			{column: "gshare allocation_percent", other: accepting + " allocation_percent"},
			{column: "fgd allocation_percent", other: accepting + " allocation_percent"},
		},
		figures: []chartFile{{file: "bound.svg", caption: "Limits and allocation over arrived load, default list",
			args: []string{"simulate", "bound", "--policy", "clairvoyant,accepting,packed,gshare,fgd"}}},
	}
	for _, list := range openbLists {
		for _, load := range []struct{ name, value string }{{"100", "1"}, {"130", "1.3"}} {
			t.rows = append(t.rows, row{name: list + ", " + load.name + " %", args: append(podList(list), "--load", load.value)})
		}
	}
	return t
}

// openbTries defines the table of variants of gshare's node choice.
func openbTries() table {
	t := table{
		name: "tries", title: "What was tried to come closer to the optimum on openb",
		text: "Variants of `gshare`'s node choice that only the laboratory has, on the same pods, at 100 and 130 % load. `known`: what is typical is known\n" +
			"of the whole list from the start. `bygpu`: typical pods count with the GPUs that they request, not each the same. `worth`: what is left of a\n" +
			"device counts with the best combination of typical requests that it holds, at the prices of a linear program (in place of stranding).\n" +
			"`reserve`: unused devices cost more for parts, and unused nodes for pods that leave some of their devices. `coarse`: costs that differ by\n" +
			"less than 4 % of a GPU are ties. `together`: 64 pods wait at a time, and the largest is placed first. `ahead`: the four best nodes are\n" +
			"compared by what 24 pods drawn from the running ones cost afterwards (rollouts).",
		command: cluster,
	}
	policies := []string{"gshare", "known", "bygpu", "worth", "reserve", "coarse", "together", "ahead"}
	t.columns = append(columnsOf(at100, ", 100 %", 2, policies...), columnsOf(at130, ", 130 %", 2, policies...)...)
	for _, list := range openbLists {
		t.rows = append(t.rows, row{name: list, args: podList(list)})
	}
	return t
}

// moving defines the table that compares clusters in which pods remain after others have gone with the same pods packed anew.
func moving() table {
	const percent, perTenth = "percent_of_fresh", "evictions_per_tenth"
	t := table{
		name: "rebalance", title: "Moving pods after others have gone",
		text: "openb's pods come and go under `gshare` at 90 % load until each was replaced twice, and then end until a part of the load is\n" +
			"left. GPUs that hold a pod, in percent of those that hold one when the same pods are packed anew, the largest first and each on\n" +
			"the fullest GPU with room: as they are left (`churned`), after the moves of `gshare whatif --rebalance` (`rebalanced`), after the\n" +
			"same evictions when the scheduler chooses the places by itself (`followed`), and when it places all pods anew (`scheduled`). A\n" +
			"move is impossible if an account without the packer finds no room when its turn comes.",
		command: []string{"simulate", "rebalance", "--nodes", "dataset:openb/openb_node_list_gpu_node.csv"},
		columns: append(columnsOf(percent, "", 2, "churned", "rebalanced", "followed", "scheduled"),
			column{policy: "rebalanced", figure: "evictions", head: "evictions"},
			column{policy: "rebalanced", figure: perTenth, head: "for each tenth of a GPU", digits: 3},
			column{policy: "rebalanced", figure: "impossible", head: "impossible"},
			column{policy: "followed", figure: "lost", head: "lost by the scheduler"}),
		targets: []target{
			{column: "rebalanced " + percent, bound: 102},
			{column: "rebalanced " + perTenth, bound: 1},
			{column: "rebalanced impossible", bound: 0},
		},
		figures: []chartFile{{file: "rebalance.svg", caption: "GPUs in use after 60 % of the load is left, default list",
			args: []string{"simulate", "rebalance", "--nodes", "dataset:openb/openb_node_list_gpu_node.csv", "--policy", "all"}}},
	}
	for _, r := range []struct{ list, name, left string }{
		{"default", "40", "0.4"}, {"default", "60", "0.6"}, {"default", "80", "0.8"}, {"gpushare100", "60", "0.6"}, {"multigpu50", "60", "0.6"},
	} {
		t.rows = append(t.rows, row{name: r.list + ", " + r.name + " % left", args: append(podList(r.list), "--left", r.left)})
	}
	return t
}

// Limits of gshare-lab simulate bound.
const (
	clairvoyant = "clairvoyant"
	accepting   = "accepting"
)

var openbLists = []string{"default", "cpu250", "gpushare100", "gpuspec10", "gpuspec33", "multigpu30", "multigpu50"}

func orders() table {
	return table{
		name: "orders", title: "What the order of the nodes does",
		text: "The default list at 130 % load. Where a policy is indifferent the first node wins; `fgd-stock` draws among equals and\n" +
			"does not look at the order.",
		command: append(append([]string{}, cluster...), podList("default")...),
		rows:    rows("--order", "random", "file", "cpu-poor", "gpu-rich"),
		columns: columnsOf(at130, "", 2, "firstfit", "fgd", "fgd-stock", "gshare"),
	}
}

func fleet() table {
	return table{
		name: "fleet", title: "Decisions a second",
		text: "One thread, four copies of openb (4,852 nodes, 24,848 GPUs), to 130 % load.", command: append(append([]string{}, cluster...), podList("default")...),
		rows: rows("--replicate", "1", "4"),
		columns: []column{
			{policy: "gshare", figure: "decisions_per_second", head: "gshare", speed: true},
			{policy: "fgd", figure: "decisions_per_second", head: "fgd", speed: true},
		},
		targets: []target{{rows: []string{"4"}, column: "gshare decisions_per_second", least: true, bound: 50_000}},
	}
}

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

// eventPeaks returns the targets that require Dilu's two simplest placement policies, exclusive and limit, to reach their published peak numbers
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
