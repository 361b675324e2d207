package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gshare-dev/gshare/serving/rules/tenancy"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// SharePolicy limits how much of the GPUs the pods of functions and FaSTPods in a namespace may hold. If several policies name a namespace, all of
// them apply.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=sharepolicies,singular=sharepolicy,scope=Cluster,shortName=gsp,categories=gshare
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Namespaces",type=integer,JSONPath=`.status.namespaces`
// +kubebuilder:printcolumn:name="Replicas",type=integer,JSONPath=`.status.replicas`
// +kubebuilder:printcolumn:name="SM",type=integer,JSONPath=`.status.smPercent`
// +kubebuilder:printcolumn:name="Memory",type=string,JSONPath=`.status.memory`
// +kubebuilder:printcolumn:name="Exceeded",type=string,JSONPath=`.status.conditions[?(@.type=="Exceeded")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type SharePolicy struct {
	metav1.TypeMeta `json:",inline"`

	// metadata names the policy. Functions that the policy keeps from growing report this name.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec is what the administrator allows.
	// +required
	Spec SharePolicySpec `json:"spec"`

	// status is the observed state of the namespaces.
	// +optional
	Status SharePolicyStatus `json:"status,omitzero"`
}

// SharePolicyList is a list of SharePolicies.
//
// +kubebuilder:object:root=true
type SharePolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []SharePolicy `json:"items"`
}

// SharePolicySpec is what the administrator allows.
type SharePolicySpec struct {
	// tenants are the namespaces and what each may hold.
	// +required
	// +listType=map
	// +listMapKey=namespace
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=256
	Tenants []Tenant `json:"tenants"`
}

// AnyNamespace is the name of a tenant that stands for every namespace that the policy does not name.
const AnyNamespace = "*"

// Tenant is a namespace and what its pods may hold. All of its functions and FaSTPods count together, whatever the residency of a pod. No pod is
// ended: one that would exceed a limit is not started.
//
// +kubebuilder:validation:XValidation:rule="has(self.maxSMPercent) || has(self.maxMemory) || has(self.maxReplicas) || self.priority != 0",message="want at least one of maxSMPercent, maxMemory, maxReplicas, priority"
type Tenant struct {
	// namespace is the name of the namespace. '*' stands for every namespace that the policy does not name: each of them has these limits.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self == '*' || self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="want the name of a namespace, or '*' for each other one"
	Namespace string `json:"namespace"`

	// maxSMPercent is the maximum total SM-time (sm x quota) of all pods, in percent of a GPU: 250 is two and a half GPUs.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10000000
	MaxSMPercent *int64 `json:"maxSMPercent,omitempty"`

	// maxMemory is the maximum total device memory of all pods, with a unit, from 0 to 1Ei, such as 320Gi. Fractions of a MiB are dropped.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^[+]?[0-9.]{1,32}([eE][+-]?[0-9]{1,2}|[A-Za-z]{0,2})$') && isQuantity(self) && quantity(self).compareTo(quantity('0')) >= 0 && quantity(self).compareTo(quantity('1Ei')) <= 0",message="want a quantity of 0 to 1Ei, such as 320Gi"
	MaxMemory *Quantity `json:"maxMemory,omitempty"`

	// maxReplicas is the maximum number of pods.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000
	MaxReplicas *int32 `json:"maxReplicas,omitempty"`

	// priority decides who makes room: pods in reserve are not ended for pods of a namespace with lower priority. It is 0 for a namespace that no policy
	// names. With several policies, the lowest applies.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=-1000
	// +kubebuilder:validation:Maximum=1000
	Priority int32 `json:"priority,omitempty"`
}

// SharePolicyStatus is the observed state of the namespaces of a policy.
type SharePolicyStatus struct {
	// observedGeneration is the metadata.generation of the spec that the rest of the status describes.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// conditions are the current conditions of the policy. Exceeded is True while a namespace holds more than the policy allows, because it already did
	// before the limit. Its message says how much.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// namespaces is the number of namespaces with pods that count.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Namespaces int32 `json:"namespaces,omitempty"`

	// replicas is the number of pods that count.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Replicas int32 `json:"replicas,omitempty"`

	// smPercent is the total SM-time of these pods, in percent of a GPU, rounded up.
	// +optional
	// +kubebuilder:validation:Minimum=0
	SMPercent int64 `json:"smPercent,omitempty"`

	// memory is the total device memory of these pods, such as 12200Mi.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	Memory Quantity `json:"memory,omitempty"`
}

// ConditionExceeded is True while a namespace holds more than a SharePolicy allows, because it already did before the limit was set.
//
//	kind: condition
//	object: SharePolicy
//	written by: gshare-controller
//	values: True, False
const ConditionExceeded = "Exceeded"

// Tenant returns what the policy says about a namespace, or nil if it says nothing.
func (p *SharePolicy) Tenant(namespace string) *Tenant {
	var other *Tenant
	for at := range p.Spec.Tenants {
		switch t := &p.Spec.Tenants[at]; t.Namespace {
		case namespace:
			return t
		case AnyNamespace:
			other = t
		}
	}
	return other
}

// LimitOf returns what the policy lets the pods of a namespace hold, or false if it says nothing about the namespace. The API server has checked the
// quantities; an invalid one allows nothing.
func (p *SharePolicy) LimitOf(namespace string) (tenancy.Limit, bool) {
	t, limit := p.Tenant(namespace), tenancy.Limit{Policy: p.Name}
	if t == nil {
		return limit, false
	}
	if t.MaxReplicas != nil {
		limit.Replicas = new(int(*t.MaxReplicas))
	}
	if t.MaxSMPercent != nil {
		limit.Area = new(share.Area(*t.MaxSMPercent) * share.WholeArea / 100)
	}
	if t.MaxMemory != nil {
		memory, _ := t.MaxMemory.Parse() // 0 if it is none
		limit.Memory = new(tenancy.MiB(memory.Value() / int64(share.MiB)))
	}
	return limit, true
}
