package sharing

// The reasons of events on nodes.
const (
	// eventMalformed says that the node's annotation `gshare.dev/inventory` cannot be read, so that nothing is placed there.
	//
	//	kind: event
	//	object: node
	//	type: Warning
	//	written by: scheduler
	//	to do: install the scheduler and the agents of one version; `kubectl gshare version` lists them
	eventMalformed = "MalformedInventory"

	// eventRulesDiffer says that the node's agent has other settings than the scheduler profile assumes and would refuse pods, so that nothing is
	// placed there.
	//
	//	kind: event
	//	object: node
	//	type: Warning
	//	written by: scheduler
	//	to do: set `gammaPercent`, `tenancy` and `window` alike in both configurations: [operate.md](operate.md)
	eventRulesDiffer = "RulesDiffer"
)
