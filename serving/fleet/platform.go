package fleet

import (
	"context"
	"fmt"
	"time"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/serving/gateway"
	"github.com/gshare-dev/gshare/serving/rules/scaling"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Platform starts and ends instances of functions. Its methods do not wait until that has happened.
type Platform interface {
	// Create starts an instance. Events reports what becomes of it. An instance that has ended may be created again.
	Create(i Instance)
	// Delete ends an instance: it gets SIGTERM and, after its function's grace period, SIGKILL. It has no effect on an instance that has ended.
	Delete(name string)
	// Events returns the channel of the events of all instances. It has to be received from until every instance that was created has ended.
	Events() <-chan Event
}

// Instance is a copy of a function's server.
type Instance struct {
	Name      string // InstanceName
	ID        scaling.ID
	Function  *api.GPUFunction // as it was when the instance was created
	Share     share.Share
	Residency scaling.Residency // Hot, Shared or Warm
	Move      Move              // zero unless the instance is to replace another one and is not ready yet
}

// Move makes an instance replace another one of its function. The other one serves until this one is ready, and goes on if this one fails. An
// instance that fails to replace another one is not created again.
type Move struct {
	From    scaling.ID
	Profile string // of the MIG instance that is to hold all of it; empty if an earlier process has created it
}

// InstanceName returns the unique name of the instance with an ID of a function: resnet50-3 or, outside of the namespace default, ml/resnet50-3.
func InstanceName(f gateway.FunctionName, id scaling.ID) string {
	if f.Namespace == "default" {
		return fmt.Sprintf("%s-%d", f.Name, id)
	}
	return fmt.Sprintf("%s/%s-%d", f.Namespace, f.Name, id)
}

// Gateways are the gateways of the fleet's functions: a *gateway.Gateway, or a stand-in for gateways in other processes. The counters of a Load may
// start at any time before the function was set. They may fall, for instance when a gateway is lost, but must not rise because of requests that came
// before the function was set.
type Gateways interface {
	SetFunction(gateway.Function) error
	RemoveFunction(gateway.FunctionName)
	Load(gateway.FunctionName) gateway.Load
	Waiting() <-chan gateway.FunctionName
	SetReplicas(gateway.FunctionName, []gateway.Replica) error
	SetBackOff(name gateway.FunctionName, until time.Time, why string)
	Drain(ctx context.Context, name gateway.FunctionName, replica string) error
	// IsBusy reports whether a replica that is not draining has requests.
	IsBusy(name gateway.FunctionName, replica string) bool
}

// Event is something that has happened to an instance. Failed or Gone is the last event: then nothing is left of the instance.
type Event struct {
	Instance  string
	Kind      EventKind
	Address   string            // host:port, only of Ready
	Residency scaling.Residency // only of NoRoom: the residency that the instance keeps, Shared or Warm
	Queued    bool              // only of Starting: it waits for a share, and the platform does not ask for replicas to be given up itself
	Message   string            // what the instance waits for and has last written, or why it has failed
}

// EventKind is the kind of an Event.
type EventKind string

// The kinds of events.
const (
	Starting   EventKind = "Starting"   // not ready yet, or no longer; also sent when the message has changed
	Restarting EventKind = "Restarting" // has failed, and the platform starts it again after a pause
	Ready      EventKind = "Ready"      // accepts requests; also sent when the address has changed
	CannotPark EventKind = "CannotPark" // goes on unparked: its server does not give its memory back
	NoRoom     EventKind = "NoRoom"     // stays Shared or Warm: there is no room on its GPU for what is wanted
	Failed     EventKind = "Failed"     // has ended by itself, or was ended because it was not ready in time
	Gone       EventKind = "Gone"       // has ended after Delete
)
