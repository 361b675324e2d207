package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// GPUProfileStatus is what was measured. It is all that gshare-controller knows: one that starts goes on from here.
type GPUProfileStatus struct {
	// observedGeneration is the metadata.generation of the specification that the rest of the status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// conditions are what holds of the profile now. Complete is True once nothing is left to measure; its reason says why not. Stale is True if
	// something has changed since, so that the profile may not hold any more.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// plan is a hash of what is measured. Trials of another plan cannot be compared.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Plan string `json:"plan,omitempty"`

	// fingerprint identifies what was measured, and on what.
	// +optional
	Fingerprint *ProfileFingerprint `json:"fingerprint,omitempty"`

	// trials is the number of points.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Trials int32 `json:"trials,omitempty"`

	// current is what is measured now, as kubectl get prints it.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Current string `json:"current,omitempty"`

	// gpuSeconds is how long a GPU was reserved for trials that were recorded.
	// +optional
	// +kubebuilder:validation:Minimum=0
	GPUSeconds int64 `json:"gpuSeconds,omitempty"`

	// targets is how many pods with the server were begun.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Targets int32 `json:"targets,omitempty"`

	// target is the share of the pod with the server that is measured; none if there is no such pod.
	// +optional
	Target *ProfileTarget `json:"target,omitempty"`

	// attempt is the trial that has begun; none if there is no such trial.
	// +optional
	Attempt *ProfileAttempt `json:"attempt,omitempty"`

	// points are the trials.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=200
	Points []ProfilePoint `json:"points,omitempty"`

	// recommended is the share that costs the least SM-time for a request within the objective; none if no share meets it.
	// +optional
	Recommended *ProfileRecommendation `json:"recommended,omitempty"`

	// completed is when the last measurement ended.
	// +optional
	Completed *metav1.Time `json:"completed,omitempty"`

	// replicasImage is the image that the function's replicas ran when the last measurement ended, with its digest; none if there were no replicas.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	ReplicasImage string `json:"replicasImage,omitempty"`
}

// ProfileFingerprint identifies what was measured, and on what.
type ProfileFingerprint struct {
	// image is that of the server with its digest, as the kubelet names it.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Image string `json:"image,omitempty"`

	// model is the model of the GPU.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Model string `json:"model,omitempty"`

	// sms is the number of the SMs of the GPU.
	// +optional
	// +kubebuilder:validation:Minimum=0
	SMs int32 `json:"sms,omitempty"`

	// memoryMiB is the memory of the GPU.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MemoryMiB int64 `json:"memoryMiB,omitempty"`

	// driver is the version of the GPU driver, if a label of the node says it (that of NVIDIA's GPU feature discovery).
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Driver string `json:"driver,omitempty"`

	// gshare is the version of gshare-controller.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Gshare string `json:"gshare,omitempty"`
}

// ProfileTarget is the share of the pod with the server.
type ProfileTarget struct {
	// number is that of the pod among those that were begun.
	// +required
	// +kubebuilder:validation:Minimum=1
	Number int32 `json:"number"`

	// sm is the percentage of the SMs.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	SM int64 `json:"sm"`

	// quota is the percentage of the time.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	Quota int64 `json:"quota"`
}

// ProfileAttempt is a trial that has begun on the target.
type ProfileAttempt struct {
	// batch is the number of rows of a request.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4096
	Batch int `json:"batch"`

	// confirm says that the trial is the best, and is measured again for longer.
	// +optional
	Confirm bool `json:"confirm,omitempty"`

	// count is how often it was begun since the server ended or failed.
	// +required
	// +kubebuilder:validation:Minimum=1
	Count int32 `json:"count"`

	// clients is how many pods that send the requests were begun.
	// +required
	// +kubebuilder:validation:Minimum=1
	Clients int32 `json:"clients"`

	// since is when the last of these was begun.
	// +required
	Since metav1.Time `json:"since"`
}

// ProfilePoint is one trial: a share, a batch, and what was measured. Times of a batch are those of a server that always has the next one.
// It has many fields since it is one row of a table.
type ProfilePoint struct {
	// sm is the percentage of the SMs.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	SM int64 `json:"sm"`

	// quota is the percentage of the time.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	Quota int64 `json:"quota"`

	// batch is the number of rows of a request.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4096
	Batch int `json:"batch"`

	// failed is why the server does not run on the share; then nothing was measured.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Failed string `json:"failed,omitempty"`

	// meanMicroseconds is the mean time of a batch.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MeanMicroseconds int64 `json:"meanMicroseconds,omitempty"`

	// p95Microseconds is the time within which 95 % of the batches were answered.
	// +optional
	// +kubebuilder:validation:Minimum=0
	P95Microseconds int64 `json:"p95Microseconds,omitempty"`

	// p99Microseconds is the time within which 99 % of the batches were answered.
	// +optional
	// +kubebuilder:validation:Minimum=0
	P99Microseconds int64 `json:"p99Microseconds,omitempty"`

	// plateau is how many rows a second were answered while there was always the next batch.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Plateau float64 `json:"plateau,omitempty"`

	// requestsPerSecond is the highest rate of rows at random times that was answered within the objective; 0: none.
	// +optional
	// +kubebuilder:validation:Minimum=0
	RequestsPerSecond float64 `json:"requestsPerSecond,omitempty"`

	// latencyP50Microseconds is the median latency at that rate, since a request was due.
	// +optional
	// +kubebuilder:validation:Minimum=0
	LatencyP50Microseconds int64 `json:"latencyP50Microseconds,omitempty"`

	// latencyP99Microseconds is the latency of 99 % at that rate.
	// +optional
	// +kubebuilder:validation:Minimum=0
	LatencyP99Microseconds int64 `json:"latencyP99Microseconds,omitempty"`

	// kernelsPerSecond is how many kernels a training launched in a second.
	// +optional
	// +kubebuilder:validation:Minimum=0
	KernelsPerSecond float64 `json:"kernelsPerSecond,omitempty"`

	// spreadPercent is by how much the kernels of some moments differed from that.
	// +optional
	// +kubebuilder:validation:Minimum=0
	SpreadPercent float64 `json:"spreadPercent,omitempty"`

	// gpuTimePercent is the part of the time in which one of its kernels ran, in the mean over the last minute of the trial or less. None if the agent
	// did not count it, as that of a server with the whole GPU.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	GPUTimePercent *int64 `json:"gpuTimePercent,omitempty"`

	// memoryMiB is the device memory that the server used, if it was measured.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MemoryMiB int64 `json:"memoryMiB,omitempty"`

	// clientLate says that the rate may be higher: the client was too slow to tell.
	// +optional
	ClientLate bool `json:"clientLate,omitempty"`

	// confirmed says that the rate was measured again for longer.
	// +optional
	Confirmed bool `json:"confirmed,omitempty"`

	// gpuSeconds is how long the GPU was reserved for the trial.
	// +optional
	// +kubebuilder:validation:Minimum=0
	GPUSeconds int64 `json:"gpuSeconds,omitempty"`
}
