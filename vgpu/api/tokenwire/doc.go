// Package tokenwire is the Go half of what the hook and the token server say to each other: frames on a SEQPACKET socket,
// of which one message is one frame, and pages of shared memory.
//
// The C half is hook/include/gshare_wire.h. The two share bytes and no code; the frames in testdata hold them together,
// and a C program there decodes and rewrites each of them.
//
// Versions: peers of one major version understand each other. A newer minor version may add TLVs, which an older one
// ignores unless they are marked critical, and fields in what was padding.
package tokenwire
