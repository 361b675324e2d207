package v1alpha1

// LabelPlanData is the label of ConfigMaps that InferencePlans may name: gshare-controller reads no others.
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
	// ConditionPlanned is True if the status has a plan for the present specification. Otherwise the reason says why not.
	//
	//	kind: condition
	//	object: InferencePlan
	//	written by: gshare-controller
	//	values: True, False
	ConditionPlanned = "Planned"

	ReasonPlanned     = "Planned"     // all functions with requests are in a group
	ReasonNotFeasible = "NotFeasible" // some function's objective cannot be kept by any planned mode: see status.unplanned
	ReasonRateUnknown = "RateUnknown" // rates are not known for long enough
	ReasonNoRequests  = "NoRequests"  // no function gets requests
	ReasonNoData      = "NoData"      // a ConfigMap or its key is not there
	ReasonInvalidData = "InvalidData" // profiles or prices are not valid
	ReasonNoFunction  = "NoFunction"  // a GPUFunction is not there

	// ConditionApplied is there in mode Apply. It is True if each group of the plan is served by the replicas of one of its functions. Otherwise the
	// reason says why not.
	//
	//	kind: condition
	//	object: InferencePlan
	//	written by: gshare-controller
	//	values: True, False
	ConditionApplied = "Applied"

	ReasonApplied    = "Applied"    // what the plan says is so
	ReasonApplying   = "Applying"   // some of it is not written yet, such as while a function that is to serve others is still served itself
	ReasonNotApplied = "NotApplied" // some group cannot be served by one function: see status.groups
	ReasonNotPlanned = "NotPlanned" // there is no plan yet: see the condition Planned

	// ConditionTight is True if the rate of a group is so near to what its planned replicas answer (`requestsPerSecond` of its function) that there will be
	// more replicas than planned, which the message counts. It is there while there is a plan.
	//
	//	kind: condition
	//	object: InferencePlan
	//	written by: gshare-controller
	//	values: True, False
	ConditionTight = "Tight"

	ReasonNearRate = "NearRate" // there will be more replicas than planned
	ReasonRoom     = "Room"     // there is room for what comes at random
)

// Reasons of the events of a GPUFunction that tell who serves its requests.
const (
	// EventServedBy says that the replicas of another function serve the requests of this one, by an InferencePlan in mode Apply.
	//
	//	kind: event
	//	object: GPUFunction
	//	type: Normal
	//	written by: gshare-controller
	//	to do: nothing; the InferencePlan in mode Recommend leaves each function its own replicas
	EventServedBy = "ServedBy"

	// EventServedByOwn says that the replicas of the function serve its requests again.
	//
	//	kind: event
	//	object: GPUFunction
	//	type: Normal
	//	written by: gshare-controller
	//	to do: nothing
	EventServedByOwn = "ServedByOwn"
)
