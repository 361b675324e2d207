package v1alpha1

import (
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// FaSTPod is a set of identical pods, each with the same share of a GPU. A function has one for each share that its replicas have. Users may scale
// others themselves or with an autoscaler.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=fastpods,singular=fastpod,shortName=fp,categories=gshare
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.replicas,selectorpath=.status.selector
// +kubebuilder:printcolumn:name="SM",type=integer,JSONPath=`.spec.share.sm`
// +kubebuilder:printcolumn:name="SM-Limit",type=integer,JSONPath=`.spec.share.smLimit`,priority=1
// +kubebuilder:printcolumn:name="Quota",type=integer,JSONPath=`.spec.share.quota`
// +kubebuilder:printcolumn:name="Limit",type=integer,JSONPath=`.spec.share.quotaLimit`
// +kubebuilder:printcolumn:name="Memory",type=string,JSONPath=`.spec.share.memory`
// +kubebuilder:printcolumn:name="GPUs",type=integer,JSONPath=`.spec.share.gpus`,priority=1
// +kubebuilder:printcolumn:name="Desired",type=integer,JSONPath=`.spec.replicas`
// +kubebuilder:printcolumn:name="Current",type=integer,JSONPath=`.status.replicas`
// +kubebuilder:printcolumn:name="Ready",type=integer,JSONPath=`.status.readyReplicas`
// +kubebuilder:printcolumn:name="Function",type=string,JSONPath=`.spec.functionRef.name`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 56 && self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="metadata.name: want 1 to 56 lower-case letters, digits and '-', with a letter or digit at both ends"
type FaSTPod struct {
	metav1.TypeMeta `json:",inline"`

	// metadata names the pods: each has this name and a number.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec is the desired state of the pods.
	// +required
	Spec FaSTPodSpec `json:"spec"`

	// status is the observed state of the pods.
	// +optional
	Status FaSTPodStatus `json:"status,omitzero"`
}

// FaSTPodList is a list of FaSTPods.
//
// +kubebuilder:object:root=true
type FaSTPodList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []FaSTPod `json:"items"`
}

// FaSTPodSpec is the desired state of the pods of a FaSTPod.
//
// +kubebuilder:validation:XValidation:rule="self.template.spec.containers.size() >= 1",fieldPath=".template.spec.containers",message="want at least 1 container"
// +kubebuilder:validation:XValidation:rule="has(self.functionRef) == has(oldSelf.functionRef)",fieldPath=".functionRef",message="cannot be added or removed"
// +kubebuilder:validation:XValidation:rule="self.template.spec.containers.all(c, has(c.image) && c.image.size() > 0)",fieldPath=".template.spec.containers",message="want an image in each container"
type FaSTPodSpec struct {
	// share is the GPU share of the first container of each pod.
	// +required
	Share Share `json:"share"`

	// replicas is the desired number of pods.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	Replicas *int32 `json:"replicas,omitempty"`

	// template is the pod template. Its first container gets the share.
	// +required
	Template v1.PodTemplateSpec `json:"template"`

	// functionRef names the GPUFunction whose replicas the pods are. That function then controls the rest of the spec.
	// +optional
	FunctionRef *FunctionReference `json:"functionRef,omitempty"`
}

// FunctionReference names a GPUFunction in the same namespace.
type FunctionReference struct {
	// name is the metadata.name of the GPUFunction.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=50
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="cannot be changed"
	Name string `json:"name"`
}

// FaSTPodStatus is the observed state of the pods of a FaSTPod.
type FaSTPodStatus struct {
	// observedGeneration is the metadata.generation of the spec that the rest of the status describes.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// conditions are the current conditions of the pods. Ready is True if the desired number accepts requests; its reason says why. QuotaExceeded is
	// True while a SharePolicy keeps a pod from being started.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// replicas is the number of pods that exist.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Replicas int32 `json:"replicas,omitempty"`

	// readyReplicas is the number of pods that accept requests.
	// +optional
	// +kubebuilder:validation:Minimum=0
	ReadyReplicas int32 `json:"readyReplicas,omitempty"`

	// residency counts the pods by what they hold of a GPU.
	// +optional
	Residency ResidencyCounts `json:"residency,omitzero"`

	// selector is the label selector of the pods as a string, for autoscalers that read their metrics.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Selector string `json:"selector,omitempty"`
}
