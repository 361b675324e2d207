// Package residency is the protocol by which an instance of a function gives up its SM-time and gets it back while its pod runs.
//
// The levels of an instance, and what its pod counts for on its slice:
//
//	Hot     serves with its own SM-time                 memory, SM x quota, limits
//	Shared  serves in time that others leave            memory
//	Warm    is parked, its data in host memory          the memory that stays on the device (Reached.Memory)
//	Cold    has not started, or is to be deleted        as Hot
//
// Four participants share the pod object. Each can crash at any step, and sees the writes of the others late, but in order. A write fails
// if Wanted or Reached is not what its writer has read: it carries the resourceVersion, or is a patch that tests both.
//
//	controller  writes Wanted on the pod         Created, Change, Review, Victims
//	agent       writes Reached on the pod, and   Start, Next
//	            its record (grant.json)
//	scheduler   counts the pod on its slice      Counted, Level.Charge
//	gateway     sends requests to the pod        MaySend, HasStopped
//
// Down. The controller writes a lower level. For Warm and Cold, the gateways stop first: the controller lists the gateways after that
// write, asks each of them until it has stopped, and marks the level Drained. The agent takes the SM-time (or the memory) away, records,
// reports. A Cold pod is deleted instead. The agent refuses Warm of an instance that cannot be parked, once it is again what it was.
//
// Up. The controller writes a higher level, which the scheduler counts at once. If the agent finds room in its book, it records the
// level, lifts the limit and reports. Otherwise it records the refusal and reports that; the controller creates a replacement, which the
// scheduler places elsewhere, and then returns the instance to the level that it has.
//
// What holds at every step, whoever crashes:
//
//   - What is enforced is at most what is recorded, and what is recorded on a slice fits there. So the records are all that a restarted
//     agent needs.
//   - What is recorded is at most what the scheduler counts: the larger of wanted and reached. A pod that has not started, and one that
//     is to be deleted, count as Hot.
//   - No request is sent to an instance that is parked, has not started or is deleted.
//   - Once nothing fails, every instance reaches the level that is wanted, or the level is changed to the one that it has.
//
// Class swap. Instances that hold the memory of a slice in turn are counted whole by the scheduler at every level, beyond the memory of the slice.
// At most one of them is recorded above Warm (FitsTurn), and one that is wanted Warm does not start. So the controller may
// lower one that has not started without an answer (TakeBack).
//
// TestInterleavings checks this. The rules that it rests on, each of which is necessary (TestMutants):
//
//   - A level has a sequence number, and the agent records the last one that it has answered, with or without success. It never acts on
//     that or on an earlier one, which it may see again after a restart.
//   - The controller lowers a level only after it was answered. If it lowered an unanswered raise, the agent could still carry out the
//     raise, and the scheduler would count too little.
//   - The controller does not raise a drained instance before the agent has parked it. The gateways could send on the word of the raise.
//   - A gateway registers before it lists the pods, and its first list is consistent (not from a cache of the API server). The controller
//     lists the gateways after it has read the level for which they have to stop.
//
// A scheduler that has not seen a raise yet may bind a pod to the slice. Whichever of the two the agent sees first gets the room. A pod
// that loses is retried by the kubelet; if it is an instance, the controller replaces it. For a raise the agent counts the pods that are
// bound to its node and have not started, too, so pods seldom lose.
package residency
