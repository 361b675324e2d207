package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// InferencePlan is the cheapest way to serve some functions of one model within their objectives, found again when their load changes.
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

// InferencePlanList is a list of plans.
//
// +kubebuilder:object:root=true
type InferencePlanList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []InferencePlan `json:"items"`
}

// InferencePlanSpec is what to plan.
type InferencePlanSpec struct {
	// model is that of all functions: a name in the profiles.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Model string `json:"model"`

	// functions are GPUFunctions of the plan's namespace which all serve the model, and so may share replicas.
	// +required
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	Functions []PlannedFunction `json:"functions"`

	// modes are the ways to run the model that may be planned. Share: on shares of a GPU. CPU: on vCPUs. GPU: on memory of a GPU that is sold
	// by the GB and the call. Partitioned: in stages on vCPUs.
	// +optional
	// +listType=set
	// +kubebuilder:default={Share}
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=4
	Modes []ExecutionMode `json:"modes,omitempty"`

	// mode says what becomes of the plan. Recommend: it is in status, and nothing else changes. Apply: one function of each group serves the
	// requests of the others, which have no replicas.
	// +optional
	// +kubebuilder:default=Recommend
	Mode PlanMode `json:"mode,omitempty"`

	// profiles is the data with the latencies of the model, as gshare plan --profiles reads it. Of a model that it does not name, and without it, what a
	// GPUProfile of one of the functions has measured counts.
	// +optional
	Profiles DataReference `json:"profiles,omitzero"`

	// prices is the data with the prices, as gshare plan --prices reads it.
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

	// requestsPerSecond is the rate to plan for, such as one that is expected. Without it, it is the one that the gateways count.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self >= 0.001",message="want at least 0.001"
	// +kubebuilder:validation:Maximum=1000000
	RequestsPerSecond float64 `json:"requestsPerSecond,omitempty"` // a rule and no minimum, of which the API server drops the fraction for 0
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

// PlanMode says what becomes of a plan.
//
// +kubebuilder:validation:Enum=Recommend;Apply
type PlanMode string

// Recommend leaves a plan in its status. Apply also lets one function of each group serve the others: it sets their status.servedBy, and changes no
// specification.
const (
	Recommend PlanMode = "Recommend"
	Apply     PlanMode = "Apply"
)

// DataReference names data in a ConfigMap of the plan's namespace, which must have the label serving.gshare.dev/plan-data.
type DataReference struct {
	// configMap is the metadata.name of the ConfigMap. It must have the label serving.gshare.dev/plan-data, whose value does not matter.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	ConfigMap string `json:"configMap"`

	// key is that of the data in the ConfigMap, whose only one it is if key is not set.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Key string `json:"key,omitempty"`
}

// Replan says when to plan again. A changed specification, objective, profile or price list is planned at once; the groups change only if that
// saves enough, or they no longer keep the objectives.
type Replan struct {
	// driftPercent is by how much, in percent, a function's rate must differ from the one that was planned for.
	// +optional
	// +kubebuilder:default=20
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	DriftPercent *int32 `json:"driftPercent,omitempty"`

	// after is for how long it must do so: 1s to 24h. Shorter peaks do not count. The rate is a mean over it, too, which must differ for twice as
	// long.
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
	// observedGeneration is the metadata.generation of the specification that the rest of the status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// conditions are what holds of the plan now. Planned is True if each function with requests is in a group. Applied, in mode Apply, is True if
	// one function of each group serves the others. Tight is True if there will be more replicas than planned.
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

	// dataHash identifies the profiles and prices of which the groups were planned.
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

	// cost is what the functions cost now, and would cost by the plan.
	// +optional
	Cost PlanCost `json:"cost,omitzero"`

	// misses is the part of the requests that the plan is predicted to answer after their objective, such as 0.4%.
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

	// host is the function of the group that is to serve the others, in mode Apply. It is not set if none can, and for a function by itself.
	// +optional
	// +kubebuilder:validation:MaxLength=50
	Host string `json:"host,omitempty"`

	// applied is how the host serves the group, and what that saves, or why no function does.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Applied string `json:"applied,omitempty"`

	// mode is how the model runs.
	// +required
	Mode ExecutionMode `json:"mode"`

	// on is its resources as text, such as 2 x 24% SM x 50% time, 1980 MiB.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	On string `json:"on,omitempty"`

	// batch is the greatest number of requests that run together.
	// +required
	// +kubebuilder:validation:Minimum=1
	Batch int32 `json:"batch"`

	// replicas is the number of replicas in mode Share. Functions of other modes are paid per call.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Replicas int32 `json:"replicas,omitempty"`

	// share is that of each replica in mode Share.
	// +optional
	Share *Share `json:"share,omitempty"`

	// milliCPU is the size of the function in modes CPU and GPU, in thousandths of a vCPU.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MilliCPU int64 `json:"milliCPU,omitempty"`

	// memory is that of the function in modes CPU and GPU, outside of GPUs.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	Memory Quantity `json:"memory,omitempty"`

	// gpuGB is the memory of a GPU in mode GPU.
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

	// cost is that of an hour.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	Cost string `json:"cost,omitempty"`

	// misses is the part of the requests that are predicted to be answered after their objective, such as 0.4%.
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

	// slo is the objective that was planned for.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	SLO Duration `json:"slo,omitempty"`

	// requestsPerSecond is the rate that was planned for.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	RequestsPerSecond string `json:"requestsPerSecond,omitempty"`

	// timeout is how long its requests may wait for others of the group before their batch starts.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	Timeout Duration `json:"timeout,omitempty"`
}

// PlanStage is a stage of a model that is cut into some.
type PlanStage struct {
	// milliCPUs are the sizes of its workers in thousandths of a vCPU.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	MilliCPUs []int64 `json:"milliCPUs"`
}

// Unplanned is a function that is in no group, and why.
type Unplanned struct {
	// name is the metadata.name of the GPUFunction.
	// +required
	// +kubebuilder:validation:MaxLength=50
	Name string `json:"name"`

	// slo is the objective that was planned for.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	SLO Duration `json:"slo,omitempty"`

	// requestsPerSecond is the rate that was planned for.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	RequestsPerSecond string `json:"requestsPerSecond,omitempty"`

	// reason is why, as text.
	// +required
	// +kubebuilder:validation:MaxLength=1024
	Reason string `json:"reason"`
}

// PlanCost is what functions cost in an hour. The numbers are texts, since they are rounded to be read.
type PlanCost struct {
	// currency is that of the price list, such as USD.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	Currency string `json:"currency,omitempty"`

	// now is that of the shares of the functions' replicas that are there, by the price list, such as 1.8.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	Now string `json:"now,omitempty"`

	// planned is that of the plan.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	Planned string `json:"planned,omitempty"`

	// separate is that of the cheapest plan in which each function is served alone.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	Separate string `json:"separate,omitempty"`

	// saving is the part of now that the plan would save, such as 42%. It is negative if the plan costs more.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	Saving string `json:"saving,omitempty"`
}
