// Package residency is the protocol by which an instance of a function gives up its SM-time and gets it back while its pod runs.
//
// The levels of an instance, and what its pod counts for on its slice:
//
//	Hot     serves with its own SM-time                 memory, SM x quota, limits
//	Shared  serves in time that others leave            memory
//	Warm    is parked, its data in host memory          the memory that stays on the device (Reached.Memory)
//	Cold    has not started, or is to be deleted        as Hot
//
// Four participants share the pod object. Each can crash at any step, and sees the writes of the others late, but in order. A write fails unless
// Wanted and Reached are still what its writer has read: it carries the resourceVersion, or is a patch that tests both.
//
//	controller  writes Wanted on the pod         Created, Change, Review, Victims
//	agent       writes Reached on the pod, and   Start, Next
//	            its record (grant.json)
//	scheduler   counts the pod on its slice      Counted, Level.Charge
//	gateway     sends requests to the pod        MaySend
//
// Down. The controller writes a lower level. For Warm and Cold, the gateways stop first: after that write the controller lists the gateways, asks
// each of them until it has stopped, and marks the level Drained. The agent then takes the SM-time (or the memory) away, records the level and
// reports it. A Cold pod is deleted instead. If an instance cannot be parked, the agent refuses Warm once the instance is as it was before.
//
// Up. The controller writes a higher level, which the scheduler counts at once. If there is room by the agent's records, the agent records the
// level, lifts the limit and reports the level. Otherwise it records the refusal and reports that; the controller creates a replacement, which the
// scheduler places elsewhere, and then sets the wanted level of the instance back to the one that it has.
//
// What holds at every step, whichever participant crashes:
//
//   - What is enforced is at most what is recorded, and what is recorded on a slice fits there. So the records are all that a restarted
//     agent needs.
//   - What is recorded is at most what the scheduler counts: the larger of wanted and reached. A pod that has not started counts as Hot, and
//     so does one that is to be deleted.
//   - No request is sent to an instance that is parked, has not started or is deleted.
//   - Once nothing fails any more, every instance reaches the wanted level, or the wanted level is changed to the one that it has.
//
// Class swap. Instances that hold the memory of a slice in turn are counted in full by the scheduler at every level, even beyond the memory of the
// slice. At most one of them is recorded above Warm (FitsTurn), and one whose wanted level is Warm does not start. So the controller may lower an
// instance that has not started without waiting for an answer (TakeBack).
//
// TestInterleavings checks all this. It rests on the following rules, each of which is necessary (TestMutants):
//
//   - A level has a sequence number, and the agent records the last one that it has answered, with or without success. It never acts again on
//     that one or an earlier one, which it may see after a restart.
//   - The controller lowers a level only once it was answered. If it lowered an unanswered raise, the agent could still carry out the
//     raise, and the scheduler would count too little.
//   - The controller does not raise a drained instance before the agent has parked it. Otherwise gateways could send requests as soon as they see
//     the raise.
//   - A gateway registers before it lists the pods, and its first list is consistent (not from a cache of the API server). The controller
//     lists the gateways after it has read the level for which they have to stop.
//
// A scheduler that has not seen a raise yet may bind a pod to the slice. Whichever of the two the agent sees first gets the room. The kubelet
// retries a pod that loses; if the pod is an instance, the controller replaces it. Pods seldom lose, because for a raise the agent also counts the
// pods that are bound to its node and have not started.
package residency
