// Package grant decides which container gets which part of the node's GPUs. It has no sockets, files or clocks: from the kubelet's records
// and the pod's request it computes a grant or a refusal.
package grant

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gshare-dev/gshare/vgpu/api/versioned"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/residency"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Owner identifies the container that holds a grant.
type Owner struct {
	UID       types.UID // of the pod
	Namespace string
	Name      string // of the pod
	Container string
}

// ID returns an identifier of the container that is unique while its pod exists. It is short because it is part of socket paths, which are
// limited to 107 bytes.
func (o Owner) ID() string {
	sum := sha256.Sum256([]byte(string(o.UID) + "\n" + o.Container))
	return hex.EncodeToString(sum[:8])
}

// String returns namespace/pod/container, for logs.
func (o Owner) String() string { return o.Namespace + "/" + o.Name + "/" + o.Container }

// Grant is the share of the node's GPUs that the agent has given to a container. Only its residency changes: other changes of the pod's
// annotations have no effect.
type Grant struct {
	Owner
	DeviceIDs []string // sorted
	// ResourceClaim is the claim through which the container has the share. Its UID is empty for a share that gshare-scheduler placed.
	ResourceClaim ResourceClaim
	Model         kube.FitModel
	VGPUs         []kube.PlacedVGPU
	Weights       []share.Weights // held by its slices beside the share's own memory, as placed with the pod
	AntiAffinity  string          // key that no other share of the namespace on the same devices has, as placed with the pod
	Since         time.Time
	// BestEffort is true if the pod accepts that its share is not enforced. Its enforcement status lists what is not.
	BestEffort bool
	// Residency is the level that the container has reached, and the latest request for a level that has been answered. It is the zero value
	// for a container that is always Hot.
	Residency residency.Reached
}

// ResourceClaim identifies a resource claim and its allocation.
type ResourceClaim struct {
	UID      types.UID   `json:"uid"`
	Name     string      `json:"name"`     // in the namespace of its pod
	ShareIDs []types.UID `json:"shareIDs"` // one for each vGPU
}

// ByClaim reports whether the container has its share through a resource claim.
func (g *Grant) ByClaim() bool { return g.ResourceClaim.UID != "" }

// Level returns the level of the container, which is never Cold.
func (g *Grant) Level() residency.Level {
	if g.Residency.Level == residency.Cold {
		return residency.Hot
	}
	return g.Residency.Level
}

// Record returns Residency in the form that package residency expects: there, the record of a started container is never Cold.
func (g *Grant) Record() residency.Reached {
	r := g.Residency
	r.Level = g.Level()
	return r
}

// Class returns the isolation class of the grant, which is the same on all of its slices.
func (g *Grant) Class() share.Isolation { return g.VGPUs[0].Class }

// Holds reports whether the grant has exactly these device IDs, in any order.
func (g *Grant) Holds(deviceIDs []string) bool {
	return slices.Equal(g.DeviceIDs, slices.Sorted(slices.Values(deviceIDs)))
}

// Claim is a container that is about to start, with the device IDs that the kubelet has recorded for it. For a container that uses
// a resource claim, it has the claim's allocation, and device IDs that stand for that (ClaimDeviceIDs).
type Claim struct {
	Pod       *v1.Pod
	Container string
	DeviceIDs []string

	ResourceClaim ResourceClaim     // empty UID: the placement by gshare-scheduler applies
	Allocated     []kube.PlacedVGPU // what is allocated to the resource claim
}

// byResourceClaim reports whether the container gets its share through a resource claim.
func (c Claim) byResourceClaim() bool { return c.ResourceClaim.UID != "" }

// ClaimDeviceIDs returns the names that stand for the n vGPUs of a resource claim, as device IDs do for other vGPUs. No other claim ever has the
// same names.
func ClaimDeviceIDs(claim types.UID, n int) (deviceIDs []string) {
	for i := range n {
		deviceIDs = append(deviceIDs, fmt.Sprintf("claim-%s-%d", claim, i))
	}
	return deviceIDs
}

