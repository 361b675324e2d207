package grant

import "fmt"

// Reason says why a container gets no grant, as the reason of an event. The kubelet asks again until its pod is deleted.
type Reason string

// The reasons.
const (
	NotPlaced      Reason = "GPUShareNotPlaced"      // no scheduler of gshare has seen the pod
	Forged         Reason = "GPUPlacementForged"     // the placement was not made for this pod, node or request
	Tampering      Reason = "GPUShareUnsafe"         // the pod's own fields could get around the share
	UnknownSlice   Reason = "GPUSliceUnknown"        // the placement names a slice that the node does not have
	InUse          Reason = "GPUSliceInUse"          // by somebody who has no share of it
	NoRoom         Reason = "GPUShareDoesNotFit"     // beside what has been granted
	TicketsInDoubt Reason = "GPUTicketsInDoubt"      // the kubelet's record does not name one owner
	Closed         Reason = "GPUSliceClosed"         // for a moment: MPS does not serve it
	NotServed      Reason = "GPUShareNotServed"      // the node could not set the share up
	Changed        Reason = "GPUPlacementOverridden" // what was granted goes on, the pod says something else by now
)

// Refusal is an answer for the user: what is wrong, and what to do.
type Refusal struct {
	Reason Reason
	Text   string
}

func (r *Refusal) Error() string { return r.Text }

func refuse(reason Reason, format string, args ...any) *Refusal {
	return &Refusal{reason, fmt.Sprintf(format, args...)}
}

// Doubt is for an owner that cannot be told from the kubelet's records.
func Doubt(format string, args ...any) *Refusal { return refuse(TicketsInDoubt, format, args...) }

// Unserved is for a share that could not be set up.
func Unserved(err error) *Refusal { return refuse(NotServed, "the share could not be set up: %v", err) }

// Shut is for a slice that takes no new process now.
func Shut(err error) *Refusal { return refuse(Closed, "%v", err) }

// Unsafe is for a pod whose own fields could get around its share.
func Unsafe(format string, args ...any) *Refusal { return refuse(Tampering, format, args...) }
