// Package rckm moves the SMs of one slice between shares at run time: the real-time CUDA kernel manager of Dilu (section 3.4.1,
// Algorithm 2; DI-50 to DI-69), corrected (D12 to D21).
//
// Every tick each member gets tokens, the number of thread blocks that it may launch (DI-55), between what its request and what
// its limit is worth. Nothing is measured but launches and the device time that they take (DI-57): when the launch cycles of an SLO member
// take much longer than its batches do without neighbours, and the batches themselves are slower, it is in EMERGENCY, and best-effort
// members are cut by as much as its cycles were stretched. What batches take without neighbours it shows in its first one, for which best
// effort is cut. The cap of MPS, at the limit that a member joined with, bounds its SMs (D20); a limit that was lowered since binds by
// tokens.
//
// As in package token, a Slice is told what happens, time is an argument, and a server calls Advance after every event and at the
// time that the last Advance named.
package rckm
