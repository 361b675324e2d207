// Package v1alpha1 defines the objects of the serving API: GPUFunction, a model server that gshare scales, with its latency objective and its share
// of a GPU; FaSTPod, replicas that all have the same share; GPUProfile, a measurement of how large a share a server needs; SharePolicy, which limits
// what the pods of a namespace hold; and InferencePlan, a plan of how to serve functions of one model together.
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
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gshare-dev/gshare/serving/rules/scaling"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// APIVersion and kinds of the objects.
const (
	APIVersion  = "serving.gshare.dev/v1alpha1"
	Kind        = "GPUFunction"
	FaSTPodKind = "FaSTPod"
	ProfileKind = "GPUProfile"
)

// GPUFunction is a server that runs as many replicas as its load needs, and none without load.
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

	// metadata names the function. Requests address it by this name, in their host.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec is the desired state of the function.
	// +required
	Spec GPUFunctionSpec `json:"spec"`

	// status is the observed state of the function.
	// +optional
	Status GPUFunctionStatus `json:"status,omitzero"`
}

// GPUFunctionList is a list of GPUFunctions.
//
// +kubebuilder:object:root=true
type GPUFunctionList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []GPUFunction `json:"items"`
}

// GPUFunctionSpec is the desired state of a function.
//
// +kubebuilder:validation:XValidation:rule="self.batching.maxBatch <= 1 || self.protocol == 'OIP'",fieldPath=".batching.maxBatch",message="want 1: only requests of protocol OIP are joined"
// +kubebuilder:validation:XValidation:rule="!has(self.slo.timePerToken) || self.protocol == 'OpenAI'",fieldPath=".slo.timePerToken",message="want protocol OpenAI, whose answers have tokens"
// +kubebuilder:validation:XValidation:rule="!has(self.model) || !has(self.model.aliases) || self.protocol == 'OpenAI'",fieldPath=".model",message="want protocol OpenAI, whose requests name a model"
// +kubebuilder:validation:XValidation:rule="self.scaling.autoscaler == 'External' || has(self.template)",fieldPath=".template",message="want a template, unless scaling.autoscaler is External"
// +kubebuilder:validation:XValidation:rule="self.scaling.autoscaler != 'External' || !has(self.template) && !has(self.resources)",fieldPath=".scaling.autoscaler",message="External: want neither template nor resources, which are those of the pods that another autoscaler scales"
// +kubebuilder:validation:XValidation:rule="self.scaling.autoscaler != 'External' || has(self.scaling.requestsPerSecond)",fieldPath=".scaling.requestsPerSecond",message="want what one replica answers, as scaling.autoscaler is External"
// +kubebuilder:validation:XValidation:rule="!has(self.template) || self.template.spec.containers.size() == 1",fieldPath=".template.spec.containers",message="want 1 container, the server; others can be initContainers with restartPolicy Always"
// +kubebuilder:validation:XValidation:rule="!has(self.template) || self.template.spec.containers.all(c, has(c.image) && c.image.size() > 0)",fieldPath=".template.spec.containers",message="want an image in each container"
// +kubebuilder:validation:XValidation:rule="self.scaling.shares != 'Mixed' || has(self.profileRef)",fieldPath=".scaling.shares",message="Mixed: want a profileRef, whose profile measures the shares"
// +kubebuilder:validation:XValidation:rule="!has(self.pipeline) || self.scaling.autoscaler != 'External' && !has(self.profileRef) && !(has(self.resources) && has(self.resources.share)) && has(self.scaling.requestsPerSecond) && !has(self.scaling.keepWarm)",fieldPath=".pipeline",message="want scaling.requestsPerSecond with it, and neither resources.share, profileRef, scaling.keepWarm nor another autoscaler"
// +kubebuilder:validation:XValidation:rule="!has(self.scaling.keepWarm) || self.?resources.?share.?gpus.orValue(1) == 1",fieldPath=".scaling.keepWarm",message="want none with several GPUs: only replicas with one can be parked"
// +kubebuilder:validation:XValidation:rule="!has(self.profileRef) || self.scaling.autoscaler != 'External' && !(has(self.resources) && has(self.resources.share)) && !has(self.scaling.requestsPerSecond)",fieldPath=".profileRef",message="want neither resources.share nor scaling.requestsPerSecond, which are those of the profile, and no other autoscaler"
type GPUFunctionSpec struct {
	// slo is the latency objective. A request is in time if its answer meets all of it.
	// +required
	SLO SLO `json:"slo"`

	// protocol is the protocol of the requests. HTTP: any. OIP: the Open Inference Protocol, whose requests can be batched. OpenAI: completions and
	// embeddings; the objective applies to the first byte, in a stream to the first event with content.
	// +optional
	// +kubebuilder:default=HTTP
	Protocol Protocol `json:"protocol,omitempty"`

	// idempotent says that a request may be served twice: it is sent to another replica if the one that had it broke off before it answered. Without
	// it, only GET, HEAD, OPTIONS, and requests with an Idempotency-Key are.
	// +optional
	Idempotent bool `json:"idempotent,omitempty"`

	// model describes the model that the function serves. Only with protocol OpenAI.
	// +optional
	Model Model `json:"model,omitzero"`

	// batching says how requests are joined into batches.
	// +optional
	// +kubebuilder:default={}
	Batching Batching `json:"batching,omitzero"`

	// template is the pod template of a replica. Its one container listens on $PORT, and gets requests once its startupProbe and readinessProbe succeed
	// or, without probes, once it accepts connections.
	// +optional
	Template v1.PodTemplateSpec `json:"template,omitzero"`

	// resources are the GPU resources of each replica.
	// +optional
	Resources Resources `json:"resources,omitzero"`

	// profileRef names the GPUProfile that provides the share, rate and batch size, once it is complete. If it does not exist, gshare creates it for
	// this function. Only in a cluster. Without profileRef, a function with protocol OIP, or with a request, uses the GPUProfile of its own name if it
	// sets neither resources.share nor scaling.requestsPerSecond.
	// +optional
	ProfileRef *ProfileReference `json:"profileRef,omitempty"`

	// request is what gshare sends to a replica to measure it. Without it, a function with protocol OIP gets zeros, in the shapes that the metadata of
	// its model describes. With it, a function of any protocol uses the GPUProfile of its own name if it sets none of resources.share,
	// scaling.requestsPerSecond and profileRef.
	// +optional
	Request *ProfileRequest `json:"request,omitempty"`

	// pipeline lets gshare split a replica into stages, each on a MIG instance of its own, when no free instance can hold all of it. Only in a cluster,
	// and for servers that run python -m gshare serve.
	// +optional
	Pipeline *Pipeline `json:"pipeline,omitempty"`

	// scaling bounds the number of replicas and says how much one replica can serve.
	// +optional
	// +kubebuilder:default={}
	Scaling Scaling `json:"scaling,omitzero"`

	// access says who may call the function. Defaults to the pods of its namespace.
	// +optional
	Access Access `json:"access,omitzero"`
}

