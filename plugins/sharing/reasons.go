package sharing

// eventMalformed says that the node's annotation `gshare.dev/inventory` cannot be read, so nothing is placed on the node.
//
//	kind: event
//	object: node
//	type: Warning
//	written by: scheduler
//	to do: install the same version of the scheduler and the agents; `kubectl gshare version` lists the versions
const eventMalformed = "MalformedInventory"
