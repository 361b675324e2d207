package v1alpha1

import (
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// GPUProfile measures how large a share of a GPU a server or a training job needs. gshare-controller runs it alone on a GPU with shares of different
// sizes in turn, and sends requests to a server.
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

	// spec is what to measure.
	// +required
	Spec GPUProfileSpec `json:"spec"`

	// status is what was measured.
	// +optional
	Status GPUProfileStatus `json:"status,omitzero"`
}

// GPUProfileList is a list of GPUProfiles.
//
// +kubebuilder:object:root=true
type GPUProfileList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []GPUProfile `json:"items"`
}

// ProfileSLO is the latency objective of a server that is measured.
type ProfileSLO struct {
	// latency is the time within which the requests should be answered, from 1ms to 1h, such as 69ms.
	// +required
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+([.][0-9]*)?(ns|us|µs|ms|s|m|h))+$') && duration(self) >= duration('1ms') && duration(self) <= duration('1h')",message="want a duration of 1ms to 1h, such as 69ms"
	Latency Duration `json:"latency"`
}

// GPUProfileSpec is what to measure. If it changes in anything but search.maxTrials, memory and staleAfter, the measurements are dropped and
// everything is measured again.
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

	// template is the pod template of a server that is not a GPUFunction, written as in a GPUFunction, or of a training job, written as in a Job.
	// +optional
	Template v1.PodTemplateSpec `json:"template,omitzero"`

	// slo is the latency objective of the server in template.
	// +optional
	SLO ProfileSLO `json:"slo,omitzero"`

	// protocol is the protocol of the requests to the server in template. Defaults to HTTP.
	// +optional
	Protocol Protocol `json:"protocol,omitempty"`

	// concurrency is the number of requests that the server in template gets at once. Defaults to 1.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	Concurrency *int `json:"concurrency,omitempty"`

	// training says that the template answers no requests. It is measured by the kernels that it launches per second.
	// +optional
	Training *ProfileTraining `json:"training,omitempty"`

	// accelerator is the GPU model to measure on, like gshare.dev/model of a pod, such as H200. Defaults to the model that the cluster has the most of.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self == '' || self.matches('^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$')",message="want the model of a GPU, such as H200"
	Accelerator string `json:"accelerator,omitempty"`

	// memory is the device memory of the recommended share. Defaults to what the trials used plus a tenth or, if that is not known, to all of the GPU.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^[+]?[0-9.]{1,32}([eE][+-]?[0-9]{1,2}|[A-Za-z]{0,2})$') && isQuantity(self) && quantity(self).compareTo(quantity('1Mi')) >= 0 && quantity(self).compareTo(quantity('1Pi')) <= 0",message="want a quantity of 1Mi to 1Pi, such as 1525Mi"
	Memory Quantity `json:"memory,omitempty"`

	// request is what to send to the server. Defaults to the request of the function.
	// +optional
	Request ProfileRequest `json:"request,omitzero"`

	// search says which shares to try.
	// +optional
	// +kubebuilder:default={}
	Search ProfileSearch `json:"search,omitzero"`

	// staleAfter is the age at which a profile becomes Stale, from 1h to 87600h.
	// +optional
	// +kubebuilder:default="720h"
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+([.][0-9]*)?(ns|us|µs|ms|s|m|h))+$') && duration(self) >= duration('1h') && duration(self) <= duration('87600h')",message="want a duration of 1h to 87600h, such as 720h"
	StaleAfter Duration `json:"staleAfter,omitempty"`

	// remeasure says when a complete profile is measured again automatically: NewImage, once the replicas run another image, or Never, the default.
	// +optional
	Remeasure Remeasure `json:"remeasure,omitempty"`
}

// Remeasure says when a complete profile is measured again automatically.
//
// +kubebuilder:validation:Enum=Never;NewImage
type Remeasure string

