// Package elastic runs two functions on one GPU, as in section 5.2 of Dilu, and compares policies for sharing it: inference beside
// training, inference beside inference, and training beside training.
//
// The GPU is that of package device. A kernel has waves of at most a tenth of a millisecond, which start on at least half of the
// SMs that they can fill. All blocks of a kernel are queued at its launch, so its next wave runs before kernels that were launched
// later. On real GPUs it is the same; this is why a static cap does not protect inference from the long kernels of a training.
// Blocks of clients with the lower priority under MPS run after all others. The model omits memory bandwidth and caches, by which
// neighbours slow each other down, and the time that launches and tokens take. A host queues at most a few waves and one kernel on
// its GPU, as under the hook.
package elastic
