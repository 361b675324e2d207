package v1alpha1

import (
	"net"
	"strconv"

	v1 "k8s.io/api/core/v1"

	"github.com/gshare-dev/gshare/vgpu/kube"
)

// Labels and annotations of the pods of a function, which gshare-controller writes and gateways read.
const (
	// LabelFunction is the name of the function, in the pod's namespace, whose requests the pod answers. Users set it on pods that they create
	// themselves.
	//
	//	kind: label
	//	object: pod
	//	written by: gshare-controller, or user
	//	values: metadata.name of a GPUFunction
	//	default: none, no requests go to the pod
	//	example: serving.gshare.dev/function: resnet50
	LabelFunction = "serving.gshare.dev/function"

	// LabelInstance is the number of the replica, as in events and in the output of `kubectl gshare function`.
	//
	//	kind: label
	//	object: pod of a function
	//	written by: gshare-controller
	//	values: a whole number
	//	default: none
	//	example: serving.gshare.dev/instance: "3"
	LabelInstance = "serving.gshare.dev/instance" // scaling.ID

	// LabelFaSTPod is the name of the FaSTPod that the pod belongs to.
	//
	//	kind: label
	//	object: pod
	//	written by: gshare-controller
	//	values: metadata.name of a FaSTPod
	//	default: none
	//	example: serving.gshare.dev/fastpod: resnet50-r616371r
	LabelFaSTPod = "serving.gshare.dev/fastpod"

	// LabelTemplate changes with the share and the template of a FaSTPod without a function, so that pods with earlier ones are replaced.
	//
	//	kind: label
	//	object: pod of a FaSTPod
	//	written by: gshare-controller
	//	values: a hash
	//	default: none
	//	example: serving.gshare.dev/template: 7d4c9b2f
	LabelTemplate = "serving.gshare.dev/template"

	// LabelProfile is the name of the GPUProfile that the pod belongs to, as the server or a client of a trial.
	//
	//	kind: label
	//	object: pod
	//	written by: gshare-controller
	//	values: metadata.name of a GPUProfile
	//	default: none
	//	example: serving.gshare.dev/profile: resnet50
	LabelProfile = "serving.gshare.dev/profile"

	// AnnotationDrain tells gateways to send no new requests to the pod, because it is about to end. Its value is the time at which the drain began.
	//
	//	kind: annotation
	//	object: pod of a function
	//	written by: gshare-controller
	//	values: time in RFC 3339
	//	default: none
	//	example: serving.gshare.dev/drain: "2026-01-02T15:04:05Z"
	AnnotationDrain = "serving.gshare.dev/drain"

	// AnnotationMovesFrom is the number of the replica that the pod replaces: one that is split over several MIG instances, while this pod has a single
	// instance. It is set when the pod is created, so that the next controller continues the move if the first one ends. Once the replaced replica has
	// ended, it means nothing.
	//
	//	kind: annotation
	//	object: pod of a function
	//	written by: gshare-controller
	//	values: the label serving.gshare.dev/instance of another pod
	//	default: none
	//	example: serving.gshare.dev/moves-from: "3"
	AnnotationMovesFrom = "serving.gshare.dev/moves-from"

	// AnnotationAtOnce multiplies spec.scaling.concurrency for the pod: the gateways send it that many requests at once, because a pod that is split
	// over several MIG instances works on a request in each part. It is the smallest factor with which the pod answers almost as many requests as its
	// slowest part can, and no more than it can answer within slo.latency.
	//
	//	kind: annotation
	//	object: pod of a function
	//	written by: gshare-controller
	//	values: a whole number from 1 to 64
	//	default: 1
	//	example: serving.gshare.dev/at-once: "3"
	AnnotationAtOnce = "serving.gshare.dev/at-once"

	// AnnotationRevision numbers the FaSTPods of a function in the order in which the function has used them. The greatest number is that of the current
	// one.
	//
	//	kind: annotation
	//	object: FaSTPod of a function
	//	written by: gshare-controller
	//	values: a whole number from 1 on
	//	default: none
	//	example: serving.gshare.dev/revision: "2"
	AnnotationRevision = "serving.gshare.dev/revision"
)

