package sharing

// The reasons of events on nodes.
const (
	// eventMalformed says that the node's annotation `gshare.dev/inventory` cannot be read, so nothing is placed on the node.
	//
	//	kind: event
	//	object: node
	//	type: Warning
	//	written by: scheduler
	//	to do: install the same version of the scheduler and the agents; `kubectl gshare version` lists the versions
	eventMalformed = "MalformedInventory"

	// eventRulesDiffer says that the node's agent has settings other than those that the scheduler profile assumes, and would refuse pods, so nothing is
	// placed on the node.
	//
	//	kind: event
	//	object: node
	//	type: Warning
	//	written by: scheduler
	//	to do: set `gammaPercent`, `tenancy` and `window` to the same values in both configurations: [operate.md](operate.md)
	eventRulesDiffer = "RulesDiffer"
)
