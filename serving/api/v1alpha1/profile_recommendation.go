package v1alpha1

// ProfileRecommendation is what a function should get.
type ProfileRecommendation struct {
	// sm is the percentage of SMs.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	SM int64 `json:"sm"`

	// smLimit is the percentage of SMs worth using while others leave them idle, like gshare.dev/sm-limit of a pod. HybridGrowth: twice sm. Bisection:
	// where more SMs gain nothing. Grid does not set it.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	SMLimit int64 `json:"smLimit,omitempty"`

	// quota is the percentage of GPU time.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	Quota int64 `json:"quota"`

	// memory is the device memory, such as 1525Mi.
	// +required
	// +kubebuilder:validation:MaxLength=32
	Memory Quantity `json:"memory"`

	// maxBatch is the maximum number of rows that a replica should get in one request.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4096
	MaxBatch int `json:"maxBatch"`

	// requestsPerSecond is the rate that one replica can serve within the objective; 0 for a training job.
	// +required
	// +kubebuilder:validation:Minimum=0
	RequestsPerSecond float64 `json:"requestsPerSecond"`

	// kernelsPerSecond is how many kernels a training job launches per second.
	// +optional
	// +kubebuilder:validation:Minimum=0
	KernelsPerSecond float64 `json:"kernelsPerSecond,omitempty"`

	// smaller are smaller shares, smallest first, that serve fewer requests within the objective with the same batch and memory. A share is left out if
	// a smaller one serves as many.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	Smaller []MeasuredShare `json:"smaller,omitempty"`
}

// MeasuredShare is a share and the rate that a replica with it can serve.
type MeasuredShare struct {
	// sm is the percentage of SMs.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	SM int64 `json:"sm"`

	// quota is the percentage of GPU time.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	Quota int64 `json:"quota"`

	// requestsPerSecond is the rate that a replica can serve within the objective: 5 % less than was measured, unless it was measured again for longer.
	// +required
	// +kubebuilder:validation:Minimum=0
	RequestsPerSecond float64 `json:"requestsPerSecond"`
}

// Conditions of a GPUProfile.
const (
	// ConditionComplete is True once nothing is left to measure. Otherwise the reason says what is being done, or what blocks it.
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
	// ReasonMeasured says that the search has found the share that the objective needs.
	//
	//	kind: event
	//	object: GPUProfile
	//	type: Normal
	//	written by: gshare-controller
	//	to do: nothing; see `status.recommended`
	ReasonMeasured = "Measured"

	// ReasonBudgetUsed says that the search has ended because it reached `search.maxTrials`. The recommended share may be larger than the objective
	// needs. Bisection recommends nothing in this case.
	//
	//	kind: event
	//	object: GPUProfile
	//	type: Normal
	//	written by: gshare-controller
	//	to do: raise `search.maxTrials` for a closer result
	ReasonBudgetUsed = "BudgetUsed"

	// ReasonNoShare says that no share meets the objective, or that the server launched no kernel while it answered.
	//
	//	kind: event
	//	object: GPUProfile
	//	type: Warning
	//	written by: gshare-controller
	//	to do: relax the objective, or give the server a whole GPU; if the message says that every trial failed, fix the server or the request; if it says that no kernel was launched, let the server use the GPU
	ReasonNoShare = "NoShare"

	ReasonMeasuring = "Measuring" // a client is sending requests
	ReasonStarting  = "Starting"  // the server or the client is not running yet
	ReasonNoGPU     = "NoGPU"     // no node has a GPU of the model
	ReasonGPUInUse  = "GPUInUse"  // no GPU of the model is free, or a replica of the function waits for one

	// ReasonOverQuota says that a SharePolicy does not let the namespace have the server of a trial.
	//
	//	kind: event
	//	object: GPUProfile
	//	type: Warning
	//	written by: gshare-controller
	//	to do: stop other pods in the namespace, or ask an administrator to raise the limit
	ReasonOverQuota = "QuotaExceeded"

	// ReasonInvalid says that the function does not exist, or the spec asks for nothing that can be measured.
	//
	//	kind: event
	//	object: GPUProfile
	//	type: Warning
	//	written by: gshare-controller
	//	to do: correct what the message names
	ReasonInvalid = "Invalid"

	// ReasonClientWaits says that the client of a trial has not started within two minutes, so the server gave its GPU back. The trial starts again once
	// the client runs.
	//
	//	kind: event
	//	object: GPUProfile
	//	type: Warning
	//	written by: gshare-controller
	//	to do: create the ConfigMap that the message names, or make sure that the nodes can pull the image of gshare-controller
	ReasonClientWaits = "ClientWaits"

	// ReasonClientFailed says that the client of a trial ended without a result or cannot make requests, or the server does not start at all.
	//
	//	kind: event
	//	object: GPUProfile
	//	type: Warning
	//	written by: gshare-controller
	//	to do: see the logs of the pod that the message names
	ReasonClientFailed = "ClientFailed"
)
