// Package v1alpha1 defines the objects of serving: GPUFunction, a server of models that gshare scales, with its latency objective and its share
// of a GPU; FaSTPod, replicas that all have one share; GPUProfile, the measurement of how large a share a server needs; SharePolicy, which limits what
// the pods of a namespace hold; and InferencePlan, a plan of how functions of one model are served together.
//
// The comments of types and fields are what kubectl explain prints, up to 200 characters of each. make crds writes manifests/serving from them.
//
// +groupName=serving.gshare.dev
// +kubebuilder:object:generate=true
package v1alpha1

import (
	"encoding/json"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gshare-dev/gshare/vgpu/scaling"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// APIVersion and kinds of the objects.
const (
	APIVersion  = "serving.gshare.dev/v1alpha1"
	Kind        = "GPUFunction"
	FaSTPodKind = "FaSTPod"
	ProfileKind = "GPUProfile"
)

// GPUFunction is a server of which there are as many replicas as the load needs, and none without load.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=gpufunctions,singular=gpufunction,shortName=gfn,categories=gshare
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="SLO",type=string,JSONPath=`.spec.slo.latency`
// +kubebuilder:printcolumn:name="P99",type=string,JSONPath=`.status.observed.p99`
// +kubebuilder:printcolumn:name="Hit",type=string,JSONPath=`.status.observed.hit`
// +kubebuilder:printcolumn:name="RPS",type=string,JSONPath=`.status.observed.requestsPerSecond`
// +kubebuilder:printcolumn:name="Pods",type=string,JSONPath=`.status.pods`
// +kubebuilder:printcolumn:name="Share",type=string,JSONPath=`.status.share`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 50 && self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="metadata.name: want 1 to 50 lower-case letters, digits and '-', with a letter or digit at both ends"
type GPUFunction struct {
	metav1.TypeMeta `json:",inline"`

	// metadata names the function: requests name it by their host.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec is what the user wants of the function.
	// +required
	Spec GPUFunctionSpec `json:"spec"`

	// status is what the cluster observes of the function.
	// +optional
	Status GPUFunctionStatus `json:"status,omitzero"`
}

// GPUFunctionList is a list of functions.
//
// +kubebuilder:object:root=true
type GPUFunctionList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []GPUFunction `json:"items"`
}

