// Package v1alpha1 defines GPUFunction: a server of models that gshare scales, with its latency objective and its share of a GPU.
package v1alpha1

import (
	"encoding/json"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// APIVersion and kind of a function.
const (
	APIVersion = "serving.gshare.dev/v1alpha1"
	Kind       = "GPUFunction"
)

// GPUFunction is a server of which there are as many replicas as the load needs, and none without load.
type GPUFunction struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Metadata   Metadata `json:"metadata"`
	Spec       Spec     `json:"spec"`
}

// Metadata names a function.
type Metadata struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace,omitempty"` // default "default"
}

// Spec is what the user wants of a function.
type Spec struct {
	SLO       SLO       `json:"slo"`
	Protocol  Protocol  `json:"protocol,omitempty"` // of the requests; default HTTP
	Batching  Batching  `json:"batching,omitzero"`
	Template  Template  `json:"template"`
	Resources Resources `json:"resources"`
	Scaling   Scaling   `json:"scaling"`
}

// SLO is the latency objective of a function.
type SLO struct {
	Latency Duration `json:"latency"` // for 99 % of the requests
}

// Protocol is the protocol of a function's requests.
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
	MaxBatch int `json:"maxBatch,omitempty"` // rows that a replica may get as one request; more than 1 only with OIP; default 1
}

// Template describes a replica, in the fields of a pod template.
type Template struct {
	Spec PodSpec `json:"spec"`
}

// PodSpec describes the processes of a replica.
type PodSpec struct {
	Containers []Container `json:"containers"` // exactly one
	// TerminationGracePeriodSeconds is how long a replica may take to end after SIGTERM. Before that, it gets as long to answer the requests
	// that it has. Default 30.
	TerminationGracePeriodSeconds *int64 `json:"terminationGracePeriodSeconds,omitempty"`
}

// Container is the server. It listens on the port that the variable PORT of its environment says, and gets requests as soon as it accepts
// connections, or its probes succeed: first the startup probe, then the readiness probe.
type Container struct {
	Name           string        `json:"name,omitempty"` // default "server"
	Command        []string      `json:"command"`
	Args           []string      `json:"args,omitempty"` // added to Command
	Env            []EnvVar      `json:"env,omitempty"`
	StartupProbe   *StartupProbe `json:"startupProbe,omitempty"`
	ReadinessProbe *Probe        `json:"readinessProbe,omitempty"`
}

// EnvVar is a variable of the environment.
type EnvVar struct {
	Name  string `json:"name"`
	Value string `json:"value,omitempty"`
}

// Probe is how to find out that a replica is ready.
type Probe struct {
	HTTPGet HTTPGet `json:"httpGet"`
}

// HTTPGet is a GET request to the replica's port. It succeeds with a status of 200 to 399.
type HTTPGet struct {
	Path string `json:"path"`
}

// StartupProbe is how to find out that a replica has started, and how long it may take, counted from the start of its program. Fields that are
// zero take the defaults of a pod.
type StartupProbe struct {
	HTTPGet             *HTTPGet `json:"httpGet,omitempty"`             // default: the port accepts a connection
	InitialDelaySeconds int64    `json:"initialDelaySeconds,omitempty"` // before the first probe; default 0
	PeriodSeconds       int64    `json:"periodSeconds,omitempty"`       // default 10
	FailureThreshold    int64    `json:"failureThreshold,omitempty"`    // periods after which the replica has failed; default 3
	TimeoutSeconds      int64    `json:"timeoutSeconds,omitempty"`      // of one probe; default 1
}

// InitialDelay returns how long the replica is left alone at first.
func (p *StartupProbe) InitialDelay() time.Duration {
	return time.Duration(p.InitialDelaySeconds) * time.Second
}

// Limit returns the time after InitialDelay within which the probe has to succeed.
func (p *StartupProbe) Limit() time.Duration {
	return time.Duration(p.PeriodSeconds*p.FailureThreshold) * time.Second
}

// Timeout returns the time after which a probe without an answer has failed.
func (p *StartupProbe) Timeout() time.Duration { return time.Duration(p.TimeoutSeconds) * time.Second }

// Resources is what each replica gets.
type Resources struct {
	Share Share `json:"share"`
}

// Share is a share of one GPU in the units of a pod.
type Share struct {
	SM         *int64   `json:"sm"`                   // percent of the GPU's SMs
	Quota      *int64   `json:"quota,omitempty"`      // guaranteed percent of the time; default 100
	QuotaLimit *int64   `json:"quotaLimit,omitempty"` // greatest percent of the time, where others leave it unused; default Quota
	Memory     Quantity `json:"memory"`               // of the device
}

// Scaling bounds the number of replicas and says what one can do.
type Scaling struct {
	MinReplicas int  `json:"minReplicas,omitempty"` // default 0: none without load
	MaxReplicas *int `json:"maxReplicas,omitempty"` // default 10

	RequestsPerSecond float64 `json:"requestsPerSecond"`     // that one replica answers within the objective
	Concurrency       *int    `json:"concurrency,omitempty"` // requests that a replica gets at once; default 1

	// Window is the span of the load samples, one a second, that decide. Replicas are added when the load of half of them is above what all
	// replicas can do, and one is given up when three quarters are below what one fewer could do. Default 40s.
	Window Duration `json:"window,omitempty"`
	// KeepShared is how long a replica that was given up stays in reserve before it is stopped. Default 30s.
	KeepShared Duration `json:"keepShared,omitempty"`
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

// Quantity is a Kubernetes quantity of bytes, such as "1525Mi".
type Quantity string

// Grace returns the termination grace period.
func (f *GPUFunction) Grace() time.Duration {
	return time.Duration(*f.Spec.Template.Spec.TerminationGracePeriodSeconds) * time.Second
}

// Container returns the container of the function's replicas.
func (f *GPUFunction) Container() *Container { return &f.Spec.Template.Spec.Containers[0] }

// Share returns the share of each replica. The function must be valid.
func (f *GPUFunction) Share() share.Share {
	s, _ := f.Spec.Resources.Share.share() // valid
	return s
}
