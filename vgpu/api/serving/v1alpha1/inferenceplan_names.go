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
)
