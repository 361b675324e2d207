package agent

// The reasons of the agent's events on pods, beside those of refusals (grant.Reason).
const (
	// eventFault says that the GPU or MIG instance of the pod has failed.
	//
	//	kind: event
	//	object: pod
	//	type: Warning
	//	written by: node agent
	//	to do: see the message and the node's kernel log; `kubectl gshare doctor` names the fix. The pod goes on if the GPU recovers;
	//	  otherwise delete it, so that it is placed elsewhere
	eventFault = "GPUFault"

	// eventRecovered says that the GPU or MIG instance of the pod works again.
	//
	//	kind: event
	//	object: pod
	//	type: Normal
	//	written by: node agent
	//	to do: nothing; a program that has lost its CUDA context has to be started again
	eventRecovered = "GPURecovered"

	// eventLimitChanged says that a container was given the SM limit that the annotation `gshare.dev/sm-limit` now says.
	//
	//	kind: event
	//	object: pod
	//	type: Normal
	//	written by: node agent
	//	to do: nothing
	eventLimitChanged = "GPULimitChanged"

	// eventLimitRefused says that a container keeps its SM limit, since that of the annotation `gshare.dev/sm-limit` is invalid or above the first
	// one.
	//
	//	kind: event
	//	object: pod
	//	type: Warning
	//	written by: node agent
	//	to do: write a limit as the message says; for more than the first limit, create the pod again
	eventLimitRefused = "GPULimitRefused"

	// eventResidencyRefused says that a replica in reserve cannot serve with its own SM-time, since its GPU has no room for it now.
	//
	//	kind: event
	//	object: pod of a function
	//	type: Warning
	//	written by: node agent
	//	to do: nothing: gshare-controller starts another replica in its place
	eventResidencyRefused = "GPUResidencyRefused"

	// eventCannotPark says that a replica that is not needed could not be parked, and keeps its device memory.
	//
	//	kind: event
	//	object: pod of a function
	//	type: Warning
	//	written by: node agent
	//	to do: give the function a server that can be parked, as docs/serving.md says, or take `scaling.keepWarm` away
	eventCannotPark = "GPUCannotPark"

	// eventCannotWake says that a parked replica could not be woken. It is tried again.
	//
	//	kind: event
	//	object: pod of a function
	//	type: Warning
	//	written by: node agent
	//	to do: see the server's log; deleting the pod has another one start in its place
	eventCannotWake = "GPUCannotWake"

	// eventResidencyNotEnforced says that a replica could not be put in reserve or taken out of it.
	//
	//	kind: event
	//	object: pod of a function
	//	type: Warning
	//	written by: node agent
	//	to do: nothing at first, as it is tried again; if it goes on, see the agent's log
	eventResidencyNotEnforced = "GPUResidencyNotEnforced"

	// eventStranger says that a process of a pod without a share uses a shared GPU.
	//
	//	kind: event
	//	object: pod
	//	type: Warning
	//	written by: node agent
	//	to do: request `gshare/sm`, or take the GPU out of `devices` of the agent's configuration
	eventStranger = "GPUStranger"

	// eventTrespasser says that a process uses another GPU than that of its share.
	//
	//	kind: event
	//	object: pod
	//	type: Warning
	//	written by: node agent
	//	to do: the program must not create or mount device nodes; remove what gives it more than the agent does
	eventTrespasser = "GPUTrespasser"

	// eventUnhooked says that a process uses the shared GPU without the CUDA hook, so that its time is not limited.
	//
	//	kind: event
	//	object: pod
	//	type: Warning
	//	written by: node agent
	//	to do: link the program dynamically, and leave `/etc/ld.so.preload` as it is; or request the whole GPU
	eventUnhooked = "GPUUnhooked"

	// eventBeside says that a process has a library that uses the GPU in another way than through CUDA, such as Vulkan, and is not limited there.
	//
	//	kind: event
	//	object: pod
	//	type: Warning
	//	written by: node agent
	//	to do: use CUDA, or request the whole GPU
	eventBeside = "GPUWithoutHook"

	// eventUncounted says that a process has device memory that the CUDA hook does not count, within its share.
	//
	//	kind: event
	//	object: pod
	//	type: Warning
	//	written by: node agent
	//	to do: `CUDA_MODULE_LOADING=LAZY` often reduces it; otherwise leave room for it in `gshare/mem`
	eventUncounted = "GPUMemoryUncounted"

	// eventOverdrawn says that a container has more device memory than its share.
	//
	//	kind: event
	//	object: pod
	//	type: Warning
	//	written by: node agent
	//	to do: request more `gshare/mem`, or use less; the message says whether the process is killed
	eventOverdrawn = "GPUMemoryExceeded"
)
