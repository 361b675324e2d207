package v1alpha1

import (
	"net"
	"strconv"

	v1 "k8s.io/api/core/v1"
)

// Labels and annotations of the pods of a function, which gshare-controller makes and gateways read.
const (
	// LabelFunction is the name of the function whose requests the pod answers, which is in the pod's namespace. Users write it on pods that they make
	// themselves.
	//
	//	kind: label
	//	object: pod
	//	written by: gshare-controller, or user
	//	values: metadata.name of a GPUFunction
	//	default: none, no requests go to the pod
	//	example: serving.gshare.dev/function: resnet50
	LabelFunction = "serving.gshare.dev/function"

	// LabelInstance is the number of the replica that the pod is, as events and `kubectl gshare function` name it.
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

	// LabelTemplate changes with the share and the template of a FaSTPod without a function, so that pods of earlier ones are replaced.
	//
	//	kind: label
	//	object: pod of a FaSTPod
	//	written by: gshare-controller
	//	values: a hash
	//	default: none
	//	example: serving.gshare.dev/template: 7d4c9b2f
	LabelTemplate = "serving.gshare.dev/template"

	// LabelProfile is the name of the GPUProfile for which the pod is a server or a client of a trial.
	//
	//	kind: label
	//	object: pod
	//	written by: gshare-controller
	//	values: metadata.name of a GPUProfile
	//	default: none
	//	example: serving.gshare.dev/profile: resnet50
	LabelProfile = "serving.gshare.dev/profile"

	// AnnotationDrain tells gateways to send no new requests to the pod, which is about to end. Its value is when the drain began.
	//
	//	kind: annotation
	//	object: pod of a function
	//	written by: gshare-controller
	//	values: time in RFC 3339
	//	default: none
	//	example: serving.gshare.dev/drain: "2026-01-02T15:04:05Z"
	AnnotationDrain = "serving.gshare.dev/drain"

	// AnnotationMovesFrom is the number of the replica whose place the pod takes: one that is cut over several MIG instances, while this one has a
	// single instance. It is there from the creation on, so that the next controller goes on with the move if the first ends in between. Once that
	// replica has ended it says nothing.
	//
	//	kind: annotation
	//	object: pod of a function
	//	written by: gshare-controller
	//	values: the label serving.gshare.dev/instance of another pod
	//	default: none
	//	example: serving.gshare.dev/moves-from: "3"
	AnnotationMovesFrom = "serving.gshare.dev/moves-from"

	// AnnotationAtOnce is for how many times spec.scaling.concurrency requests the gateways send to the pod at once: one that is cut into parts over
	// several MIG instances works on a request in each of them. It is as few as let it answer almost as many as its slowest part can, and
	// no more than it answers within slo.latency.
	//
	//	kind: annotation
	//	object: pod of a function
	//	written by: gshare-controller
	//	values: a whole number from 1 to 64
	//	default: 1
	//	example: serving.gshare.dev/at-once: "3"
	AnnotationAtOnce = "serving.gshare.dev/at-once"

	// AnnotationRevision says in which order a function has come to use its FaSTPods. The greatest number is that of the present one.
	//
	//	kind: annotation
	//	object: FaSTPod of a function
	//	written by: gshare-controller
	//	values: a whole number from 1 on
	//	default: none
	//	example: serving.gshare.dev/revision: "2"
	AnnotationRevision = "serving.gshare.dev/revision"
)

// The port on which a pod of a function is to listen: the one with this name of its first container, or else this number.
const (
	PortName    = "serving"
	DefaultPort = 8080
)

// ContainerPort returns the port on which a pod of a function is to listen.
func ContainerPort(s *v1.PodSpec) int32 {
	if len(s.Containers) > 0 {
		for _, p := range s.Containers[0].Ports {
			if p.Name == PortName {
				return p.ContainerPort
			}
		}
	}
	return DefaultPort
}

// Address returns the host:port to which requests for a pod of a function go, and whether it accepts any: it is Ready and has an IP.
func Address(p *v1.Pod) (address string, ready bool) {
	if p.Status.PodIP == "" {
		return "", false
	}
	for _, c := range p.Status.Conditions {
		if c.Type == v1.PodReady {
			ready = c.Status == v1.ConditionTrue
		}
	}
	return net.JoinHostPort(p.Status.PodIP, strconv.Itoa(int(ContainerPort(&p.Spec)))), ready
}

// MaxAtOnce is the greatest value of AnnotationAtOnce.
const MaxAtOnce = 64

// AtOnce returns for how many times spec.scaling.concurrency requests a pod gets at once, as AnnotationAtOnce says: 1 if that is none of its values.
func AtOnce(p *v1.Pod) int {
	n, err := strconv.Atoi(p.Annotations[AnnotationAtOnce])
	if err != nil || n < 1 || n > MaxAtOnce {
		return 1
	}
	return n
}

// OnSilentNode reports whether a pod is not Ready only because nothing is heard of its node. The node controller says so of all pods of such a node,
// and of all pods of a cluster whose API server was away for a minute, until the kubelet corrects it: a kubelet never says of a pod whose containers
// are ready and whose readiness gates are passed that it is not Ready.
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

// The reasons of events that say what the autoscaler of a GPUFunction has decided. Their action is Create, Promote, Demote or Delete, their related object
// the pod.
const (
	// EventScaled says that the autoscaler has started or ended a replica, or put it in reserve or taken it out, and why.
	//
	//	kind: event
	//	object: GPUFunction
	//	type: Normal
	//	written by: gshare-controller
	//	to do: nothing; `kubectl gshare function` shows them in their order
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
	// ConditionReady is True while requests are answered, by a replica that is there or by one that starts for them; of a
	// FaSTPod, while all of its pods are Ready.
	//
	//	kind: condition
	//	object: GPUFunction, FaSTPod
	//	written by: gshare-controller
	//	values: True, False
	ConditionReady = "Ready"

	// ConditionBackingOff is True while each replica has failed and none is started for a while: gateways then refuse requests at once, with
	// the message.
	//
	//	kind: condition
	//	object: GPUFunction
	//	written by: gshare-controller
	//	values: True, or no such condition
	ConditionBackingOff = "BackingOff"

	// ConditionQuotaExceeded is True while a SharePolicy keeps a replica, or a pod of a FaSTPod, from being started. The message says which one, and
	// how much would be too much.
	//
	//	kind: condition
	//	object: GPUFunction, FaSTPod
	//	written by: gshare-controller
	//	values: True, or no such condition
	ConditionQuotaExceeded = "QuotaExceeded"

	// ConditionCannotPark is True while replicas are stopped instead of parked (scaling.keepWarm), since one could not be. The message says which one;
	// the events of its pod said why. It is tried again after a change of the function.
	//
	//	kind: condition
	//	object: GPUFunction
	//	written by: gshare-controller
	//	values: True, or no such condition
	ConditionCannotPark = "CannotPark"

	// ConditionScalingConflict is True while another autoscaler is told to scale a function that gshare scales, with reason ForeignScaler. What it
	// wants has no effect: gshare goes on.
	//
	//	kind: condition
	//	object: GPUFunction
	//	written by: gshare-controller
	//	values: True, or no such condition
	ConditionScalingConflict = "ScalingConflict"
)
