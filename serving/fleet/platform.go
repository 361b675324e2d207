package fleet

import (
	"fmt"

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
	Name     string // unique, such as resnet50-3
	Function *api.GPUFunction
	Share    share.Share
}

// nameOf returns the name of the instance of a function with an ID.
func nameOf(f *api.GPUFunction, id scaling.ID) string {
	if f.Namespace == "default" {
		return fmt.Sprintf("%s-%d", f.Name, id)
	}
	return fmt.Sprintf("%s/%s-%d", f.Namespace, f.Name, id)
}

// Event is something that has happened to an instance. It ends with Failed or Gone: then nothing is left of it.
type Event struct {
	Instance string
	Kind     EventKind
	Address  string // host:port, of one that is Ready
	Message  string // what it waits for and has last written, or why it has failed
}

// EventKind is the kind of an Event.
type EventKind string

// The kinds of events.
const (
	Starting EventKind = "Starting" // not ready yet; the message has changed
	Ready    EventKind = "Ready"    // accepts requests
	Failed   EventKind = "Failed"   // has ended by itself, or was ended since it was not ready in time
	Gone     EventKind = "Gone"     // has ended after Delete
)
