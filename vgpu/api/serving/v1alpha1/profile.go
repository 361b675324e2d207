package v1alpha1

import (
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// GPUProfile measures how large a share of a GPU a server or a training needs: gshare-controller starts it alone on a GPU with shares of different size,
// one after the other, and sends requests to a server.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=gpuprofiles,singular=gpuprofile,shortName=gprof,categories=gshare
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="GPU",type=string,JSONPath=`.status.fingerprint.model`
// +kubebuilder:printcolumn:name="Trials",type=integer,JSONPath=`.status.trials`
// +kubebuilder:printcolumn:name="Current",type=string,JSONPath=`.status.current`,priority=1
// +kubebuilder:printcolumn:name="SM",type=integer,JSONPath=`.status.recommended.sm`
// +kubebuilder:printcolumn:name="Limit",type=integer,JSONPath=`.status.recommended.smLimit`,priority=1
// +kubebuilder:printcolumn:name="Quota",type=integer,JSONPath=`.status.recommended.quota`
// +kubebuilder:printcolumn:name="Batch",type=integer,JSONPath=`.status.recommended.maxBatch`
// +kubebuilder:printcolumn:name="RPS",type=number,JSONPath=`.status.recommended.requestsPerSecond`
// +kubebuilder:printcolumn:name="Kernels",type=number,JSONPath=`.status.recommended.kernelsPerSecond`,priority=1
// +kubebuilder:printcolumn:name="Complete",type=string,JSONPath=`.status.conditions[?(@.type=="Complete")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Complete")].reason`
// +kubebuilder:printcolumn:name="Stale",type=string,JSONPath=`.status.conditions[?(@.type=="Stale")].status`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 50 && self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="metadata.name: want 1 to 50 lower-case letters, digits and '-', with a letter or digit at both ends"
type GPUProfile struct {
	metav1.TypeMeta `json:",inline"`

	// metadata names the pods of the trials: each has this name and a hash.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec is what is to be measured.
	// +required
	Spec GPUProfileSpec `json:"spec"`

	// status is what was measured.
	// +optional
	Status GPUProfileStatus `json:"status,omitzero"`
}

// GPUProfileList is a list of profiles.
//
// +kubebuilder:object:root=true
type GPUProfileList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []GPUProfile `json:"items"`
}

// GPUProfileSpec is what is to be measured. Measurements are dropped, and all is measured again, when it changes in anything but search.maxTrials,
// memory and staleAfter.
//
// +kubebuilder:validation:XValidation:rule="has(self.functionRef) != has(self.template)",message="want exactly one of functionRef and template"
// +kubebuilder:validation:XValidation:rule="(has(self.template) && !has(self.training)) == has(self.slo)",fieldPath=".slo",message="want it with a template, and neither with functionRef, whose function has it, nor with training"
// +kubebuilder:validation:XValidation:rule="!has(self.training) || has(self.template) && !has(self.protocol) && !has(self.concurrency) && !has(self.request)",fieldPath=".training",message="want it with a template, without protocol, concurrency and request"
// +kubebuilder:validation:XValidation:rule="!has(self.training) || has(self.search) && self.search.strategy == 'Bisection' && (!has(self.search.maxBatch) || self.search.maxBatch == 1)",fieldPath=".search.strategy",message="want Bisection, without maxBatch, for a training"
// +kubebuilder:validation:XValidation:rule="has(self.template) || !has(self.protocol) && !has(self.concurrency)",fieldPath=".protocol",message="want protocol and concurrency with a template only: a function has them"
// +kubebuilder:validation:XValidation:rule="!has(self.template) || self.template.spec.containers.size() == 1",fieldPath=".template.spec.containers",message="want 1 container, the server; others can be initContainers with restartPolicy Always"
// +kubebuilder:validation:XValidation:rule="!has(self.template) || self.template.spec.containers.all(c, has(c.image) && c.image.size() > 0)",fieldPath=".template.spec.containers",message="want an image in each container"
type GPUProfileSpec struct {
	// functionRef names the GPUFunction whose replicas are measured.
	// +optional
	FunctionRef *FunctionReference `json:"functionRef,omitempty"`

	// template describes a server that is no GPUFunction, as the template of a GPUFunction does, or a training, as that of a Job does.
	// +optional
	Template v1.PodTemplateSpec `json:"template,omitzero"`

	// slo is the latency objective of the template.
	// +optional
	SLO SLO `json:"slo,omitzero"`

	// protocol is that of the requests to the template: HTTP without it.
	// +optional
	Protocol Protocol `json:"protocol,omitempty"`

	// concurrency is how many requests the template gets at once: 1 without it.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	Concurrency *int `json:"concurrency,omitempty"`

	// training says that the template answers no requests. It is measured by the kernels that it launches in a second.
	// +optional
	Training *ProfileTraining `json:"training,omitempty"`

	// accelerator is the model of the GPU, as gshare.dev/model of a pod: H200. Without it, that of which the cluster has the most.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self == '' || self.matches('^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$')",message="want the model of a GPU, such as H200"
	Accelerator string `json:"accelerator,omitempty"`

	// memory is the device memory of the share that is recommended. Without it, what the trials used and a tenth more; where that is not known,
	// all of the GPU.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^[+]?[0-9.]{1,32}([eE][+-]?[0-9]{1,2}|[A-Za-z]{0,2})$') && isQuantity(self) && quantity(self).compareTo(quantity('1Mi')) >= 0 && quantity(self).compareTo(quantity('1Pi')) <= 0",message="want a quantity of 1Mi to 1Pi, such as 1525Mi"
	Memory Quantity `json:"memory,omitempty"`

	// request is what the server is asked. Without it, that of the function.
	// +optional
	Request ProfileRequest `json:"request,omitzero"`

	// search says which shares are tried.
	// +optional
	// +kubebuilder:default={}
	Search ProfileSearch `json:"search,omitzero"`

	// staleAfter is the age at which a profile is Stale: 1h to 87600h.
	// +optional
	// +kubebuilder:default="720h"
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+([.][0-9]*)?(ns|us|µs|ms|s|m|h))+$') && duration(self) >= duration('1h') && duration(self) <= duration('87600h')",message="want a duration of 1h to 87600h, such as 720h"
	StaleAfter Duration `json:"staleAfter,omitempty"`

	// remeasure says when a complete profile is measured again by itself: NewImage, once the replicas run another image, or Never, as without it.
	// +optional
	Remeasure Remeasure `json:"remeasure,omitempty"`
}

