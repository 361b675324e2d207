package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gshare-dev/gshare/vgpu/share"
	"github.com/gshare-dev/gshare/vgpu/tenancy"
)

// SharePolicy limits what the pods of functions and FaSTPods of a namespace hold of the GPUs. Of several policies that name a namespace each one
// holds.
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

	// metadata names the policy: functions that it keeps from growing say which one it is.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec is what the administrator allows.
	// +required
	Spec SharePolicySpec `json:"spec"`

	// status is what the cluster observes.
	// +optional
	Status SharePolicyStatus `json:"status,omitzero"`
}

// SharePolicyList is a list of policies.
//
// +kubebuilder:object:root=true
type SharePolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []SharePolicy `json:"items"`
}

// SharePolicySpec is what the administrator allows.
type SharePolicySpec struct {
	// tenants are the namespaces with what each may hold.
	// +required
	// +listType=map
	// +listMapKey=namespace
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=256
	Tenants []Tenant `json:"tenants"`
}

// AnyNamespace is the name of a tenant that stands for each namespace that the policy does not name.
const AnyNamespace = "*"

// Tenant is a namespace with what its pods may hold. All of its functions and FaSTPods count together, whatever the residency of a pod. Nothing that
// is there is ended: what would be too much is not started.
//
// +kubebuilder:validation:XValidation:rule="has(self.maxSMPercent) || has(self.maxMemory) || has(self.maxReplicas) || self.priority != 0",message="want at least one of maxSMPercent, maxMemory, maxReplicas, priority"
type Tenant struct {
	// namespace is its name. '*' stands for each one that the policy does not name: each of them has these limits.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self == '*' || self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="want the name of a namespace, or '*' for each other one"
	Namespace string `json:"namespace"`

	// maxSMPercent is the greatest sum of the SM-time of all pods, sm x quota, in percent of a GPU: 250 are two and a half GPUs.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10000000
	MaxSMPercent *int64 `json:"maxSMPercent,omitempty"`

	// maxMemory is the greatest sum of the device memory of all pods, with a unit: 0 to 1Ei, such as 320Gi. Parts of a MiB are dropped.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^[+]?[0-9.]{1,32}([eE][+-]?[0-9]{1,2}|[A-Za-z]{0,2})$') && isQuantity(self) && quantity(self).compareTo(quantity('0')) >= 0 && quantity(self).compareTo(quantity('1Ei')) <= 0",message="want a quantity of 0 to 1Ei, such as 320Gi"
	MaxMemory *Quantity `json:"maxMemory,omitempty"`

	// maxReplicas is the greatest number of pods.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000
	MaxReplicas *int32 `json:"maxReplicas,omitempty"`

	// priority says who makes room for whom: pods in reserve are not ended for pods of a namespace of less priority. It is 0 for a namespace that
	// no policy names, and the least of those of several policies.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=-1000
	// +kubebuilder:validation:Maximum=1000
	Priority int32 `json:"priority,omitempty"`
}

// SharePolicyStatus is what the cluster observes of the namespaces of a policy.
type SharePolicyStatus struct {
	// observedGeneration is the metadata.generation of the specification that the rest of the status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// conditions are what holds of the policy now. Exceeded is True while a namespace holds more than the policy allows, from before; its message
	// says how much.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// namespaces is the number of the namespaces with pods that count.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Namespaces int32 `json:"namespaces,omitempty"`

	// replicas is the number of these pods.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Replicas int32 `json:"replicas,omitempty"`

	// smPercent is the sum of their SM-time in percent of a GPU, rounded up.
	// +optional
	// +kubebuilder:validation:Minimum=0
	SMPercent int64 `json:"smPercent,omitempty"`

	// memory is the sum of their device memory, such as 12200Mi.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	Memory Quantity `json:"memory,omitempty"`
}

// ConditionExceeded is True while a namespace holds more than a SharePolicy allows: it did before there was this limit.
//
//	kind: condition
//	object: SharePolicy
//	written by: gshare-controller
//	values: True, False
const ConditionExceeded = "Exceeded"

// Tenant returns what the policy says of a namespace, and nil if that is nothing.
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

// LimitOf returns what the policy lets the pods of a namespace hold, and false if it says nothing of it. The API server has checked the quantities; one
// that is none allows nothing.
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
