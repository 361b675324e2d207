// Package load has the messages with which gateways report the load on functions to a controller, generated from load.proto.
package load

//go:generate go run -C ../../../hack/proto . serving/api/load/load.proto

// The full name of the service, the name of its method, and the path of a call.
const (
	Service = "gshare.load.v1.Load"
	Watch   = "Watch"
	Method  = "/" + Service + "/" + Watch
)

// Seconds is the most elements that FunctionLoad.received_of_second has.
const Seconds = 120
