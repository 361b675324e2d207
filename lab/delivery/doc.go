// Package delivery measures whether pods get the quota for which their GPU admitted them: it fills GPUs by an admission rule, simulates a
// token policy on each with every pod always busy, and compares the time that pods got with their quota.
//
// A pod computes while it holds a token, except for the switch loss after each grant. The model omits kernels that overrun their tokens and
// interference.
package delivery
