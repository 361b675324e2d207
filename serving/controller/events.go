package controller

// The reasons of events, beside those of autoscaling (api.EventScaled).
const (
	// eventInvalid says that the function asks for something that cannot be.
	//
	//	kind: event
	//	object: GPUFunction
	//	type: Warning
	//	written by: gshare-controller
	//	to do: correct the field that the message names
	eventInvalid = "Invalid"

	// eventNoProfile says that the GPUProfile of the function cannot be created, or measures something else.
	//
	//	kind: event
	//	object: GPUFunction
	//	type: Warning
	//	written by: gshare-controller
	//	to do: see the message; the function is served without, or with what was recommended before
	eventNoProfile = "NoProfile"

	// eventNoService says that the Service of the function cannot be created, often since its name is taken. Requests still reach it by the host
	// of the gateway.
	//
	//	kind: event
	//	object: GPUFunction
	//	type: Warning
	//	written by: gshare-controller
	//	to do: rename the function or the other Service
	eventNoService = "NoService"

	// eventNoNetworkPolicy says that the NetworkPolicy cannot be created that lets only gateways reach the replicas.
	//
	//	kind: event
	//	object: GPUFunction
	//	type: Warning
	//	written by: gshare-controller
	//	to do: see the message; until then, who reaches the replicas is up to the cluster
	eventNoNetworkPolicy = "NoNetworkPolicy"

	// eventNotReadyInTime says that a replica has not become Ready in time, and was deleted so that another one is tried.
	//
	//	kind: event
	//	object: GPUFunction
	//	type: Warning
	//	written by: gshare-controller
	//	to do: see the message for what the pod waited for, and the logs of the next one; a server that
	//	  loads for longer than 10 minutes needs a startupProbe that allows it
	eventNotReadyInTime = "NotReadyInTime"

	// eventFailedCreate says that a pod cannot be created: an admission policy, a webhook or a ResourceQuota refuses it.
	//
	//	kind: event
	//	object: GPUFunction, FaSTPod
	//	type: Warning
	//	written by: gshare-controller
	//	to do: correct what the message names
	eventFailedCreate = "FailedCreate"

	// eventCreated says that a pod was created.
	//
	//	kind: event
	//	object: FaSTPod
	//	type: Normal
	//	written by: gshare-controller
	//	to do: nothing
	eventCreated = "SuccessfulCreate"

	// eventQuotaExceeded says that a SharePolicy does not let a replica or pod start.
	//
	//	kind: event
	//	object: GPUFunction, FaSTPod
	//	type: Warning
	//	written by: gshare-controller
	//	to do: end others of the namespace, or ask an administrator for more; the message says how much is missing
	eventQuotaExceeded = "QuotaExceeded"

	// eventForeignScaler says that another autoscaler is told to scale a function that gshare scales. It has no effect.
	//
	//	kind: event
	//	object: GPUFunction
	//	type: Warning
	//	written by: gshare-controller
	//	to do: delete the other autoscaler, or set `scaling.autoscaler: External`
	eventForeignScaler = "ForeignScaler"

	// eventProfiling says that a GPUProfile was created, which measures what a replica of the function needs.
	//
	//	kind: event
	//	object: GPUFunction
	//	type: Normal
	//	written by: gshare-controller
	//	to do: nothing
	eventProfiling = "Profiling"

	// eventStaysShared says that a replica in reserve stays there, as its GPU has no room for its SM-time. Another one starts in its place.
	//
	//	kind: event
	//	object: GPUFunction
	//	type: Normal
	//	written by: gshare-controller
	//	to do: nothing
	eventStaysShared = "StaysShared"

	// eventCannotPark says that a replica could not be parked. Those of the function are stopped from then on instead; one that has a GPU in turn is started
	// anew for each turn.
	//
	//	kind: event
	//	object: GPUFunction
	//	type: Warning
	//	written by: gshare-controller
	//	to do: give the function a server that can be parked, as docs/serving.md says, or take `scaling.keepWarm` away
	eventCannotPark = "CannotPark"

	// eventStaysWarm says that a parked replica cannot be woken where it is, since its GPU has no room for its SM-time or its memory. Another one starts in
	// its place.
	//
	//	kind: event
	//	object: GPUFunction
	//	type: Normal
	//	written by: gshare-controller
	//	to do: nothing
	eventStaysWarm = "StaysWarm"

	// eventMadeRoom says that a replica in reserve was ended to make room for a replica of another function. Both functions get the event.
	//
	//	kind: event
	//	object: GPUFunction
	//	type: Normal
	//	written by: gshare-controller
	//	to do: nothing
	eventMadeRoom = "MadeRoom"

	// eventMoving says that a replica that is cut over several MIG instances is to move to one that holds all of it. Until its successor there is Ready,
	// it goes on to serve.
	//
	//	kind: event
	//	object: GPUFunction
	//	type: Normal
	//	written by: gshare-controller
	//	to do: nothing
	eventMoving = "Moving"

	// eventMoved says that a replica now runs on one MIG instance. The pod over several ends when it has answered its requests.
	//
	//	kind: event
	//	object: GPUFunction
	//	type: Normal
	//	written by: gshare-controller
	//	to do: nothing
	eventMoved = "Moved"

	// eventMoveAbandoned says that a replica stays on several MIG instances, as its successor on one has failed before it was Ready. The move is tried
	// again after a pause.
	//
	//	kind: event
	//	object: GPUFunction
	//	type: Warning
	//	written by: gshare-controller
	//	to do: see the message; where the instance was taken by another pod, nothing
	eventMoveAbandoned = "MoveAbandoned"
)
