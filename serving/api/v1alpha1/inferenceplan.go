package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// InferencePlan is the cheapest way to serve several functions of one model within their objectives. gshare plans again when their load changes.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=inferenceplans,singular=inferenceplan,shortName=gplan,categories=gshare
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=`.spec.mode`
// +kubebuilder:printcolumn:name="Groups",type=integer,JSONPath=`.status.groupCount`
// +kubebuilder:printcolumn:name="Now/h",type=string,JSONPath=`.status.cost.now`
// +kubebuilder:printcolumn:name="Planned/h",type=string,JSONPath=`.status.cost.planned`
// +kubebuilder:printcolumn:name="Saving",type=string,JSONPath=`.status.cost.saving`
// +kubebuilder:printcolumn:name="Misses",type=string,JSONPath=`.status.misses`
// +kubebuilder:printcolumn:name="Planned",type=string,JSONPath=`.status.conditions[?(@.type=="Planned")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Planned")].reason`
// +kubebuilder:printcolumn:name="Applied",type=string,JSONPath=`.status.conditions[?(@.type=="Applied")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type InferencePlan struct {
	metav1.TypeMeta `json:",inline"`

	// metadata names the plan.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec is what to plan.
	// +required
	Spec InferencePlanSpec `json:"spec"`

	// status is the plan.
	// +optional
	Status InferencePlanStatus `json:"status,omitzero"`
}

// InferencePlanList is a list of InferencePlans.
//
// +kubebuilder:object:root=true
type InferencePlanList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []InferencePlan `json:"items"`
}

// InferencePlanSpec is what to plan.
type InferencePlanSpec struct {
	// model is the model that all functions serve: a name in the profiles.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Model string `json:"model"`

	// functions are GPUFunctions in the plan's namespace that all serve the model, and so may share replicas.
	// +required
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	Functions []PlannedFunction `json:"functions"`

	// modes are the ways to run the model that may be planned. Share: on shares of a GPU. CPU: on vCPUs. GPU: on GPU memory sold by the GB and the call.
	// Partitioned: in stages on vCPUs.
	// +optional
	// +listType=set
	// +kubebuilder:default={Share}
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=4
	Modes []ExecutionMode `json:"modes,omitempty"`

	// mode says what happens with the plan. Recommend: it is written to status, and nothing else changes. Apply: one function of each group serves the
	// requests of the others, which have no replicas.
	// +optional
	// +kubebuilder:default=Recommend
	Mode PlanMode `json:"mode,omitempty"`

	// profiles is the data with the latencies of the model, as read by gshare plan --profiles. If it is not set or does not name the model, the
	// measurements of a GPUProfile of one of the functions count.
	// +optional
	Profiles DataReference `json:"profiles,omitzero"`

	// prices is the data with the prices, as read by gshare plan --prices.
	// +required
	Prices DataReference `json:"prices"`

	// replan says when to plan again.
	// +optional
	// +kubebuilder:default={}
	Replan Replan `json:"replan,omitzero"`
}

// PlannedFunction is a GPUFunction of a plan.
type PlannedFunction struct {
	// name is the metadata.name of the GPUFunction.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=50
	Name string `json:"name"`

	// requestsPerSecond is the rate to plan for, such as an expected one. Defaults to the rate that the gateways count.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self >= 0.001",message="want at least 0.001"
	// +kubebuilder:validation:Maximum=1000000
	RequestsPerSecond float64 `json:"requestsPerSecond,omitempty"` // a rule, not a minimum: the API server drops the fraction of a minimum and takes 0
}

// ExecutionMode is a way to run a model.
//
// +kubebuilder:validation:Enum=Share;CPU;GPU;Partitioned
type ExecutionMode string

// The ways to run a model, as planning.Mode.
const (
	ModeShare       ExecutionMode = "Share"
	ModeCPU         ExecutionMode = "CPU"
	ModeGPU         ExecutionMode = "GPU"
	ModePartitioned ExecutionMode = "Partitioned"
)

// PlanMode says what happens with a plan.
//
// +kubebuilder:validation:Enum=Recommend;Apply
type PlanMode string

// Recommend only writes the plan to its status. Apply also lets one function of each group serve the others: it sets their status.servedBy, and changes
// no spec.
const (
	Recommend PlanMode = "Recommend"
	Apply     PlanMode = "Apply"
)

// DataReference names data in a ConfigMap in the plan's namespace, which must have the label serving.gshare.dev/plan-data.
type DataReference struct {
	// configMap is the metadata.name of the ConfigMap. It must have the label serving.gshare.dev/plan-data, with any value.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	ConfigMap string `json:"configMap"`

	// key is the key of the data in the ConfigMap. May be left out if the ConfigMap has only one key.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Key string `json:"key,omitempty"`
}

// Replan says when to plan again. A change of the spec, an objective, a profile or the prices is planned at once. The groups change only if that
// saves enough, or if they no longer keep the objectives.
type Replan struct {
	// driftPercent is by how much, in percent, the rate of a function must differ from the planned one.
	// +optional
	// +kubebuilder:default=20
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	DriftPercent *int32 `json:"driftPercent,omitempty"`

	// after is how long the rate must differ: 1s to 24h. Shorter peaks do not count. The rate is a mean over this time as well, which must differ for
	// twice as long.
	// +optional
	// +kubebuilder:default="60s"
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+([.][0-9]*)?(ns|us|µs|ms|s|m|h))+$') && duration(self) >= duration('1s') && duration(self) <= duration('24h')",message="want a duration of 1s to 24h, such as 60s"
	After Duration `json:"after,omitempty"`

	// minSavingPercent is how much cheaper, in percent, other groups or sizes must be to replace those of the plan.
	// +optional
	// +kubebuilder:default=5
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	MinSavingPercent *int32 `json:"minSavingPercent,omitempty"`
}