// GPUFunctionSpec is what the user wants of a function.
//
// +kubebuilder:validation:XValidation:rule="self.batching.maxBatch <= 1 || self.protocol == 'OIP'",fieldPath=".batching.maxBatch",message="want 1: only requests of protocol OIP are joined"
// +kubebuilder:validation:XValidation:rule="self.scaling.autoscaler == 'External' || has(self.template)",fieldPath=".template",message="want a template, unless scaling.autoscaler is External"
// +kubebuilder:validation:XValidation:rule="self.scaling.autoscaler != 'External' || !has(self.template) && !has(self.resources)",fieldPath=".scaling.autoscaler",message="External: want neither template nor resources, which are those of the pods that another autoscaler scales"
// +kubebuilder:validation:XValidation:rule="self.scaling.autoscaler != 'External' || has(self.scaling.requestsPerSecond)",fieldPath=".scaling.requestsPerSecond",message="want what one replica answers, as scaling.autoscaler is External"
// +kubebuilder:validation:XValidation:rule="!has(self.template) || self.template.spec.containers.size() == 1",fieldPath=".template.spec.containers",message="want 1 container, the server; others can be initContainers with restartPolicy Always"
// +kubebuilder:validation:XValidation:rule="!has(self.template) || self.template.spec.containers.all(c, has(c.image) && c.image.size() > 0)",fieldPath=".template.spec.containers",message="want an image in each container"
// +kubebuilder:validation:XValidation:rule="self.scaling.shares != 'Mixed' || has(self.profileRef)",fieldPath=".scaling.shares",message="Mixed: want a profileRef, whose profile measures the shares"
// +kubebuilder:validation:XValidation:rule="!has(self.pipeline) || self.scaling.autoscaler != 'External' && !has(self.profileRef) && !(has(self.resources) && has(self.resources.share)) && has(self.scaling.requestsPerSecond) && !has(self.scaling.keepWarm)",fieldPath=".pipeline",message="want scaling.requestsPerSecond with it, and neither resources.share, profileRef, scaling.keepWarm nor another autoscaler"
// +kubebuilder:validation:XValidation:rule="!has(self.profileRef) || self.scaling.autoscaler != 'External' && !(has(self.resources) && has(self.resources.share)) && !has(self.scaling.requestsPerSecond)",fieldPath=".profileRef",message="want neither resources.share nor scaling.requestsPerSecond, which are those of the profile, and no other autoscaler"
type GPUFunctionSpec struct {
	// slo is the latency objective.
	// +required
	SLO SLO `json:"slo"`

	// protocol is that of the requests. HTTP: any. OIP: the Open Inference Protocol, whose requests can be joined. OpenAI: completions and
	// embeddings, with the objective for the first byte.
	// +optional
	// +kubebuilder:default=HTTP
	Protocol Protocol `json:"protocol,omitempty"`

	// batching says how requests are joined.
	// +optional
	// +kubebuilder:default={}
	Batching Batching `json:"batching,omitzero"`

	// template describes a replica. Its one container listens on the port in the variable PORT, and gets requests once its startupProbe and
	// readinessProbe succeed or, without any, it accepts connections.
	// +optional
	Template v1.PodTemplateSpec `json:"template,omitzero"`

	// resources is what each replica gets.
	// +optional
	Resources Resources `json:"resources,omitzero"`

	// profileRef names the GPUProfile whose share, rate and batch the function has, once it is complete. If there is no such profile, one of this
	// function is made. Without it, a function of protocol OIP, or with a request, that says neither resources.share nor scaling.requestsPerSecond has
	// that of its own name. Only in a cluster.
	// +optional
	ProfileRef *ProfileReference `json:"profileRef,omitempty"`

	// request is what gshare asks a replica in order to measure it. With it, a function of any protocol that says neither resources.share nor
	// scaling.requestsPerSecond nor profileRef has the GPUProfile of its own name. Without it, one of protocol OIP is asked zeros, as the metadata of its
	// model describe them.
	// +optional
	Request *ProfileRequest `json:"request,omitempty"`

	// pipeline lets gshare cut a replica into stages, each on a MIG instance of its own, where no instance that is free holds all of it. Only in a
	// cluster, and for servers that run python -m gshare serve.
	// +optional
	Pipeline *Pipeline `json:"pipeline,omitempty"`

	// scaling bounds the number of replicas and says what one can do.
	// +optional
	// +kubebuilder:default={}
	Scaling Scaling `json:"scaling,omitzero"`

	// access says who may call the function: by default the pods of its namespace.
	// +optional
	Access Access `json:"access,omitzero"`
}

// Access says who may call a function. On one machine everybody may who reaches the gateway.
type Access struct {
	// namespaces are those whose pods and service accounts may call the function, beside its own. '*' lets everybody who reaches the gateway.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.all(n, n == '*' || n.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$'))",message="want names of namespaces, or '*' for everybody"
	Namespaces []string `json:"namespaces,omitempty"`
}

// SLO is the latency objective of a function.
type SLO struct {
	// latency is the time within which 99 % of the requests are to be answered, such as 69ms: 1ms to 1h. A request that would be late is refused.
	// +required
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+([.][0-9]*)?(ns|us|µs|ms|s|m|h))+$') && duration(self) >= duration('1ms') && duration(self) <= duration('1h')",message="want a duration of 1ms to 1h, such as 69ms"
	Latency Duration `json:"latency"`
}

// Protocol is the protocol of a function's requests.
//
// +kubebuilder:validation:Enum=HTTP;OIP;OpenAI
type Protocol string

// The protocols. HTTP is any. OIP is the Open Inference Protocol, whose requests can be joined; OpenAI is that of chat completions, where the
// objective is that of the first byte of the answer.
const (
	HTTP   Protocol = "HTTP"
	OIP    Protocol = "OIP"
	OpenAI Protocol = "OpenAI"
)

// Batching says how requests are joined.
type Batching struct {
	// maxBatch is how many rows (inputs) a replica may get as one request. More than 1 needs protocol OIP.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4096
	MaxBatch int `json:"maxBatch,omitempty"`
}

// Resources is what each replica gets.
type Resources struct {
	// share is the share of a GPU. On one machine it is required. In a cluster, without it, gshare chooses one that meets the objective.
	// +optional
	Share *Share `json:"share,omitempty"`
}

