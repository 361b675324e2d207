package controller

// The reasons of events, beside those of autoscaling (api.EventScaled).
const (
	// eventInvalid says that the function asks for something impossible.
	//
	//	kind: event
	//	object: GPUFunction
	//	type: Warning
	//	written by: gshare-controller
	//	to do: correct the field that the message names
	eventInvalid = "Invalid"

	// eventNoProfile says that the GPUProfile of the function cannot be created, or it measures something else.
	//
	//	kind: event
	//	object: GPUFunction
	//	type: Warning
	//	written by: gshare-controller
	//	to do: see the message; meanwhile, the function is served without a recommendation, or with the previous one
	eventNoProfile = "NoProfile"

	// eventNoService says that the Service of the function cannot be created, often because its name is taken. Requests still reach the function through
	// the gateway, by their host.
	//
	//	kind: event
	//	object: GPUFunction
	//	type: Warning
	//	written by: gshare-controller
	//	to do: rename the function or the other Service
	eventNoService = "NoService"

	// eventNoNetworkPolicy says that the NetworkPolicy that lets only gateways reach the replicas cannot be created.
	//
	//	kind: event
	//	object: GPUFunction
	//	type: Warning
	//	written by: gshare-controller
	//	to do: see the message; until it is fixed, the cluster decides who can reach the replicas
	eventNoNetworkPolicy = "NoNetworkPolicy"

	// eventNotReadyInTime says that a replica did not become Ready in time and was deleted, so that another one can be tried.
	//
	//	kind: event
	//	object: GPUFunction
	//	type: Warning
	//	written by: gshare-controller
	//	to do: see the message for what the pod waited for, and the logs of the next pod; a server that
	//	  takes more than 10 minutes to load needs a startupProbe that allows for it
	eventNotReadyInTime = "NotReadyInTime"

	// eventFailedCreate says that a pod cannot be created because an admission policy, a webhook or a ResourceQuota refuses it.
	//
	//	kind: event
	//	object: GPUFunction, FaSTPod
	//	type: Warning
	//	written by: gshare-controller
	//	to do: fix what the message names
	eventFailedCreate = "FailedCreate"

	// eventCreated says that a pod was created.
	//
	//	kind: event
	//	object: FaSTPod
	//	type: Normal
	//	written by: gshare-controller
	//	to do: nothing
	eventCreated = "SuccessfulCreate"

	// eventQuotaExceeded says that a SharePolicy keeps a replica or pod from being started.
	//
	//	kind: event
	//	object: GPUFunction, FaSTPod
	//	type: Warning
	//	written by: gshare-controller
	//	to do: stop other pods in the namespace, or ask an administrator to raise the limit; the message says how much is missing
	eventQuotaExceeded = "QuotaExceeded"

	// eventForeignScaler says that another autoscaler targets a function that gshare scales. It has no effect.
	//
	//	kind: event
	//	object: GPUFunction
	//	type: Warning
	//	written by: gshare-controller
	//	to do: delete the other autoscaler, or set `scaling.autoscaler: External`
	eventForeignScaler = "ForeignScaler"

	// eventProfiling says that a GPUProfile was created to measure what a replica of the function needs.
	//
	//	kind: event
	//	object: GPUFunction
	//	type: Normal
	//	written by: gshare-controller
	//	to do: nothing
	eventProfiling = "Profiling"

	// eventStaysShared says that a replica stays in reserve because its GPU has no room for its SM-time. Another replica starts in its place.
	//
	//	kind: event
	//	object: GPUFunction
	//	type: Normal
	//	written by: gshare-controller
	//	to do: nothing
	eventStaysShared = "StaysShared"

	// eventCannotPark says that a replica could not be parked. From then on, replicas of the function are stopped instead. One that takes turns on a GPU
	// is restarted for each turn.
	//
	//	kind: event
	//	object: GPUFunction
	//	type: Warning
	//	written by: gshare-controller
	//	to do: use a server that can be parked (see docs/serving.md), or remove `scaling.keepWarm`
	eventCannotPark = "CannotPark"

	// eventStaysWarm says that a parked replica cannot be woken where it is, because its GPU has no room for its SM-time or its memory. Another replica
	// starts in its place.
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

	// eventMoving says that a replica that is split over several MIG instances is moving to one instance that can hold all of it. It keeps serving until
	// its successor there is Ready.
	//
	//	kind: event
	//	object: GPUFunction
	//	type: Normal
	//	written by: gshare-controller
	//	to do: nothing
	eventMoving = "Moving"

	// eventMoved says that a replica now runs on one MIG instance. The pod that was split over several ends once it has answered its requests.
	//
	//	kind: event
	//	object: GPUFunction
	//	type: Normal
	//	written by: gshare-controller
	//	to do: nothing
	eventMoved = "Moved"

	// eventMoveAbandoned says that a replica stays on several MIG instances because its successor on one instance failed before it was Ready. The move
	// is tried again after a pause.
	//
	//	kind: event
	//	object: GPUFunction
	//	type: Warning
	//	written by: gshare-controller
	//	to do: see the message; if another pod took the instance, nothing
	eventMoveAbandoned = "MoveAbandoned"
)
