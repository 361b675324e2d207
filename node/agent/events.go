package agent

// The reasons of the agent's events on pods, beside those of refusals (grant.Reason).
const (
	// eventFault says that the GPU or MIG instance of the pod has failed.
	//
	//	kind: event
	//	object: pod
	//	type: Warning
	//	written by: node agent
	//	to do: see the message and the node's kernel log; `kubectl gshare doctor` names the fix. If the GPU recovers, the pod continues;
	//	  otherwise delete the pod, so that it is placed elsewhere
	eventFault = "GPUFault"

	// eventRecovered says that the GPU or MIG instance of the pod works again.
	//
	//	kind: event
	//	object: pod
	//	type: Normal
	//	written by: node agent
	//	to do: nothing; restart programs that have lost their CUDA context
	eventRecovered = "GPURecovered"

	// eventKilled says that a container on a shared GPU was killed before its CUDA work was ended, so that others there may have failed.
	//
	//	kind: event
	//	object: pod
	//	type: Warning
	//	written by: node agent
	//	to do: give the container more memory if it lacked some; else run `gshare-drain` as its preStop hook (docs/use.md)
	eventKilled = "GPUWorkKilled"

	// eventLimitChanged says that a container now has the SM limit that the annotation `gshare.dev/sm-limit` sets.
	//
	//	kind: event
	//	object: pod
	//	type: Normal
	//	written by: node agent
	//	to do: nothing
	eventLimitChanged = "GPULimitChanged"

	// eventLimitRefused says that a container keeps its SM limit because the one in the annotation `gshare.dev/sm-limit` is invalid or above the first
	// limit.
	//
	//	kind: event
	//	object: pod
	//	type: Warning
	//	written by: node agent
	//	to do: set a limit as the message says; for more than the first limit, recreate the pod
	eventLimitRefused = "GPULimitRefused"

	// eventResidencyRefused says that a replica in reserve cannot serve with its own SM-time because its GPU currently has no room for it.
	//
	//	kind: event
	//	object: pod of a function
	//	type: Warning
	//	written by: node agent
	//	to do: nothing; gshare-controller starts another replica in its place
	eventResidencyRefused = "GPUResidencyRefused"

	// eventCannotPark says that a replica that is no longer needed could not be parked and keeps its device memory.
	//
	//	kind: event
	//	object: pod of a function
	//	type: Warning
	//	written by: node agent
	//	to do: use a server that can be parked (see docs/serving.md), or remove `scaling.keepWarm`
	eventCannotPark = "GPUCannotPark"

	// eventCannotWake says that a parked replica could not be woken. The agent tries again.
	//
	//	kind: event
	//	object: pod of a function
	//	type: Warning
	//	written by: node agent
	//	to do: see the server's log; if you delete the pod, another one starts in its place
	eventCannotWake = "GPUCannotWake"

	// eventResidencyNotEnforced says that a replica could not be moved into or out of reserve.
	//
	//	kind: event
	//	object: pod of a function
	//	type: Warning
	//	written by: node agent
	//	to do: nothing at first, because the agent tries again; if the event persists, see the agent's log
	eventResidencyNotEnforced = "GPUResidencyNotEnforced"

	// eventUnmanaged says that a process of a pod without a share uses a shared GPU.
	//
	//	kind: event
	//	object: pod
	//	type: Warning
	//	written by: node agent
	//	to do: request `gshare/sm`, or remove the GPU from `devices` in the agent's configuration
	eventUnmanaged = "GPUUnmanagedProcess"

	// eventWrongDevice says that a process uses a GPU other than that of its share.
	//
	//	kind: event
	//	object: pod
	//	type: Warning
	//	written by: node agent
	//	to do: keep the program from creating or mounting device nodes; remove whatever gives it more than the agent does
	eventWrongDevice = "GPUWrongDevice"

	// eventUnhooked says that a process uses the shared GPU without the CUDA hook, so its GPU time is not limited.
	//
	//	kind: event
	//	object: pod
	//	type: Warning
	//	written by: node agent
	//	to do: link the program dynamically and do not change `/etc/ld.so.preload`; or request the whole GPU
	eventUnhooked = "GPUUnhooked"

	// eventBeside says that a process has loaded a library that uses the GPU without CUDA, such as Vulkan. That use is not limited.
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

	// eventOverdrawn says that a container uses more device memory than its share.
	//
	//	kind: event
	//	object: pod
	//	type: Warning
	//	written by: node agent
	//	to do: request more `gshare/mem`, or use less; the message says whether the process is killed
	eventOverdrawn = "GPUMemoryExceeded"
)
