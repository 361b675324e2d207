package v1alpha1

// ProfileRecommendation is what a function should get.
type ProfileRecommendation struct {
	// sm is the percentage of the SMs.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	SM int64 `json:"sm"`

	// smLimit is the percentage of the SMs that are of use where others leave them idle, as gshare.dev/sm-limit of a pod: with HybridGrowth twice sm, with
	// Bisection those beyond which nothing is gained. Grid does not say.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	SMLimit int64 `json:"smLimit,omitempty"`

	// quota is the percentage of the time.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	Quota int64 `json:"quota"`

	// memory is the device memory, such as 1525Mi.
	// +required
	// +kubebuilder:validation:MaxLength=32
	Memory Quantity `json:"memory"`

	// maxBatch is how many rows a replica should get as one request.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4096
	MaxBatch int `json:"maxBatch"`

	// requestsPerSecond is what one replica answers within the objective; 0 for a training.
	// +required
	// +kubebuilder:validation:Minimum=0
	RequestsPerSecond float64 `json:"requestsPerSecond"`

	// kernelsPerSecond is how many kernels a training launches in a second.
	// +optional
	// +kubebuilder:validation:Minimum=0
	KernelsPerSecond float64 `json:"kernelsPerSecond,omitempty"`

	// smaller are smaller shares on which a replica answers fewer requests within the objective, with the same batch and memory: the smallest
	// first, and none than which a smaller one answers as many.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	Smaller []MeasuredShare `json:"smaller,omitempty"`
}

// MeasuredShare is a share and what a replica with it answers.
type MeasuredShare struct {
	// sm is the percentage of the SMs.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	SM int64 `json:"sm"`

	// quota is the percentage of the time.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	Quota int64 `json:"quota"`

	// requestsPerSecond is what a replica answers within the objective: 5 % less than was measured, unless it was measured again for longer.
	// +required
	// +kubebuilder:validation:Minimum=0
	RequestsPerSecond float64 `json:"requestsPerSecond"`
}

// Conditions of a GPUProfile.
const (
	// ConditionComplete is True once nothing is left to measure. Otherwise the reason says what is being done, or what keeps it from going on.
	//
	//	kind: condition
	//	object: GPUProfile
	//	written by: gshare-controller
	//	values: True, False
	ConditionComplete = "Complete"

	// ConditionStale is True while something has changed since the profile was measured. The message says what.
	//
	//	kind: condition
	//	object: GPUProfile
	//	written by: gshare-controller
	//	values: True, False
	ConditionStale = "Stale"
)

// Reasons of the condition Complete of a GPUProfile. The first three are those of True.
const (
	// ReasonMeasured says that the share that the objective needs is known.
	//
	//	kind: event
	//	object: GPUProfile
	//	type: Normal
	//	written by: gshare-controller
	//	to do: nothing; `status.recommended` has it
	ReasonMeasured = "Measured"

	// ReasonBudgetUsed says that `search.maxTrials` ended the search. What is recommended may be more than the objective needs;
	// Bisection recommends nothing then.
	//
	//	kind: event
	//	object: GPUProfile
	//	type: Normal
	//	written by: gshare-controller
	//	to do: raise `search.maxTrials` for a closer result
	ReasonBudgetUsed = "BudgetUsed"

	// ReasonNoShare says that no share meets the objective.
	//
	//	kind: event
	//	object: GPUProfile
	//	type: Warning
	//	written by: gshare-controller
	//	to do: relax the objective, or let the server have a whole GPU; where the message says that every trial failed, correct the server or the request
	ReasonNoShare = "NoShare"

	ReasonMeasuring = "Measuring" // a client sends requests
	ReasonStarting  = "Starting"  // the server or the client does not run yet
	ReasonNoGPU     = "NoGPU"     // no node has a GPU of the model
	ReasonGPUInUse  = "GPUInUse"  // no GPU of the model is free, or a replica of the function waits for one

	// ReasonOverQuota says that a SharePolicy does not let the namespace have the server of a trial.
	//
	//	kind: event
	//	object: GPUProfile
	//	type: Warning
	//	written by: gshare-controller
	//	to do: end others of the namespace, or ask an administrator for more
	ReasonOverQuota = "QuotaExceeded"

	// ReasonInvalid says that there is no such function, or the specification asks for nothing that can be measured.
	//
	//	kind: event
	//	object: GPUProfile
	//	type: Warning
	//	written by: gshare-controller
	//	to do: correct what the message names
	ReasonInvalid = "Invalid"

	// ReasonClientWaits says that the client of a trial has not started for two minutes, so that the server has given its GPU back. The trial begins again once the
	// client runs.
	//
	//	kind: event
	//	object: GPUProfile
	//	type: Warning
	//	written by: gshare-controller
	//	to do: create the ConfigMap that the message names, or let the nodes pull the image of gshare-controller
	ReasonClientWaits = "ClientWaits"

	// ReasonClientFailed says that the client of a trial ends without a result or cannot make requests, or the server does not start at all.
	//
	//	kind: event
	//	object: GPUProfile
	//	type: Warning
	//	written by: gshare-controller
	//	to do: see the logs of the pod that the message names
	ReasonClientFailed = "ClientFailed"
)
