// Package tokenwire is the Go side of the protocol between hook and token server: frames on a SEQPACKET socket, of which one
// message is one frame, and pages of shared memory.
//
// The C side is hook/include/gshare_wire.h. The two share no code; tests hold them to the frames in testdata, which a C program
// there decodes and encodes again.
//
// Peers of one major version understand each other. A newer minor version may add TLVs, which an older one ignores unless they are
// marked critical, and fields in former padding.
package tokenwire
