// Package kube is the only reader and writer of gshare resources, annotations, inventory and placement on Kubernetes
// objects. It does no I/O: callers bring the objects.
package kube

import (
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// The resources. All are whole numbers and totals of a container; limits equal requests.
const (
	ResourceSM     v1.ResourceName = share.FieldSM     // percentage points of slices' SMs
	ResourceQuota  v1.ResourceName = share.FieldQuota  // percent of every window
	ResourceMemory v1.ResourceName = share.FieldMemory // MiB
	ResourceVGPU   v1.ResourceName = share.FieldVGPU   // count; the only one with kubelet device IDs
	ResourceSMTime v1.ResourceName = share.FieldSMTime // sm x quota: 10,000 is one slice
)

// The annotations that a user may write on a pod.
const (
	AnnotationMemory      = share.FieldMemorySize // for each container that asks for a share and leaves gshare/mem out
	AnnotationSMLimit     = share.FieldSMLimit
	AnnotationQuotaLimit  = share.FieldQuotaLimit
	AnnotationClass       = share.FieldClass
	AnnotationIsolation   = share.FieldIsolation
	AnnotationModel       = share.FieldModel
	AnnotationWorkload    = share.FieldWorkload
	AnnotationSlice       = share.FieldSlice
	AnnotationEnforcement = share.FieldEnforcement
	AnnotationWeights     = share.FieldWeights // weights that each slice of the pod is to hold, once for all pods of the namespace
	AnnotationPacking     = share.FieldPacking

	AnnotationAntiAffinity = share.FieldAntiAffinity
)

// AnnotationContainerSlice followed by the name of a container means the same as AnnotationSlice, for that container alone.
const AnnotationContainerSlice = share.FieldContainerSlice

// The annotation by which users agree to have their pods moved.
const (
	// AnnotationRebalance is whether a pod may be evicted so that whole GPUs become free or a waiting pod fits. On a namespace, it applies to all pods
	// that do not set it themselves.
	//
	//	kind: annotation
	//	object: pod, namespace
	//	written by: user
	//	values: allow, never
	//	default: not moved
	//	example: gshare.dev/rebalance: allow
	AnnotationRebalance = "gshare.dev/rebalance"

	RebalanceAllow = "allow"
	RebalanceNever = "never"
)

// The annotations that gshare writes: the node agent on its node, the scheduler on a pod through its Binding.
const (
	// AnnotationInventory lists the slices (GPUs and MIG instances) that a node offers, with their SMs, memory, isolation classes and health. The
	// scheduler uses it to place pods.
	//
	//	kind: annotation
	//	object: node
	//	written by: node agent
	//	values: JSON, which `kubectl gshare map` shows as a drawing
	//	default: none, nothing is placed on a node without one
	//	example: gshare.dev/inventory: '{"v":1,"slices":[{"id":"GPU-0a","device":"GPU-0a","model":"A100","sms":108,"memoryMiB":81920,"healthy":true}]}'
	AnnotationInventory = "gshare.dev/inventory"

	// AnnotationPlacement names the slice and the share of each vGPU of a pod. It is written when the pod is bound to its node; the agent checks it
	// before it grants the share.
	//
	//	kind: annotation
	//	object: pod
	//	written by: scheduler
	//	values: JSON, which `kubectl gshare explain` shows as text
	//	default: none, the pod has no place yet
	//	example: kubectl get pod POD -o jsonpath='{.metadata.annotations.gshare\.dev/placement}'
	AnnotationPlacement = "gshare.dev/placement"
)

// The annotations of the residency protocol (package residency) on the pods of functions. gshare-controller writes a residency.Wanted, which says
// how ready to serve the pod is to be; the agent of its node writes a residency.Reached, which says how ready it is. ResidencyOf reads both.
const (
	// AnnotationResidency is how ready to serve the pod of a function should be: `Hot` serves with its own SM-time, `Shared` serves in idle time only,
	// `Warm` is parked with its data in host memory, and `Cold` ends.
	//
	//	kind: annotation
	//	object: pod of a function
	//	written by: gshare-controller
	//	values: JSON with a sequence number, a level, and whether no gateway sends requests any more
	//	default: none, the pod stays `Hot`
	//	example: gshare.dev/residency: '{"v":1,"residency":{"seq":3,"level":"Shared"}}'
	AnnotationResidency = "gshare.dev/residency"

	// AnnotationResidencyReached is how ready to serve the pod of a function is: the answer to `gshare.dev/residency`.
	//
	//	kind: annotation
	//	object: pod of a function
	//	written by: node agent
	//	values: JSON with the sequence number that is answered, the level, and whether the wanted one was refused
	//	default: none, the pod has not started
	//	example: gshare.dev/residency-reached: '{"v":1,"residency":{"seq":3,"level":"Shared"}}'
	AnnotationResidencyReached = "gshare.dev/residency-reached"
)

// AnnotationTrialQuota is the percentage of time that the server of a trial currently has: at most the quota of its share. This way, one server can
// be measured with several quotas. The agent reports what it enforces in `gshare.dev/enforcement-status`.
//
//	kind: annotation
//	object: pod of a GPUProfile
//	written by: gshare-controller
//	values: 1 to the quota of the share
//	default: none, the quota of the share
//	example: gshare.dev/trial-quota: "40"
const AnnotationTrialQuota = "gshare.dev/trial-quota"

// SchedulerName is the default gshare profile of the scheduler, for pods that request a share and name no other gshare profile.
const SchedulerName = "gshare"

// Errors that callers test for. An invalid request of a user is a *share.FieldError instead.
var (
	// ErrMalformed is the error for an inventory or placement that cannot be parsed or breaks a rule, and so must not be used for any decision.
	ErrMalformed = errors.New("malformed")
	// ErrForeign is the error for a well-formed placement that was made for another pod or another node.
	ErrForeign = errors.New("not of this pod")
)

// ResourcePrefix is the prefix of gshare's extended resources in the resource lists of containers and nodes.
const ResourcePrefix = "gshare/"

var resources = [...]v1.ResourceName{ResourceSM, ResourceQuota, ResourceMemory, ResourceVGPU, ResourceSMTime}

// malformedError returns an error that wraps ErrMalformed. It truncates the cause, which may quote an annotation of any length.
func malformedError(what, format string, args ...any) error {
	return fmt.Errorf("%s: %w: %.256s", what, ErrMalformed, fmt.Sprintf(format, args...))
}
