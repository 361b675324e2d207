// Package elastic puts two functions on one GPU, as in section 5.2 of Dilu, and compares policies that share it: inference
// beside training, inference beside inference, training beside training.
//
// The GPU is that of package device. A kernel comes in waves of at most a tenth of a millisecond, which start on at least half of the
// SMs that they can fill. Blocks of a kernel are all queued when it is launched, so its next wave goes before those of
// kernels that came later: what GPUs do, and why a static cap does not protect inference from the long kernels of a training. Below
// them go the blocks of clients with the lower priority under MPS. What the model leaves out: neighbours slow each other down by the SMs
// that they hold, not by memory bandwidth or caches, and neither launches nor tokens take time. A host runs at most some waves and a
// kernel ahead of its GPU, as the hook makes it.
package elastic
