package grant

import "fmt"

// Reason is the machine-readable reason of a Refusal, used for the Kubernetes event on the pod. The kubelet retries the container start
// until the pod is deleted.
type Reason string

// The reasons of refusals.
const (
	NotPlaced        Reason = "GPUShareNotPlaced"      // gshare-scheduler did not place the pod
	Forged           Reason = "GPUPlacementForged"     // the placement was not made for this pod, node or request
	UnsafePod        Reason = "GPUShareUnsafe"         // the pod's own fields could bypass the share
	UnknownSlice     Reason = "GPUSliceUnknown"        // the placement names a slice that the node does not have
	InUse            Reason = "GPUSliceInUse"          // by a process without a share
	DoesNotFit       Reason = "GPUShareDoesNotFit"     // beside the grants on the slice
	AmbiguousTickets Reason = "GPUTicketsAmbiguous"    // the kubelet's records do not name one owner
	Closed           Reason = "GPUSliceClosed"         // for now: MPS does not serve it
	NotServed        Reason = "GPUShareNotServed"      // the node could not set the share up
	Changed          Reason = "GPUPlacementOverridden" // the placement changed, the grant remains
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

// Ambiguous returns the refusal for tickets whose owner is not certain from the kubelet's records.
func Ambiguous(format string, args ...any) *Refusal { return refuse(AmbiguousTickets, format, args...) }

// NotSetUp returns the refusal for a share whose setup on the node failed.
func NotSetUp(err error) *Refusal { return refuse(NotServed, "the share could not be set up: %v", err) }

// SliceClosed returns the refusal for a slice that takes no new containers at present.
func SliceClosed(err error) *Refusal { return refuse(Closed, "%v", err) }

// Unsafe returns the refusal for a pod whose spec would allow it to bypass the limits of its share.
func Unsafe(format string, args ...any) *Refusal { return refuse(UnsafePod, format, args...) }