// Share is a share of one GPU in the units of a pod.
//
// +kubebuilder:validation:XValidation:rule="self.?quotaLimit.orValue(100) >= self.?quota.orValue(100)",fieldPath=".quotaLimit",message="want at least the quota, which is 100 by default"
// +kubebuilder:validation:XValidation:rule="self.?smLimit.orValue(100) >= self.sm",fieldPath=".smLimit",message="want at least sm"
// +kubebuilder:validation:XValidation:rule="self.?smLimit.orValue(self.sm) == self.sm || self.?quota.orValue(100) == 100",fieldPath=".smLimit",message="above sm, it needs quota 100"
type Share struct {
	// sm is the percentage of the GPU's SMs, as gshare/sm of a pod.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	SM *int64 `json:"sm"`

	// smLimit is the greatest percentage of the SMs, which a replica gets where others leave them idle: then it is of class elastic. Without it, it is sm.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	SMLimit *int64 `json:"smLimit,omitempty"`

	// quota is the guaranteed percentage of the time, as gshare/quota of a pod.
	// +optional
	// +kubebuilder:default=100
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	Quota *int64 `json:"quota,omitempty"`

	// quotaLimit is the greatest percentage of the time, which a replica gets where others leave it unused. Without it, it is the quota.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	QuotaLimit *int64 `json:"quotaLimit,omitempty"`

	// memory is that of the device, with a unit: 1Mi to 1Pi, such as 1525Mi. Parts of a MiB are rounded up.
	// +required
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^[+]?[0-9.]{1,32}([eE][+-]?[0-9]{1,2}|[A-Za-z]{0,2})$') && isQuantity(self) && quantity(self).compareTo(quantity('1Mi')) >= 0 && quantity(self).compareTo(quantity('1Pi')) <= 0",message="want a quantity of 1Mi to 1Pi, such as 1525Mi"
	Memory Quantity `json:"memory"`
}

// Autoscaler is who decides how many replicas a function has.
//
// +kubebuilder:validation:Enum=Native;External
type Autoscaler string

// The autoscalers. Native is gshare, which makes the pods. External is another one, such as KEDA or a HorizontalPodAutoscaler: gshare says how many
// replicas the function needs, and sends its requests to the pods with its label, whoever makes them.
const (
	Native   Autoscaler = "Native"
	External Autoscaler = "External"
)

// Scaling bounds the number of replicas and says what one can do.
//
// +kubebuilder:validation:XValidation:rule="self.?maxReplicas.orValue(10) >= self.?minReplicas.orValue(0)",fieldPath=".maxReplicas",message="want at least minReplicas; the default is 10"
// +kubebuilder:validation:XValidation:rule="!has(self.scaleOutVotes) || self.scaleOutVotes <= duration(self.window).getSeconds()",fieldPath=".scaleOutVotes",message="want at most the seconds of the window"
// +kubebuilder:validation:XValidation:rule="!has(self.scaleInVotes) || self.scaleInVotes < duration(self.window).getSeconds()",fieldPath=".scaleInVotes",message="want less than the seconds of the window"
type Scaling struct {
	// autoscaler decides how many replicas there are. Native: gshare. External: another one, of pods that are not gshare's: all those in the
	// namespace with the label serving.gshare.dev/function.
	// +optional
	// +kubebuilder:default=Native
	Autoscaler Autoscaler `json:"autoscaler,omitempty"`

	// minReplicas is the number of replicas that are there without load.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	MinReplicas int `json:"minReplicas,omitempty"`

	// maxReplicas is the greatest number of replicas.
	// +optional
	// +kubebuilder:default=10
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	MaxReplicas *int `json:"maxReplicas,omitempty"`

	// shares says which shares the replicas have. Single: all that of the function. Mixed: any of those that its profile has measured: as many
	// replicas of the recommended one as the load keeps busy, and one of the smallest that answers the rest. Mixed needs a profileRef.
	// +optional
	// +kubebuilder:default=Single
	Shares ReplicaShares `json:"shares,omitempty"`

	// requestsPerSecond is what one replica answers within the objective. On one machine it is required. In a cluster, without it, gshare
	// measures it.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self >= 0.001",message="want at least 0.001"
	// +kubebuilder:validation:Maximum=1000000
	RequestsPerSecond float64 `json:"requestsPerSecond,omitempty"` // a rule and no minimum, of which the API server drops the fraction for 0

	// concurrency is how many requests a replica gets at once. The others wait in the gateway, earliest deadline first.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	Concurrency *int `json:"concurrency,omitempty"`

	// window is the span of the load samples, one a second, that decide: 2s to 1h. Half of them (scaleOutVotes) above what all replicas can
	// do add replicas; three quarters (scaleInVotes) below what one fewer could do give one up.
	// +optional
	// +kubebuilder:default="20s"
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+([.][0-9]*)?(ns|us|µs|ms|s|m|h))+$') && duration(self) >= duration('2s') && duration(self) <= duration('1h')",message="want a duration of 2s to 1h, such as 20s"
	Window Duration `json:"window,omitempty"`

	// scaleOutVotes is the number of samples of the window that add replicas: 1 for a rise at once. Without it, half of the window.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=3600
	ScaleOutVotes *int `json:"scaleOutVotes,omitempty"`

	// scaleInVotes is the number of samples of the window than which more give replicas up. One less than the window keeps replicas for as
	// long as the window after they were needed. Without it, three quarters of the window.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=3599
	ScaleInVotes *int `json:"scaleInVotes,omitempty"`

	// keepShared is how long a replica that was given up stays in reserve before it is stopped: 1ms to 24h. It gets requests only when the
	// others are busy, and serves again at once when the load rises.
	// +optional
	// +kubebuilder:default="30s"
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+([.][0-9]*)?(ns|us|µs|ms|s|m|h))+$') && duration(self) >= duration('1ms') && duration(self) <= duration('24h')",message="want a duration of 1ms to 24h, such as 30s"
	KeepShared Duration `json:"keepShared,omitempty"`

	// keepWarm is how long a replica stays parked after its time in reserve: 1s to 168h. Its server gives the memory of the GPU back
	// and keeps its process. Without it none is parked. Only in a cluster, for servers that can: Triton and vLLM.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+([.][0-9]*)?(ns|us|µs|ms|s|m|h))+$') && duration(self) >= duration('1s') && duration(self) <= duration('168h')",message="want a duration of 1s to 168h, such as 10m"
	KeepWarm Duration `json:"keepWarm,omitempty"`
}

