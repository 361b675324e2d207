package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// GPUFunctionStatus is what the cluster observes of a function.
type GPUFunctionStatus struct {
	// observedGeneration is the metadata.generation of the specification that the rest of the status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// conditions are what holds of the function now. Ready is True if requests are answered, by a replica that is there or one that starts for
	// them; its reason says why, such as Serving, Idle or Unprofiled. BackingOff, QuotaExceeded, CannotPark and ScalingConflict are there while True.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// replicas is the number of all replicas.
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

	// pods is residency as kubectl get prints it, hot+shared+warm: 3+1+0.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	Pods string `json:"pods,omitempty"`

	// share is the share of new replicas as kubectl get prints it, such as 24% x 40%-80%: the percentage of the SMs, and the quota with its limit.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Share string `json:"share,omitempty"`

	// profiled is what the profile of the function recommends, or did the last time: what the function has.
	// +optional
	Profiled *ProfileRecommendation `json:"profiled,omitempty"`

	// servedBy is the GPUFunction of the namespace whose replicas are to serve the requests of this one, by an InferencePlan. Its template and protocol
	// must be the same, and its own servedBy not set: else it has no effect.
	// +optional
	// +kubebuilder:validation:MaxLength=50
	ServedBy string `json:"servedBy,omitempty"`

	// host is the GPUFunction to whose replicas gateways send the requests now: servedBy once it has replicas for them, and until this function has
	// its own again.
	// +optional
	// +kubebuilder:validation:MaxLength=50
	Host string `json:"host,omitempty"`

	// observed is what requests saw of late, rounded.
	// +optional
	Observed Observed `json:"observed,omitzero"`
}

// ResidencyCounts counts replicas by what they hold of a GPU.
type ResidencyCounts struct {
	// hot is the number of replicas that hold their whole share and serve.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Hot int32 `json:"hot,omitempty"`

	// shared is the number of replicas in reserve that hold their memory and use only time that others leave.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Shared int32 `json:"shared,omitempty"`

	// warm is the number of replicas that are parked, with their weights in the memory of the host.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Warm int32 `json:"warm,omitempty"`
}

// Observed is what the requests of a function saw of late. The numbers are texts, since they are rounded to be read.
type Observed struct {
	// requestsPerSecond is the rate of the requests that came, such as 212.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	RequestsPerSecond string `json:"requestsPerSecond,omitempty"`

	// p99 is the latency within which 99 % of them were answered, such as 61ms.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	P99 Duration `json:"p99,omitempty"`

	// hit is the part of them that was answered within the objective, such as 99.4%.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	Hit string `json:"hit,omitempty"`
}