// The values of Remeasure.
const (
	RemeasureNever    Remeasure = "Never"
	RemeasureNewImage Remeasure = "NewImage" // under the same tag: a changed template is always measured again
)

// ProfileTraining says how to measure a program that answers no requests, such as a training job.
type ProfileTraining struct {
	// steady is how long the rate of kernels must stay the same, within 5 %: 15s to 60s. After eight times that, a trial takes the rate as it is.
	// +optional
	// +kubebuilder:default="15s"
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+([.][0-9]*)?(ns|us|µs|ms|s|m|h))+$') && duration(self) >= duration('15s') && duration(self) <= duration('60s')",message="want a duration of 15s to 60s, such as 15s"
	Steady Duration `json:"steady,omitempty"`
}

// ProfileReference names a GPUProfile in the same namespace.
type ProfileReference struct {
	// name is the metadata.name of the GPUProfile.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=50
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="want lower-case letters, digits and '-', with a letter or digit at both ends"
	Name string `json:"name"`
}

// ProfileStrategy says how the shares to try are chosen.
//
// +kubebuilder:validation:Enum=HybridGrowth;Bisection;Grid
type ProfileStrategy string

// The strategies. HybridGrowth adds SMs until a batch takes half of the objective, then doubles the batch. Bisection finds the fewest SMs that answer
// 80 % of what the whole GPU does, and the fewest that answer all of it. Grid tries all combinations.
const (
	HybridGrowth ProfileStrategy = "HybridGrowth"
	Bisection    ProfileStrategy = "Bisection"
	Grid         ProfileStrategy = "Grid"
)

// ProfileSearch says which shares to try.
//
// +kubebuilder:validation:XValidation:rule="self.strategy == 'Grid' || !has(self.sm) && !has(self.quota)",fieldPath=".strategy",message="want sm and quota with Grid only"
// +kubebuilder:validation:XValidation:rule="self.strategy != 'Grid' || !has(self.step)",fieldPath=".step",message="want it without Grid only"
// +kubebuilder:validation:XValidation:rule="self.strategy != 'Bisection' || !has(self.step) || 100 % self.step == 0",fieldPath=".step",message="want a divisor of 100 with Bisection"
// +kubebuilder:validation:XValidation:rule="(has(self.sm) ? self.sm.size() : 7) * (has(self.quota) ? self.quota.size() : 5) <= 200",fieldPath=".sm",message="want at most 200 combinations of sm and quota"
type ProfileSearch struct {
	// strategy chooses the shares. HybridGrowth: add SMs until a batch takes half of the objective, then double the batch. Bisection: for one batch, the
	// fewest SMs with 80 % and all of the whole GPU's rate. Grid: all combinations of sm and quota.
	// +optional
	// +kubebuilder:default=HybridGrowth
	Strategy ProfileStrategy `json:"strategy,omitempty"`

	// step is the percentage of SMs that HybridGrowth adds at a time, and of which the result of Bisection is a multiple. Defaults to 10.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	Step int64 `json:"step,omitempty"`

	// sm are the percentages of SMs that Grid tries. Defaults to 6, 12, 24, 50, 60, 80 and 100.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:Minimum=1
	// +kubebuilder:validation:items:Maximum=100
	SM []int64 `json:"sm,omitempty"`

	// quota are the percentages of GPU time that Grid tries. Defaults to 20, 40, 60, 80 and 100.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:Minimum=1
	// +kubebuilder:validation:items:Maximum=100
	Quota []int64 `json:"quota,omitempty"`

	// maxBatch is the largest batch that HybridGrowth tries, and the batch of Bisection and Grid. More than 1 requires protocol OIP. Defaults to that of
	// the function or, for HybridGrowth with OIP, to 32.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4096
	MaxBatch int `json:"maxBatch,omitempty"`

	// maxTrials is the maximum number of trials. After that, the best of them is the result.
	// +optional
	// +kubebuilder:default=60
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=200
	MaxTrials int `json:"maxTrials,omitempty"`
}
