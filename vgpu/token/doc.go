// Package token decides who may launch kernels on one slice and until when: the time sharing of FaST-GShare (section
// 3.3.2), corrected, and the execution of slot tables.
//
// A Slice is told what happens (a share joins or leaves, has work or none, used so much of the GPU) and answers with
// tokens to grant and to take away. Time is an argument; a server calls Advance after every event and at the time that
// the last Advance named.
//
// Whatever the policy: the SMs of live tokens add up to at most the slice, and no share uses more than its limit in any
// window plus one kernel. A running kernel cannot be stopped, so what it uses after its token is measured, charged, and
// taken off the next token. What a share could not use of its own turn, because others overran into it, it makes up for in
// the spare time of its turns: that moves use from one window to another, by the shortest token at most.
package token
