// Package token decides which shares of a slice may launch kernels, and until when: the time sharing of FaST-GShare (section 3.3.2) with
// corrections, and the execution of slot tables.
//
// A Slice is told about events: a share joins or leaves, gets work or runs out of it, or has used device time. It returns the tokens to
// grant and to revoke. Time is an argument; a server calls Advance after every event and at the time that the last Advance returned.
//
// Under every policy the SMs of live tokens add up to at most the slice, and no share uses more than its limit in any window, except for
// one kernel and for lost time that it makes up for. A running kernel cannot be stopped, so device time used after a token is measured,
// charged, and deducted from later tokens, over as many windows as that takes, except for shares that own their SMs at all times. A share that loses part of its turn to a short overrun by
// another share may use the spare time of its turns instead, which moves at most the shortest token's time from one window to another. A
// share that loses turns to a long overrun makes up for them in turns that others leave unused (overrun.go).
package token