// Owner returns the identity of the claim's container.
func (c Claim) Owner() Owner { return Owner{c.Pod.UID, c.Pod.Namespace, c.Pod.Name, c.Container} }

// grantOf returns the grant that follows from the claim's allocation or the pod's placement. It returns a refusal if the placement is for
// another pod or node, or differs from what the containers request. It does not check whether the grant fits beside others.
func (c Claim) grantOf(node string) (Grant, *Refusal) {
	if c.byResourceClaim() {
		return Grant{
			Owner: c.Owner(), DeviceIDs: slices.Sorted(slices.Values(c.DeviceIDs)), ResourceClaim: c.ResourceClaim, Model: kube.Slots, VGPUs: c.Allocated,
		}, nil
	}
	request, _, err := kube.RequestOf(c.Pod)
	if err != nil {
		return Grant{}, refuse(Forged, "the pod's request cannot be read: %v", err)
	}
	placement, present, err := kube.PlacementOf(c.Pod)
	switch {
	case !present:
		return Grant{}, refuse(NotPlaced, "the pod has no placement: delete it and create it again with "+
			"schedulerName: %s and without nodeName; static pods cannot have a share", kube.SchedulerName)
	case err != nil:
		return Grant{}, refuse(Forged, "%v: only the scheduler may write it; delete the pod and create it again", err)
	case placement.Node != node:
		return Grant{}, refuse(Forged, "the placement is for node %.64s, not for %s: delete the pod and create it again", placement.Node, node)
	case !kube.Satisfies(placement, request):
		return Grant{}, refuse(Forged, "the placement is not what the pod's resources ask for: delete the pod and create it again")
	}
	i := slices.IndexFunc(placement.Containers, func(p kube.PlacedContainer) bool { return p.Name == c.Container })
	if i < 0 || len(placement.Containers[i].VGPUs) != len(c.DeviceIDs) {
		return Grant{}, refuse(Forged, "the placement of container %s does not have %d vGPUs", c.Container, len(c.DeviceIDs))
	}
	return Grant{
		Owner: c.Owner(), DeviceIDs: slices.Sorted(slices.Values(c.DeviceIDs)), Model: placement.Model,
		VGPUs: placement.Containers[i].VGPUs, Weights: placement.Weights, AntiAffinity: placement.AntiAffinity,
		BestEffort: request.Enforcement == share.BestEffortEnforcement,
	}, nil
}

// recordVersion is the version of the grant records on disk. If an agent finds an unknown version, it makes the grant again from the
// kubelet's record and the pod's placement.
//
// Version 1 has no residency: the container is Hot. So an agent that knows only version 1 still reads the grants of all pods that are not
// instances of functions. Version 3 is for grants by resource claims. An agent that does not know it removes the record, and the kubelet
// asks it to prepare the claim again.
const (
	recordVersion          = 1
	residencyRecordVersion = 2
	claimRecordVersion     = 3
)

// record is the content of the file grant.json. Its format is a contract with later agents: see testdata.
type record struct {
	Version    int             `json:"version"`
	UID        types.UID       `json:"uid"`
	Namespace  string          `json:"namespace"`
	Name       string          `json:"name"`
	DeviceIDs  []string        `json:"tickets"`
	Since      time.Time       `json:"since"`
	BestEffort bool            `json:"bestEffort,omitempty"`
	Placement  json.RawMessage `json:"placement"` // of the container alone, as in the pod's annotation

	Residency     *residency.Reached `json:"residency,omitempty"`     // in version 2
	ResourceClaim *ResourceClaim     `json:"resourceClaim,omitempty"` // in version 3
}

