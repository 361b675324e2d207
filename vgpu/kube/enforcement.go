package kube

import (
	"encoding/json"
	"time"

	v1 "k8s.io/api/core/v1"
)

// AnnotationEnforcementStatus is the node agent's report on which mechanisms hold each container of a pod to its share, and what they leave open. It
// is meant for people. Only GPUProfiles use it: for the memory that they recommend, and for what programs do on the shares of their trials.
//
//	kind: annotation
//	object: pod
//	written by: node agent
//	values: JSON with memory, memoryPeakMiB, sms, time, identity, health and missing of each container, and the work of one of a trial
//	default: none, the share is not granted yet
//	example: kubectl get pod POD -o jsonpath='{.metadata.annotations.gshare\.dev/enforcement-status}'
const AnnotationEnforcementStatus = "gshare.dev/enforcement-status"

// EnforcementStatus is the node agent's report on the mechanisms that hold the containers of a pod to their shares. It is for people to read, because
// anyone who may change a pod can forge it. The only decisions made from it are those of GPUProfiles, about pods of the same owner.
type EnforcementStatus struct {
	Containers []ContainerEnforcement
}

// ContainerEnforcement is the node agent's report on the mechanisms that hold one container to its share.
type ContainerEnforcement struct {
	Name     string    `json:"name"`
	Since    time.Time `json:"since"`
	Memory   string    `json:"memory"`   // what bounds device memory
	SMs      string    `json:"sms"`      // what bounds the SMs in use
	Time     string    `json:"time"`     // what bounds the time on the device
	Identity string    `json:"identity"` // how its processes are identified
	Health   string    `json:"health,omitempty"`
	Missing  []string  `json:"missing,omitempty"` // what is not enforced, or does not work
	// MemoryPeakMiB is approximately the most device memory that the processes of the container have had on one GPU, by their own count. It may be too high
	// by up to 1/32, so that small changes cause no writes. It is 0 if they had none or have a GPU of their own, and starts over when the agent restarts.
	MemoryPeakMiB int64 `json:"memoryPeakMiB,omitempty"`
	// QuotaPercent is the part of the time that the container has for now, in percent, if AnnotationTrialQuota makes it less than its share says;
	// otherwise 0.
	QuotaPercent int64 `json:"quotaPercent,omitempty"`
	// Work is what the container has done lately, for a pod with AnnotationTrialQuota that is alone on a GPU that other pods could share; otherwise nil.
	Work *Work `json:"work,omitempty"`
}

type statusText struct {
	Version    int                    `json:"v"`
	Containers []ContainerEnforcement `json:"containers"`
}

// EncodeEnforcementStatus returns the annotation text of an enforcement status.
func EncodeEnforcementStatus(t EnforcementStatus) (string, error) {
	text, err := json.Marshal(statusText{formatVersion, t.Containers})
	return string(text), err
}

// EnforcementStatusOf decodes the enforcement status annotation of a pod; present is false if there is none. Errors wrap ErrMalformed.
func EnforcementStatusOf(pod *v1.Pod) (t EnforcementStatus, present bool, err error) {
	text, present := pod.Annotations[AnnotationEnforcementStatus]
	if !present {
		return EnforcementStatus{}, false, nil
	}
	var read statusText
	if err := decodeStrict(text, &read); err != nil {
		return EnforcementStatus{}, true, malformedError("enforced", "%v", err)
	}
	if read.Version != formatVersion {
		return EnforcementStatus{}, true, malformedError("enforced", "version %d is not %d", read.Version, formatVersion)
	}
	return EnforcementStatus{read.Containers}, true, nil
}
