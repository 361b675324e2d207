// Package elastic puts two functions on one GPU, as in section 5.2 of Dilu, and compares policies that share it: inference
// beside training, inference beside inference, training beside training.
//
// The GPU is that of package device. Kernels come in waves of at most a tenth of a millisecond; a wave starts on at least
// half of the SMs that it can fill. What the model leaves out: neighbours slow each other down by the SMs they hold, not by
// memory bandwidth or caches, and neither launches nor tokens take time. A host runs at most some waves ahead of its GPU, as
// the hook makes it.
package elastic