// Encode returns the record of a grant on the named node, as Decode parses it.
func Encode(g Grant, node string) ([]byte, error) {
	placement, err := kube.EncodePlacement(kube.Placement{
		Node: node, UID: g.UID, Model: g.Model, Containers: []kube.PlacedContainer{{Name: g.Container, VGPUs: g.VGPUs}},
		Weights: g.Weights, AntiAffinity: g.AntiAffinity,
	})
	if err != nil {
		return nil, fmt.Errorf("encode grant of %s: %w", g.Owner, err)
	}
	r := record{
		Version: recordVersion, UID: g.UID, Namespace: g.Namespace, Name: g.Name, DeviceIDs: g.DeviceIDs, Since: g.Since, BestEffort: g.BestEffort,
		Placement: json.RawMessage(placement),
	}
	switch {
	case g.ByClaim():
		r.Version, r.ResourceClaim = claimRecordVersion, &g.ResourceClaim
	case g.Residency != (residency.Reached{}):
		r.Version, r.Residency = residencyRecordVersion, &g.Residency
	}
	return json.Marshal(r)
}

// Decode parses a record that Encode returned. It returns an error for records of other versions.
func Decode(text []byte) (Grant, error) {
	var r record
	var err error
	for _, version := range []int{recordVersion, residencyRecordVersion, claimRecordVersion} {
		r = record{}
		err = versioned.Decode(text, version, &r)
		if _, other := errors.AsType[*versioned.UnsupportedError](err); !other {
			break
		}
	}
	if err != nil {
		return Grant{}, fmt.Errorf("decode grant: %w", err)
	}
	p, err := kube.DecodePlacement(string(r.Placement))
	switch {
	case err != nil:
		return Grant{}, fmt.Errorf("decode grant: %w", err)
	case p.UID != r.UID || len(p.Containers) != 1 || len(p.Containers[0].VGPUs) != len(r.DeviceIDs):
		return Grant{}, errors.New("decode grant: the placement is not that of the grant")
	case (r.Version == claimRecordVersion) != (r.ResourceClaim != nil),
		r.ResourceClaim != nil && (r.ResourceClaim.UID == "" || len(r.ResourceClaim.ShareIDs) != len(r.DeviceIDs)):
		return Grant{}, errors.New("decode grant: no valid resource claim")
	case (r.Version == residencyRecordVersion) != (r.Residency != nil), r.Residency != nil && r.Residency.Level == residency.Cold:
		return Grant{}, errors.New("decode grant: no valid residency")
	}
	g := Grant{
		Owner: Owner{r.UID, r.Namespace, r.Name, p.Containers[0].Name}, DeviceIDs: r.DeviceIDs, Model: p.Model,
		VGPUs: p.Containers[0].VGPUs, Weights: p.Weights, AntiAffinity: p.AntiAffinity, Since: r.Since, BestEffort: r.BestEffort,
	}
	if r.ResourceClaim != nil {
		g.ResourceClaim = *r.ResourceClaim
	}
	if r.Residency != nil {
		g.Residency = *r.Residency
	}
	return g, nil
}

// Reason is the machine-readable reason of a Refusal, used for the Kubernetes event on the pod. The kubelet retries the container start
// until the pod is deleted.
type Reason string

