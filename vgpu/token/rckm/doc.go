// Package rckm moves the SMs of one slice between shares at run time: the real-time CUDA kernel manager of Dilu (section 3.4.1,
// Algorithm 2), with corrections (D12 to D21).
//
// Every tick each share gets tokens, the number of thread blocks that it may launch, between what its request and what its limit is
// worth. The only inputs are launches and the device time that they take. When the launch cycles of an SLO share take much longer
// than its batches do without neighbours, and its batches are slower too, the share is in EMERGENCY: best-effort shares are cut by
// the factor by which its cycles are stretched, until they are owed half a second of their requests. The first batch of a share, for
// which best effort is cut, shows how long its batches take without neighbours. MPS caps a share's SMs at the limit with which it
// joined (D20); tokens enforce a limit lowered since.
//
// As in package token, a Slice is told about events, time is an argument, and a server calls Advance after every event and at the time
// that the last Advance returned.
package rckm