// Remeasure says when a complete profile is measured again by itself.
//
// +kubebuilder:validation:Enum=Never;NewImage
type Remeasure string

// The values of Remeasure.
const (
	RemeasureNever    Remeasure = "Never"
	RemeasureNewImage Remeasure = "NewImage" // under the same tag: another template is always measured
)

// ProfileTraining says how a program is measured that answers no requests, such as a training.
type ProfileTraining struct {
	// steady is for how long the rate of kernels has to be the same, within 5 %: 15s to 60s. A trial takes what it is after eight times that.
	// +optional
	// +kubebuilder:default="15s"
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+([.][0-9]*)?(ns|us|µs|ms|s|m|h))+$') && duration(self) >= duration('15s') && duration(self) <= duration('60s')",message="want a duration of 15s to 60s, such as 15s"
	Steady Duration `json:"steady,omitempty"`
}

// ProfileReference names a GPUProfile of the same namespace.
type ProfileReference struct {
	// name is the metadata.name of the GPUProfile.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=50
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="want lower-case letters, digits and '-', with a letter or digit at both ends"
	Name string `json:"name"`
}

// ProfileStrategy is how shares to try are chosen.
//
// +kubebuilder:validation:Enum=HybridGrowth;Bisection;Grid
type ProfileStrategy string

// The strategies. HybridGrowth lets the SMs grow until a batch takes half of the objective, then doubles the batch. Bisection finds the fewest SMs that
// answer 80 % and all of what the whole GPU does. Grid tries all combinations.
const (
	HybridGrowth ProfileStrategy = "HybridGrowth"
	Bisection    ProfileStrategy = "Bisection"
	Grid         ProfileStrategy = "Grid"
)

// ProfileSearch says which shares are tried.
//
// +kubebuilder:validation:XValidation:rule="self.strategy == 'Grid' || !has(self.sm) && !has(self.quota)",fieldPath=".strategy",message="want sm and quota with Grid only"
// +kubebuilder:validation:XValidation:rule="self.strategy != 'Grid' || !has(self.step)",fieldPath=".step",message="want it without Grid only"
// +kubebuilder:validation:XValidation:rule="self.strategy != 'Bisection' || !has(self.step) || 100 % self.step == 0",fieldPath=".step",message="want a divisor of 100 with Bisection"
// +kubebuilder:validation:XValidation:rule="(has(self.sm) ? self.sm.size() : 7) * (has(self.quota) ? self.quota.size() : 5) <= 200",fieldPath=".sm",message="want at most 200 combinations of sm and quota"
type ProfileSearch struct {
	// strategy chooses the shares. HybridGrowth: the SMs grow until a batch takes half of the objective, then the batch doubles. Bisection: with one
	// batch, the fewest SMs that answer 80 % of what all of them do, and the fewest that answer all of it. Grid: all combinations of sm and quota.
	// +optional
	// +kubebuilder:default=HybridGrowth
	Strategy ProfileStrategy `json:"strategy,omitempty"`

	// step is the percentage of the SMs by which HybridGrowth grows, and of which the result of Bisection is a multiple: 10 without it.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	Step int64 `json:"step,omitempty"`

	// sm are the percentages of the SMs of Grid: 6, 12, 24, 50, 60, 80 and 100 without it.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:Minimum=1
	// +kubebuilder:validation:items:Maximum=100
	SM []int64 `json:"sm,omitempty"`

	// quota are the percentages of the time of Grid: 20, 40, 60, 80 and 100 without it.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:Minimum=1
	// +kubebuilder:validation:items:Maximum=100
	Quota []int64 `json:"quota,omitempty"`

	// maxBatch is the largest batch that HybridGrowth tries, and the batch of Bisection and Grid. More than 1 needs protocol OIP. Without it, that of the
	// function or, with HybridGrowth and OIP, 32.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4096
	MaxBatch int `json:"maxBatch,omitempty"`

	// maxTrials is the greatest number of trials. The best of them is then the result.
	// +optional
	// +kubebuilder:default=60
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=200
	MaxTrials int `json:"maxTrials,omitempty"`
}