// Address returns the host:port to which requests for a pod of a function go, and whether the pod accepts requests: it is Ready and has an IP.
func Address(p *v1.Pod) (address string, ready bool) {
	if p.Status.PodIP == "" {
		return "", false
	}
	for _, c := range p.Status.Conditions {
		if c.Type == v1.PodReady {
			ready = c.Status == v1.ConditionTrue
		}
	}
	return net.JoinHostPort(p.Status.PodIP, strconv.Itoa(int(kube.ServerPort(&p.Spec)))), ready
}

// MaxAtOnce is the maximum value of AnnotationAtOnce.
const MaxAtOnce = 64

// AtOnce returns the factor by which AnnotationAtOnce multiplies spec.scaling.concurrency for a pod: 1 if the value is missing or invalid.
func AtOnce(p *v1.Pod) int {
	n, err := strconv.Atoi(p.Annotations[AnnotationAtOnce])
	if err != nil || n < 1 || n > MaxAtOnce {
		return 1
	}
	return n
}

// OnSilentNode reports whether a pod is not Ready only because its node is silent. The node controller marks all pods of such a node not Ready, and
// all pods of a cluster whose API server was away for a minute, until the kubelet corrects it. A kubelet itself never marks a pod not Ready if its
// containers are ready and its readiness gates are passed.
func OnSilentNode(p *v1.Pod) bool {
	status := map[v1.PodConditionType]v1.ConditionStatus{}
	for _, c := range p.Status.Conditions {
		status[c.Type] = c.Status
	}
	for _, gate := range p.Spec.ReadinessGates {
		if status[gate.ConditionType] != v1.ConditionTrue {
			return false
		}
	}
	return status[v1.PodReady] == v1.ConditionFalse && status[v1.ContainersReady] == v1.ConditionTrue
}

// The reasons of events that say what the autoscaler of a GPUFunction has decided. Their action is Create, Promote, Demote or Delete; their related
// object is the pod.
const (
	// EventScaled says that the autoscaler has started or ended a replica, or moved it into or out of reserve, and why.
	//
	//	kind: event
	//	object: GPUFunction
	//	type: Normal
	//	written by: gshare-controller
	//	to do: nothing; `kubectl gshare function` lists them in order
	EventScaled = "Scaled"

	// EventScaledFromZero says that a request has started the first replica: a cold start.
	//
	//	kind: event
	//	object: GPUFunction
	//	type: Normal
	//	written by: gshare-controller
	//	to do: nothing; `scaling.minReplicas: 1` avoids cold starts
	EventScaledFromZero = "ScaledFromZero"
)

// Conditions of a GPUFunction and their reasons.
const (
	// ConditionReady is True while requests are answered, by a running replica or by one that starts for them. For a FaSTPod, it is True while all of
	// its pods are Ready.
	//
	//	kind: condition
	//	object: GPUFunction, FaSTPod
	//	written by: gshare-controller
	//	values: True, False
	ConditionReady = "Ready"

	// ConditionBackingOff is True while every replica has failed and no new one is started for a while. Gateways then refuse requests at once, with the
	// message.
	//
	//	kind: condition
	//	object: GPUFunction
	//	written by: gshare-controller
	//	values: True, or no such condition
	ConditionBackingOff = "BackingOff"

	// ConditionQuotaExceeded is True while a SharePolicy keeps a replica, or a pod of a FaSTPod, from being started. The message names the policy and
	// says by how much the limit would be exceeded.
	//
	//	kind: condition
	//	object: GPUFunction, FaSTPod
	//	written by: gshare-controller
	//	values: True, or no such condition
	ConditionQuotaExceeded = "QuotaExceeded"

	// ConditionCannotPark is True while replicas are stopped instead of parked (scaling.keepWarm), because one of them could not be parked. The message
	// says which one; events of its pod say why. Parking is tried again after the function changes.
	//
	//	kind: condition
	//	object: GPUFunction
	//	written by: gshare-controller
	//	values: True, or no such condition
	ConditionCannotPark = "CannotPark"

	// ConditionScalingConflict is True, with reason ForeignScaler, while another autoscaler targets a function that gshare scales. What the other one
	// wants has no effect: gshare keeps scaling the function.
	//
	//	kind: condition
	//	object: GPUFunction
	//	written by: gshare-controller
	//	values: True, or no such condition
	ConditionScalingConflict = "ScalingConflict"
)
