package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// GPUFunctionStatus is the observed state of a function.
type GPUFunctionStatus struct {
	// observedGeneration is the metadata.generation of the spec that the rest of the status describes.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// conditions are the current conditions of the function. Ready is True while requests are answered, by a running replica or one that starts for
	// them. Its reason says why, such as Serving, Idle or Unprofiled. BackingOff, QuotaExceeded, CannotPark and ScalingConflict are present only while
	// True.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// replicas is the total number of replicas.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Replicas int32 `json:"replicas,omitempty"`

	// readyReplicas is the number of replicas that accept requests.
	// +optional
	// +kubebuilder:validation:Minimum=0
	ReadyReplicas int32 `json:"readyReplicas,omitempty"`

	// residency counts the replicas by what they hold of a GPU.
	// +optional
	Residency ResidencyCounts `json:"residency,omitzero"`

	// pods is residency as kubectl get prints it: hot+shared+warm, such as 3+1+0.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	Pods string `json:"pods,omitempty"`

	// share is the share of new replicas as kubectl get prints it, such as 24% x 40%-80%: the percentage of SMs, and the quota with its limit.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Share string `json:"share,omitempty"`

	// profiled is the latest recommendation of the function's profile. The function uses it.
	// +optional
	Profiled *ProfileRecommendation `json:"profiled,omitempty"`

	// servedBy is the GPUFunction in the same namespace whose replicas are to serve the requests of this one, set by an InferencePlan. It has no effect
	// unless that function has the same template and protocol, and no servedBy itself.
	// +optional
	// +kubebuilder:validation:MaxLength=50
	ServedBy string `json:"servedBy,omitempty"`

	// host is the GPUFunction to whose replicas gateways send the requests now: servedBy, from when that function has replicas for them until this
	// function has its own replicas again.
	// +optional
	// +kubebuilder:validation:MaxLength=50
	Host string `json:"host,omitempty"`

	// observed is what recent requests experienced, rounded.
	// +optional
	Observed Observed `json:"observed,omitzero"`
}

// ResidencyCounts counts replicas by what they hold of a GPU.
type ResidencyCounts struct {
	// hot is the number of replicas that hold their whole share and serve requests.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Hot int32 `json:"hot,omitempty"`

	// shared is the number of replicas in reserve, which hold their memory and use only time that others leave idle.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Shared int32 `json:"shared,omitempty"`

	// warm is the number of parked replicas, which keep their weights in host memory.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Warm int32 `json:"warm,omitempty"`
}

// Observed is what recent requests of a function experienced. The numbers are strings because they are rounded for readers.
type Observed struct {
	// requestsPerSecond is the rate of incoming requests, such as 212.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	RequestsPerSecond string `json:"requestsPerSecond,omitempty"`

	// p99 is the latency within which 99 % of the requests were answered, such as 61ms.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	P99 Duration `json:"p99,omitempty"`

	// hit is the percentage of requests that were answered within the objective, such as 99.4%.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	Hit string `json:"hit,omitempty"`
}