// ReplicaShares says which shares the replicas of a function have.
//
// +kubebuilder:validation:Enum=Single;Mixed
type ReplicaShares string

// The values of Scaling.Shares.
const (
	SingleShare ReplicaShares = "Single" // all replicas have the share of the function
	MixedShares ReplicaShares = "Mixed"  // replicas have shares that the profile has measured (FaST-GShare, Algorithm 1)
)

// Samples returns the number of load samples of a window, one a second.
func (s *Scaling) Samples() int { return int(s.Window.Value() / time.Second) }

// Votes returns how many samples of the window add replicas, and the number than which more give replicas up.
func (s *Scaling) Votes() (out, in int) {
	out, in = scaling.Votes(s.Samples())
	if s.ScaleOutVotes != nil {
		out = *s.ScaleOutVotes
	}
	if s.ScaleInVotes != nil {
		in = *s.ScaleInVotes
	}
	return out, in
}

// Duration is a duration as users write it, such as "69ms".
type Duration string

// UnmarshalJSON implements json.Unmarshaler. It takes every value: one that is no string is kept as it is written, so that validation names its
// field.
func (d *Duration) UnmarshalJSON(text []byte) error {
	if string(text) == "null" {
		return nil
	}
	if json.Unmarshal(text, (*string)(d)) != nil {
		*d = Duration(text)
	}
	return nil
}

// Value returns the duration, or 0 if it is not valid.
func (d Duration) Value() time.Duration {
	value, _ := time.ParseDuration(string(d)) // 0 on an error
	return value
}

// StartLimit returns the time within which a startup probe has to succeed, after its initial delay. The probe must be one of Decode.
func StartLimit(p *v1.Probe) time.Duration {
	return time.Duration(p.PeriodSeconds) * time.Duration(p.FailureThreshold) * time.Second
}

// Grace returns the termination grace period. The function must be one of Decode or CompleteForCluster.
func (f *GPUFunction) Grace() time.Duration {
	return time.Duration(*f.Spec.Template.Spec.TerminationGracePeriodSeconds) * time.Second
}

// Container returns the container of the function's replicas. The function must be valid and not External.
func (f *GPUFunction) Container() *v1.Container { return &f.Spec.Template.Spec.Containers[0] }

// Share returns the share of each replica. The function must be one of Decode or CompleteForCluster.
func (f *GPUFunction) Share() share.Share {
	s, _ := f.Spec.Resources.Share.share() // valid
	return s
}