// Model describes the model of a function with protocol OpenAI.
type Model struct {
	// aliases are names of the model in requests, besides the function's name: those that the server knows, such as meta-llama/Llama-3.1-8B, or its
	// adapters. In namespaces other than default, requests add .NAMESPACE, as to the name.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.all(n, n.matches('^[A-Za-z0-9]([-A-Za-z0-9_.:/@+]*[A-Za-z0-9])?$'))",message="want letters, digits and any of -_.:/@+ between them"
	Aliases []string `json:"aliases,omitempty"`
}

// Access says who may call a function. On a single machine, everyone who can reach the gateway may.
type Access struct {
	// namespaces are the namespaces whose pods and service accounts may call the function, in addition to its own. '*' allows everyone who can reach the
	// gateway.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.all(n, n == '*' || n.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$'))",message="want names of namespaces, or '*' for everybody"
	Namespaces []string `json:"namespaces,omitempty"`
}

// SLO is the latency objective of a function.
type SLO struct {
	// latency is the time within which 99 % of the requests should be answered, from 1ms to 1h, such as 69ms. A request that would be late is refused.
	// +required
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+([.][0-9]*)?(ns|us|µs|ms|s|m|h))+$') && duration(self) >= duration('1ms') && duration(self) <= duration('1h')",message="want a duration of 1ms to 1h, such as 69ms"
	Latency Duration `json:"latency"`

	// timePerToken is the mean time between the tokens of a streamed answer, from the first one to the last one, within which it is in time, from 1ms
	// to 1h, such as 50ms. Only with protocol OpenAI. No request is refused for it.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+([.][0-9]*)?(ns|us|µs|ms|s|m|h))+$') && duration(self) >= duration('1ms') && duration(self) <= duration('1h')",message="want a duration of 1ms to 1h, such as 50ms"
	TimePerToken Duration `json:"timePerToken,omitempty"`
}

