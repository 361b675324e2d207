// Package serving plays requests against functions on GPUs, and counts what each way to serve them misses and uses.
//
// All policies see the same requests, profiles and hardware; they differ in their rules alone, and where a rule is one of
// gshare's packages, that package is asked: scaling, batching, packing, planning, pipeline with residency and routing. Time
// is virtual. There are three worlds, and an Input may describe several:
//
//   - whole GPUs that instances share. A batch takes its profiled time for its size and SMs, which change
//     with what else runs on the GPU. All policies batch alike, as much as runs in half the SLO; instances take their time to
//     load. Reserved SMs are charged, and used ones where that is more: bursts on SMs that nobody paid for are not free.
//   - GPUs that are cut into MIG instances. A request goes through the stages of an instance; slices are exclusive, or shared
//     in turn with loads from host memory or storage. All policies let requests that cannot be in time wait behind those
//     that can.
//   - functions of a provider, paid by the call, as a plan groups and sizes them; warm, and always enough of them. Executions
//     are random, with the profile's mean and p99.
//
// What it leaves out: the network, failures, and that execution times vary on shares and slices, whose public profiles give
// no spread.
package serving
