package v1alpha1

import (
	"net"
	"strconv"

	v1 "k8s.io/api/core/v1"
)

// Labels and annotations of the pods of a function, which gshare-controller makes and gateways read.
const (
	LabelFunction = "serving.gshare.dev/function" // name of the function, which is in the namespace of the pod; also of pods that users make
	LabelInstance = "serving.gshare.dev/instance" // number of the instance: scaling.ID
	LabelFaSTPod  = "serving.gshare.dev/fastpod"  // name of the FaSTPod, also of pods without a function
	LabelTemplate = "serving.gshare.dev/template" // changes with the share and the template of a FaSTPod without a function

	LabelProfile = "serving.gshare.dev/profile" // name of the GPUProfile whose trial the pod is part of

	// AnnotationDrain tells gateways to send no new requests to the pod. Its value is when the drain began (RFC 3339).
	AnnotationDrain = "serving.gshare.dev/drain"

	// AnnotationRevision of a FaSTPod of a function says by a number, from 1 on, in which order its function has come to use its FaSTPods. The
	// greatest is that of the present one.
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

// EventScaled is the reason of the events of a GPUFunction that say what its autoscaler has decided. Their action is Create, Promote, Demote or Delete,
// their related object the pod. EventScaledFromZero is that of the first replica of a function without any: a cold start.
const (
	EventScaled         = "Scaled"
	EventScaledFromZero = "ScaledFromZero"
)

// Conditions of a GPUFunction and their reasons.
const (
	ConditionReady = "Ready" // requests are answered, by a replica that is there or one that starts for them

	// ConditionBackingOff is True while each replica has failed and none is started for a while: gateways then refuse requests at once, with
	// the message.
	ConditionBackingOff = "BackingOff"

	// ConditionQuotaExceeded is True while a SharePolicy keeps a replica, or a pod of a FaSTPod, from being started. The message says which one, and
	// how much would be too much.
	ConditionQuotaExceeded = "QuotaExceeded"

	// ConditionScalingConflict is True while another autoscaler is told to scale a function that gshare scales, with reason ForeignScaler. What it
	// wants has no effect: gshare goes on.
	ConditionScalingConflict = "ScalingConflict"
)