// InferencePlanStatus is a plan.
type InferencePlanStatus struct {
	// observedGeneration is the metadata.generation of the spec that the rest of the status describes.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// conditions are the current conditions. Planned is True if each function with requests is in a group. Applied, in mode Apply, is True if one
	// function of each group serves the others. Tight is True if there will be more replicas than planned.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// plannedAt is when the groups were last planned.
	// +optional
	PlannedAt metav1.Time `json:"plannedAt,omitzero"`

	// because is why they were planned then, such as: rate of checkout went from 2 to 3.1 a second.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Because string `json:"because,omitempty"`

	// dataHash identifies the profiles and prices that the groups were planned from.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	DataHash string `json:"dataHash,omitempty"`

	// groups are the functions that one deployment would serve together.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Groups []PlanGroup `json:"groups,omitempty"`

	// groupCount is the number of groups.
	// +optional
	// +kubebuilder:validation:Minimum=0
	GroupCount int32 `json:"groupCount,omitempty"`

	// unplanned are the functions that are in no group.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	Unplanned []Unplanned `json:"unplanned,omitempty"`

	// notes are what else a reader of the plan should know, such as a partition of the model that is worth measuring.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=1024
	Notes []string `json:"notes,omitempty"`

	// cost is what the functions cost now, and what they would cost with the plan.
	// +optional
	Cost PlanCost `json:"cost,omitzero"`

	// misses is the percentage of requests that the plan is predicted to answer later than their objective, such as 0.4%.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	Misses string `json:"misses,omitempty"`
}

// PlanGroup is a set of functions that one deployment would serve together, and how.
type PlanGroup struct {
	// functions are the functions of the group, the one with the tightest objective first.
	// +required
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	Functions []GroupMember `json:"functions"`

	// host is the function of the group that is to serve the others, in mode Apply. Not set if none can, or if the group has only one function.
	// +optional
	// +kubebuilder:validation:MaxLength=50
	Host string `json:"host,omitempty"`

	// applied is how the host serves the group and what that saves, or why no function can.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Applied string `json:"applied,omitempty"`

	// mode is how the model runs.
	// +required
	Mode ExecutionMode `json:"mode"`

	// on is the group's resources as text, such as 2 x 24% SM x 50% time, 1980 MiB.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	On string `json:"on,omitempty"`

	// batch is the maximum number of requests that run together.
	// +required
	// +kubebuilder:validation:Minimum=1
	Batch int32 `json:"batch"`

	// replicas is the number of replicas in mode Share. In other modes, functions are paid per call.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Replicas int32 `json:"replicas,omitempty"`

	// share is the share of each replica in mode Share.
	// +optional
	Share *Share `json:"share,omitempty"`

	// milliCPU is the size of the function in modes CPU and GPU, in thousandths of a vCPU.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MilliCPU int64 `json:"milliCPU,omitempty"`

	// memory is the memory of the function in modes CPU and GPU, not counting GPU memory.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	Memory Quantity `json:"memory,omitempty"`

	// gpuGB is the GPU memory in mode GPU, in GB.
	// +optional
	// +kubebuilder:validation:Minimum=0
	GPUGB int32 `json:"gpuGB,omitempty"`

	// stages are the workers of each stage in mode Partitioned.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Stages []PlanStage `json:"stages,omitempty"`

	// p99 is the latency within which 99 % of the batches are predicted to run.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	P99 Duration `json:"p99,omitempty"`

	// cost is the cost per hour.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	Cost string `json:"cost,omitempty"`

	// misses is the percentage of requests that are predicted to be answered later than their objective, such as 0.4%.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	Misses string `json:"misses,omitempty"`
}

// GroupMember is a function of a group.
type GroupMember struct {
	// name is the metadata.name of the GPUFunction.
	// +required
	// +kubebuilder:validation:MaxLength=50
	Name string `json:"name"`

	// slo is the objective that the plan was made for.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	SLO Duration `json:"slo,omitempty"`

	// requestsPerSecond is the rate that the plan was made for.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	RequestsPerSecond string `json:"requestsPerSecond,omitempty"`

	// timeout is how long requests of this function may wait for others of the group before their batch starts.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	Timeout Duration `json:"timeout,omitempty"`
}

// PlanStage is one stage of a model that is split into several.
type PlanStage struct {
	// milliCPUs are the sizes of its workers in thousandths of a vCPU.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	MilliCPUs []int64 `json:"milliCPUs"`
}

// Unplanned is a function that is in no group, with the reason.
type Unplanned struct {
	// name is the metadata.name of the GPUFunction.
	// +required
	// +kubebuilder:validation:MaxLength=50
	Name string `json:"name"`

	// slo is the objective that the plan was made for.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	SLO Duration `json:"slo,omitempty"`

	// requestsPerSecond is the rate that the plan was made for.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	RequestsPerSecond string `json:"requestsPerSecond,omitempty"`

	// reason is why the function is in no group, as text.
	// +required
	// +kubebuilder:validation:MaxLength=1024
	Reason string `json:"reason"`
}

// PlanCost is what functions cost per hour. The numbers are strings because they are rounded for readers.
type PlanCost struct {
	// currency is the currency of the price list, such as USD.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	Currency string `json:"currency,omitempty"`

	// now is the cost of the shares of the functions' current replicas, by the price list, such as 1.8.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	Now string `json:"now,omitempty"`

	// planned is the cost of the plan.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	Planned string `json:"planned,omitempty"`

	// separate is the cost of the cheapest plan in which each function is served alone.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	Separate string `json:"separate,omitempty"`

	// saving is the percentage of now that the plan would save, such as 42%. It is negative if the plan costs more.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	Saving string `json:"saving,omitempty"`
}