// Protocol is the protocol of a function's requests.
//
// +kubebuilder:validation:Enum=HTTP;OIP;OpenAI
type Protocol string

// The protocols. HTTP is any. OIP is the Open Inference Protocol, whose requests can be joined into batches. OpenAI is the protocol of chat
// completions, where the objective applies to the first byte of the response, in a stream to the first event with content.
const (
	HTTP   Protocol = "HTTP"
	OIP    Protocol = "OIP"
	OpenAI Protocol = "OpenAI"
)

// Batching says how requests are joined into batches.
type Batching struct {
	// maxBatch is the maximum number of rows (inputs) that a replica gets in one request. More than 1 requires protocol OIP.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4096
	MaxBatch int `json:"maxBatch,omitempty"`
}

// Resources are the GPU resources of each replica.
type Resources struct {
	// share is the share of a GPU that each replica gets. Required on a single machine. In a cluster, if it is not set, gshare chooses one that meets
	// the objective.
	// +optional
	Share *Share `json:"share,omitempty"`
}

// Share is a share of one GPU, or of each of several GPUs, in the units that pods use for a share of one.
//
// +kubebuilder:validation:XValidation:rule="self.?quotaLimit.orValue(100) >= self.?quota.orValue(100)",fieldPath=".quotaLimit",message="want at least the quota, which is 100 by default"
// +kubebuilder:validation:XValidation:rule="self.?smLimit.orValue(100) >= self.sm",fieldPath=".smLimit",message="want at least sm"
// +kubebuilder:validation:XValidation:rule="self.?smLimit.orValue(self.sm) == self.sm || self.?quota.orValue(100) == 100",fieldPath=".smLimit",message="above sm, it needs quota 100"
// +kubebuilder:validation:XValidation:rule="self.?gpus.orValue(1) == 1 || self.sm == 100 && self.?quota.orValue(100) == 100",fieldPath=".gpus",message="with several GPUs, want sm 100 and quota 100: a process can share one GPU only"
type Share struct {
	// sm is the percentage of the GPU's SMs, like gshare/sm of a pod with one GPU.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	SM *int64 `json:"sm"`

	// smLimit is the percentage of SMs that a replica may use while other pods leave them idle. Defaults to sm. With a limit above sm, the replica has
	// isolation class elastic.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	SMLimit *int64 `json:"smLimit,omitempty"`

	// quota is the guaranteed percentage of GPU time, like gshare/quota of a pod.
	// +optional
	// +kubebuilder:default=100
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	Quota *int64 `json:"quota,omitempty"`

	// quotaLimit is the percentage of GPU time that a replica may use while other pods leave it unused. Defaults to quota.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	QuotaLimit *int64 `json:"quotaLimit,omitempty"`

	// memory is the device memory, with a unit, from 1Mi to 1Pi, such as 1525Mi. Fractions of a MiB are rounded up.
	// +required
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^[+]?[0-9.]{1,32}([eE][+-]?[0-9]{1,2}|[A-Za-z]{0,2})$') && isQuantity(self) && quantity(self).compareTo(quantity('1Mi')) >= 0 && quantity(self).compareTo(quantity('1Pi')) <= 0",message="want a quantity of 1Mi to 1Pi, such as 1525Mi"
	Memory Quantity `json:"memory"`

	// gpus is the number of GPUs, all of one node, of each of which a replica gets this share. sm and quota must be 100 if there are several. The pod
	// asks for the sums over its GPUs. Defaults to 1.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=64
	GPUs int64 `json:"gpus,omitempty"`
}

