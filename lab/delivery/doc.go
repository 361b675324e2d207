// Package delivery measures whether pods get what their GPU admitted them for: it fills GPUs by an admission rule, runs
// the token policies of package token on each with every pod busy all the time, and compares.
//
// Kernels are fluid: a pod computes while it holds a token, except for the switch loss after each grant, and stops when
// the token does. Interference and overruns are not here.
package delivery
