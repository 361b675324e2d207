package fleet

import (
	"context"
	"fmt"
	"time"

	"github.com/gshare-dev/gshare/serving/gateway"
	api "github.com/gshare-dev/gshare/vgpu/api/serving/v1alpha1"
	"github.com/gshare-dev/gshare/vgpu/scaling"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Platform starts and ends instances of functions. Its methods do not wait for them.
type Platform interface {
	// Create starts an instance. Events says what becomes of it. An instance that has ended may be created again.
	Create(i Instance)
	// Delete ends an instance: it gets SIGTERM and, after the grace period of its function, SIGKILL. It has no effect on one that has ended.
	Delete(name string)
	// Events returns the channel of the events of all instances. Somebody must receive from it until each instance that was created has
	// ended.
	Events() <-chan Event
}

// Instance is a copy of a function's server.
type Instance struct {
	Name      string // InstanceName
	ID        scaling.ID
	Function  *api.GPUFunction // as it is when the instance is created
	Share     share.Share
	Residency scaling.Residency // Hot, Shared or Warm
	Move      Move              // zero unless it is to take another one's place, and is not ready yet
}

// Move has an instance take the place of another one of its function, which serves until this one is ready, and goes on if this one fails. Where it
// fails it is not created again.
type Move struct {
	From    scaling.ID
	Profile string // of the MIG instance that is to hold the whole instance; empty if an earlier process has created it
}

// InstanceName returns the name of the instance of a function with an ID, which no other instance has: resnet50-3 or, outside of the namespace
// default, ml/resnet50-3.
func InstanceName(f gateway.FunctionName, id scaling.ID) string {
	if f.Namespace == "default" {
		return fmt.Sprintf("%s-%d", f.Name, id)
	}
	return fmt.Sprintf("%s/%s-%d", f.Namespace, f.Name, id)
}

// Gateways are the gateways of the fleet's functions: a *gateway.Gateway, or what stands for gateways that are other processes. The counters of a
// Load are those since any time before the function was set. They may fall, for instance when a gateway is lost, but not rise by requests of before.
type Gateways interface {
	SetFunction(gateway.Function) error
	RemoveFunction(gateway.FunctionName)
	Load(gateway.FunctionName) gateway.Load
	Waiting() <-chan gateway.FunctionName
	SetReplicas(gateway.FunctionName, []gateway.Replica) error
	SetBackOff(name gateway.FunctionName, until time.Time, why string)
	Drain(ctx context.Context, name gateway.FunctionName, replica string) error
}

// Event is something that has happened to an instance. It ends with Failed or Gone: then nothing is left of it.
type Event struct {
	Instance  string
	Kind      EventKind
	Address   string            // host:port, of one that is Ready
	Residency scaling.Residency // of NoRoom: what it stays, at least Shared
	Message   string            // what it waits for and has last written, or why it has failed
}

// EventKind is the kind of an Event.
type EventKind string

// The kinds of events.
const (
	Starting   EventKind = "Starting"   // not ready, or not any more; also if the message has changed
	Restarting EventKind = "Restarting" // has failed, and the platform starts it again after a pause
	Ready      EventKind = "Ready"      // accepts requests; also if the address has changed
	CannotPark EventKind = "CannotPark" // goes on as it was: its server does not give its memory back
	NoRoom     EventKind = "NoRoom"     // stays Shared or Warm: where it runs, there is no room for what is wanted
	Failed     EventKind = "Failed"     // has ended by itself, or was ended since it was not ready in time
	Gone       EventKind = "Gone"       // has ended after Delete
)