// Autoscaler is what decides how many replicas a function has.
//
// +kubebuilder:validation:Enum=Native;External
type Autoscaler string

// The autoscalers. Native is gshare, which also creates the pods. External is another one, such as KEDA or a HorizontalPodAutoscaler: gshare reports
// how many replicas the function needs, and sends its requests to the pods with its label, whoever creates them.
const (
	Native   Autoscaler = "Native"
	External Autoscaler = "External"
)

// Scaling bounds the number of replicas and says how much one replica can serve.
//
// +kubebuilder:validation:XValidation:rule="self.?maxReplicas.orValue(10) >= self.?minReplicas.orValue(0)",fieldPath=".maxReplicas",message="want at least minReplicas; the default is 10"
// +kubebuilder:validation:XValidation:rule="!has(self.scaleOutVotes) || self.scaleOutVotes <= duration(self.window).getSeconds()",fieldPath=".scaleOutVotes",message="want at most the seconds of the window"
// +kubebuilder:validation:XValidation:rule="!has(self.scaleInVotes) || self.scaleInVotes < duration(self.window).getSeconds()",fieldPath=".scaleInVotes",message="want less than the seconds of the window"
type Scaling struct {
	// autoscaler decides how many replicas there are. Native: gshare. External: another autoscaler, of pods that gshare does not create: all in the
	// namespace with the label serving.gshare.dev/function.
	// +optional
	// +kubebuilder:default=Native
	Autoscaler Autoscaler `json:"autoscaler,omitempty"`

	// minReplicas is the minimum number of replicas, which run even without load.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	MinReplicas int `json:"minReplicas,omitempty"`

	// maxReplicas is the maximum number of replicas.
	// +optional
	// +kubebuilder:default=10
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	MaxReplicas *int `json:"maxReplicas,omitempty"`

	// shares says which shares the replicas have. Single: all have the function's share. Mixed: any share that the profile has measured; requires
	// profileRef. Mixed runs as many replicas with the recommended share as the load keeps busy, and one with the smallest share that serves the rest.
	// +optional
	// +kubebuilder:default=Single
	Shares ReplicaShares `json:"shares,omitempty"`

	// requestsPerSecond is the rate that one replica can serve within the objective. Required on a single machine. In a cluster, gshare measures it if
	// it is not set.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self >= 0.001",message="want at least 0.001"
	// +kubebuilder:validation:Maximum=1000000
	RequestsPerSecond float64 `json:"requestsPerSecond,omitempty"` // a rule, not a minimum: the API server drops the fraction of a minimum and takes 0

	// concurrency is the number of requests that a replica gets at once. The others wait in the gateway, earliest deadline first.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	Concurrency *int `json:"concurrency,omitempty"`

	// window is the period of load samples, one per second, that scaling looks at: 2s to 1h. If one of them (scaleOutVotes) exceeds what all replicas
	// can serve, replicas are added. If more than half (scaleInVotes) are below what one replica fewer could serve, one is given up.
	// +optional
	// +kubebuilder:default="10s"
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+([.][0-9]*)?(ns|us|µs|ms|s|m|h))+$') && duration(self) >= duration('2s') && duration(self) <= duration('1h')",message="want a duration of 2s to 1h, such as 10s"
	Window Duration `json:"window,omitempty"`

	// scaleOutVotes is how many samples of the window must exceed what the replicas can serve before replicas are added. Defaults to 1, which adds them at
	// once.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=3600
	ScaleOutVotes *int `json:"scaleOutVotes,omitempty"`

	// scaleInVotes gives up replicas when more than this number of samples of the window show that fewer suffice. Defaults to half of the
	// window. One less than the window keeps replicas for a whole window after they were needed.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=3599
	ScaleInVotes *int `json:"scaleInVotes,omitempty"`

	// keepShared is how long a replica that was given up stays in reserve before it is stopped: 1ms to 24h, and up to eight times as long where the
	// load has come back later than that. It gets requests only when the others are
	// busy, and serves again at once when the load rises.
	// +optional
	// +kubebuilder:default="2m"
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+([.][0-9]*)?(ns|us|µs|ms|s|m|h))+$') && duration(self) >= duration('1ms') && duration(self) <= duration('24h')",message="want a duration of 1ms to 24h, such as 2m"
	KeepShared Duration `json:"keepShared,omitempty"`

	// keepWarm is how long a replica stays parked after its time in reserve: 1s to 168h. If not set, none is parked. Only in a cluster, for servers that
	// support it: Triton and vLLM. A parked server releases its GPU memory and keeps its process.
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
	MixedShares ReplicaShares = "Mixed"  // replicas have any of the shares that the profile has measured (FaST-GShare, Algorithm 1)
)

