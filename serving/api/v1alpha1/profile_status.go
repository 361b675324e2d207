package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// GPUProfileStatus is what was measured. gshare-controller keeps no other state: after a restart, it continues from here.
type GPUProfileStatus struct {
	// observedGeneration is the metadata.generation of the spec that the rest of the status describes.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// conditions are the current conditions. Complete is True once nothing is left to measure; otherwise its reason says why. Stale is True if the
	// profile may no longer hold, because something has changed.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// plan is a hash of what is measured. Trials of different plans cannot be compared.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Plan string `json:"plan,omitempty"`

	// fingerprint identifies what was measured, and on what.
	// +optional
	Fingerprint *ProfileFingerprint `json:"fingerprint,omitempty"`

	// trials is the number of trials in points.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Trials int32 `json:"trials,omitempty"`

	// current is what is being measured, as kubectl get prints it.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Current string `json:"current,omitempty"`

	// gpuSeconds is how many seconds a GPU was reserved for the recorded trials.
	// +optional
	// +kubebuilder:validation:Minimum=0
	GPUSeconds int64 `json:"gpuSeconds,omitempty"`

	// targets is how many pods with the server have been started.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Targets int32 `json:"targets,omitempty"`

	// target is the share of the server pod that is being measured. Not set if there is no such pod.
	// +optional
	Target *ProfileTarget `json:"target,omitempty"`

	// attempt is the trial in progress. Not set if there is none.
	// +optional
	Attempt *ProfileAttempt `json:"attempt,omitempty"`

	// points are the results of the trials.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=200
	Points []ProfilePoint `json:"points,omitempty"`

	// recommended is the share that costs the least SM-time per request within the objective. Not set if no share meets it.
	// +optional
	Recommended *ProfileRecommendation `json:"recommended,omitempty"`

	// completed is when the last measurement ended.
	// +optional
	Completed *metav1.Time `json:"completed,omitempty"`

	// replicasImage is the image, with its digest, that the function's replicas ran when the last measurement ended or, if none was ready, before. Not set if unknown.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	ReplicasImage string `json:"replicasImage,omitempty"`
}

// ProfileFingerprint identifies what was measured, and on what.
type ProfileFingerprint struct {
	// image is the image of the server with its digest, as the kubelet reports it.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Image string `json:"image,omitempty"`

	// model is the model of the GPU.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Model string `json:"model,omitempty"`

	// sms is the number of SMs of the GPU.
	// +optional
	// +kubebuilder:validation:Minimum=0
	SMs int32 `json:"sms,omitempty"`

	// memoryMiB is the memory of the GPU.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MemoryMiB int64 `json:"memoryMiB,omitempty"`

	// driver is the version of the GPU driver, if the node has the label for it that NVIDIA's GPU feature discovery sets.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Driver string `json:"driver,omitempty"`

	// gshare is the version of gshare-controller.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Gshare string `json:"gshare,omitempty"`
}

// ProfileTarget is the share of the server pod.
type ProfileTarget struct {
	// number is the number of this pod among the server pods that have been started.
	// +required
	// +kubebuilder:validation:Minimum=1
	Number int32 `json:"number"`

	// sm is the percentage of SMs.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	SM int64 `json:"sm"`

	// quota is the percentage of GPU time.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	Quota int64 `json:"quota"`
}

// ProfileAttempt is a trial in progress on the target.
type ProfileAttempt struct {
	// batch is the number of rows in a request.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4096
	Batch int `json:"batch"`

	// confirm says that this trial was the best and is being measured again for longer.
	// +optional
	Confirm bool `json:"confirm,omitempty"`

	// count is how often the trial was started: once, and again each time the server ended or failed.
	// +required
	// +kubebuilder:validation:Minimum=1
	Count int32 `json:"count"`

	// clients is how many client pods, which send the requests, have been started.
	// +required
	// +kubebuilder:validation:Minimum=1
	Clients int32 `json:"clients"`

	// since is when the last client pod was started.
	// +required
	Since metav1.Time `json:"since"`
}

// ProfilePoint is the result of one trial: a share, a batch, and what was measured. Batch times are those of a server that always has the next batch.
// It has many fields because it is one row of a table.
type ProfilePoint struct {
	// sm is the percentage of SMs.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	SM int64 `json:"sm"`

	// quota is the percentage of GPU time.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	Quota int64 `json:"quota"`

	// batch is the number of rows in a request.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4096
	Batch int `json:"batch"`

	// failed is why the server does not run with this share. Nothing was measured then.
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

	// plateau is the number of rows answered per second while there was always a next batch.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Plateau float64 `json:"plateau,omitempty"`

	// requestsPerSecond is the highest rate of rows, arriving at random, that was answered within the objective; 0 if there is none.
	// +optional
	// +kubebuilder:validation:Minimum=0
	RequestsPerSecond float64 `json:"requestsPerSecond,omitempty"`

	// latencyP50Microseconds is the median latency at that rate, from when a request was due.
	// +optional
	// +kubebuilder:validation:Minimum=0
	LatencyP50Microseconds int64 `json:"latencyP50Microseconds,omitempty"`

	// latencyP99Microseconds is the 99th percentile of the latency at that rate.
	// +optional
	// +kubebuilder:validation:Minimum=0
	LatencyP99Microseconds int64 `json:"latencyP99Microseconds,omitempty"`

	// kernelsPerSecond is how many kernels a training job launched per second.
	// +optional
	// +kubebuilder:validation:Minimum=0
	KernelsPerSecond float64 `json:"kernelsPerSecond,omitempty"`

	// spreadPercent is by how much the kernel rate at some moments differed from that.
	// +optional
	// +kubebuilder:validation:Minimum=0
	SpreadPercent float64 `json:"spreadPercent,omitempty"`

	// gpuTimePercent is the percentage of time in which a kernel of it ran, averaged over the last minute of the trial or less. Not set if the agent did
	// not count it, as for a server with the whole GPU.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	GPUTimePercent *int64 `json:"gpuTimePercent,omitempty"`

	// memoryMiB is the device memory that the server used, if it was measured.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MemoryMiB int64 `json:"memoryMiB,omitempty"`

	// clientLate says that the client was too slow to tell whether the rate could be higher.
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
