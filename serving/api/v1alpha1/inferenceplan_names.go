package v1alpha1

// LabelPlanData is the label of ConfigMaps that InferencePlans may name. gshare-controller reads no others.
//
//	kind: label
//	object: ConfigMap
//	written by: user
//	values: any, also an empty one
//	default: none, the ConfigMap is not read
//	example: serving.gshare.dev/plan-data: ""
const LabelPlanData = "serving.gshare.dev/plan-data"

// Conditions of an InferencePlan and their reasons.
const (
	// ConditionPlanned is True if the status has a plan for the current spec. Otherwise the reason says why not.
	//
	//	kind: condition
	//	object: InferencePlan
	//	written by: gshare-controller
	//	values: True, False
	ConditionPlanned = "Planned"

	ReasonPlanned     = "Planned"     // all functions with requests are in a group
	ReasonNotFeasible = "NotFeasible" // no planned mode keeps the objective of some function: see status.unplanned
	ReasonRateUnknown = "RateUnknown" // the rates have not been known for long enough
	ReasonNoRequests  = "NoRequests"  // no function gets requests
	ReasonNoData      = "NoData"      // a ConfigMap or its key does not exist
	ReasonInvalidData = "InvalidData" // profiles or prices are not valid
	ReasonNoFunction  = "NoFunction"  // a GPUFunction does not exist

	// ConditionApplied is present only in mode Apply. It is True if each group of the plan is served by the replicas of one of its functions. Otherwise
	// the reason says why not.
	//
	//	kind: condition
	//	object: InferencePlan
	//	written by: gshare-controller
	//	values: True, False
	ConditionApplied = "Applied"

	ReasonApplied    = "Applied"    // the plan is in effect
	ReasonApplying   = "Applying"   // some of it is not written yet, for example while a function that is to serve others is still served by another
	ReasonNotApplied = "NotApplied" // some group cannot be served by one function: see status.groups
	ReasonNotPlanned = "NotPlanned" // there is no plan yet: see the condition Planned

	// ConditionTight is True if the rate of a group is so close to what its planned replicas can serve (`requestsPerSecond` of its function) that there
	// will be more replicas than planned. The message says how many. The condition is present while there is a plan.
	//
	//	kind: condition
	//	object: InferencePlan
	//	written by: gshare-controller
	//	values: True, False
	ConditionTight = "Tight"

	ReasonNearRate = "NearRate" // there will be more replicas than planned
	ReasonRoom     = "Room"     // there is room for random variation
)

// Reasons of the events of a GPUFunction that say who serves its requests.
const (
	// EventServedBy says that the replicas of another function now serve the requests of this one, because of an InferencePlan in mode Apply.
	//
	//	kind: event
	//	object: GPUFunction
	//	type: Normal
	//	written by: gshare-controller
	//	to do: nothing; with the InferencePlan in mode Recommend, each function keeps its own replicas
	EventServedBy = "ServedBy"

	// EventServedByOwn says that the function's own replicas serve its requests again.
	//
	//	kind: event
	//	object: GPUFunction
	//	type: Normal
	//	written by: gshare-controller
	//	to do: nothing
	EventServedByOwn = "ServedByOwn"
)