// Samples returns the number of load samples of a window, one a second.
func (s *Scaling) Samples() int { return int(s.Window.Value() / time.Second) }

// Votes returns how many samples of the window add replicas, and the number that samples have to exceed to give replicas up.
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

// UnmarshalJSON implements json.Unmarshaler. It accepts any value: one that is not a string is kept as written, so that validation can name its
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

// StartLimit returns the time within which a startup probe must succeed, after its initial delay. The probe must come from Decode.
func StartLimit(p *v1.Probe) time.Duration {
	return time.Duration(p.PeriodSeconds) * time.Duration(p.FailureThreshold) * time.Second
}

// Grace returns the termination grace period. The function must come from Decode or CompleteForCluster.
func (f *GPUFunction) Grace() time.Duration {
	return time.Duration(*f.Spec.Template.Spec.TerminationGracePeriodSeconds) * time.Second
}

// Container returns the container of the function's replicas. The function must be valid and not External.
func (f *GPUFunction) Container() *v1.Container { return &f.Spec.Template.Spec.Containers[0] }

// Share returns the share of each replica. The function must come from Decode or CompleteForCluster.
func (f *GPUFunction) Share() share.Share {
	s, _ := f.Spec.Resources.Share.share() // valid
	return s
}

// InTurn reports whether the replicas of the function take turns with those of other functions in holding the memory of their slices. One replica of
// a function is enough.
func (f *GPUFunction) InTurn() bool {
	return f.Spec.Template.Annotations[share.FieldIsolation] == string(share.Swap)
}

// MayServe reports whether the replicas of the function can serve the requests of another one in its namespace whose status says so: both have the
// same template and protocol, and neither is scaled by another autoscaler. A function that is itself served by another serves nobody.
func (f *GPUFunction) MayServe(other *GPUFunction) bool {
	return f.Namespace == other.Namespace && f.Name != other.Name && f.Status.ServedBy == "" && f.DeletionTimestamp == nil &&
		f.GPUs() == 1 && other.GPUs() == 1 && f.Spec.Protocol == other.Spec.Protocol && !f.External() && !other.External() && equality.Semantic.DeepEqual(f.Spec.Template, other.Spec.Template)
}

func (f *GPUFunction) name() types.NamespacedName {
	return types.NamespacedName{Namespace: f.Namespace, Name: f.Name}
}

// GPUs returns the number of GPUs of each replica.
func (f *GPUFunction) GPUs() int64 { return f.Spec.Resources.Share.Count() }

// Count returns the number of GPUs of which it is a share. That is 1 for no share.
func (s *Share) Count() int64 {
	if s == nil {
		return 1
	}
	return max(1, s.GPUs)
}