// The reasons of refusals.
const (
	// NotPlaced says that the pod has no placement: it was placed by another scheduler, or by none.
	//
	//	kind: event
	//	object: pod
	//	type: Warning
	//	written by: node agent
	//	to do: delete the pod and create it again with `gshare` as `spec.schedulerName` and without `spec.nodeName`
	NotPlaced Reason = "GPUShareNotPlaced"

	// Forged says that the placement was not made for this pod, node or request.
	//
	//	kind: event
	//	object: pod
	//	type: Warning
	//	written by: node agent
	//	to do: delete the pod, so that it is created and placed again. Only the scheduler may write `gshare.dev/placement`: find out what
	//	  else wrote it
	Forged Reason = "GPUPlacementForged"

	// UnsafePod says that fields of the pod, such as host namespaces or mounts, would let it bypass its share.
	//
	//	kind: event
	//	object: pod
	//	type: Warning
	//	written by: node agent
	//	to do: remove what the message names
	UnsafePod Reason = "GPUShareUnsafe"

	// UnknownSlice says that the node no longer has the GPU or MIG instance of the placement.
	//
	//	kind: event
	//	object: pod
	//	type: Warning
	//	written by: node agent
	//	to do: delete the pod, so that it is created and placed again
	UnknownSlice Reason = "GPUSliceUnknown"

	// OtherInterface says that the GPU is offered through resource claims but the pod requests `gshare/*`, or the other way round.
	//
	//	kind: event
	//	object: pod
	//	type: Warning
	//	written by: node agent
	//	to do: delete the pod, so that it is created and placed again
	OtherInterface Reason = "GPUOtherInterface"

	// InUse says that a process without a share uses the GPU.
	//
	//	kind: event
	//	object: pod
	//	type: Warning
	//	written by: node agent
	//	to do: stop the process that the message names, or remove the GPU from `devices` in the agent's configuration
	InUse Reason = "GPUSliceInUse"

	// DoesNotFit says that the share does not fit beside the shares already granted on the GPU. Often one of them belongs to a pod that has ended but
	// whose processes still run.
	//
	//	kind: event
	//	object: pod
	//	type: Warning
	//	written by: node agent
	//	to do: wait for the kubelet to try again; the message says what is missing
	DoesNotFit Reason = "GPUShareDoesNotFit"

	// AmbiguousDeviceIDs says that the kubelet's records do not name one container to which the share belongs.
	//
	//	kind: event
	//	object: pod
	//	type: Warning
	//	written by: node agent
	//	to do: wait for the kubelet to try again; if the event persists, delete the pod
	AmbiguousDeviceIDs Reason = "GPUDeviceIDsAmbiguous"

	// Closed says that the GPU currently takes no new containers because its MPS daemon does not serve.
	//
	//	kind: event
	//	object: pod
	//	type: Warning
	//	written by: node agent
	//	to do: wait for the kubelet to try again; if the event persists, see the agent's log
	Closed Reason = "GPUSliceClosed"

	// NotServed says that the node could not set the share up.
	//
	//	kind: event
	//	object: pod
	//	type: Warning
	//	written by: node agent
	//	to do: see the message and [trouble.md](trouble.md); the kubelet tries again
	NotServed Reason = "GPUShareNotServed"

	// AwaitsTurn says that the pod takes turns on its GPU (`gshare.dev/isolation: swap`), and it is the turn of another pod.
	//
	//	kind: event
	//	object: Pod
	//	type: Warning
	//	written by: node agent
	//	to do: nothing; the container starts when its turn comes. If that never happens, look at the other pods on the GPU: a pod that is not a replica
	//	    of a function keeps its turn until it ends
	AwaitsTurn Reason = "GPUAwaitsTurn"

	// Unwanted says that the pod is a replica of a function that is about to be deleted.
	//
	//	kind: event
	//	object: pod of a function
	//	type: Warning
	//	written by: node agent
	//	to do: nothing
	Unwanted Reason = "GPUInstanceUnwanted"

	// Changed says that the placement was changed after the share was granted. The pod keeps what was granted.
	//
	//	kind: event
	//	object: pod
	//	type: Warning
	//	written by: node agent
	//	to do: find out what writes `gshare.dev/placement`; to give the pod another share, delete it
	Changed Reason = "GPUPlacementOverridden"
)

// Refusal is the error for a container that gets no grant. Its text says what is wrong and how to correct it.
type Refusal struct {
	Reason Reason
	Text   string
}

func (r *Refusal) Error() string { return r.Text }

func refuse(reason Reason, format string, args ...any) *Refusal {
	return &Refusal{reason, fmt.Sprintf(format, args...)}
}

// Ambiguous returns the refusal for device IDs whose owner is not certain from the kubelet's records.
func Ambiguous(format string, args ...any) *Refusal {
	return refuse(AmbiguousDeviceIDs, format, args...)
}

// NotSetUp returns the refusal for a share whose setup on the node failed.
func NotSetUp(err error) *Refusal { return refuse(NotServed, "the share could not be set up: %v", err) }

// SliceClosed returns the refusal for a slice that takes no new containers at present.
func SliceClosed(err error) *Refusal { return refuse(Closed, "%v", err) }

// Unsafe returns the refusal for a pod whose spec would allow it to bypass the limits of its share.
func Unsafe(format string, args ...any) *Refusal { return refuse(UnsafePod, format, args...) }
