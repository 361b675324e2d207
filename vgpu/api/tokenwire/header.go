// Package tokenwire is the Go side of the protocol between the hook in a CUDA process and the token server: frames on a SEQPACKET socket,
// where one message is one frame, and pages of shared memory.
//
// The C side is hook/include/gshare_wire.h. The two share no code; tests check both against the frames in testdata, which a C program there
// decodes and encodes again.
//
// Peers of one major version understand each other. A newer minor version may add TLVs, which an older one ignores unless they are marked
// critical, and fields in former padding.
package tokenwire

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// The protocol version of frames and pages.
const (
	Major = 1
	Minor = 3 // 1: block tokens; 2: memory of the model store; 3: pacing without a server
)

// The limits of a frame.
const (
	MaxFrame   = 4096 // bytes, header and body
	MaxVGPUs   = 16   // of one container
	uuidSize   = 48   // with its zero byte
	headerSize = 32
	magic      = 0x52485347 // "GSHR"
)

// The errors of Decode. The server closes the connection on them.
var (
	ErrMalformed = errors.New("malformed frame")
	ErrVersion   = errors.New("unsupported major version") // the rest of the header is valid
)

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrMalformed, fmt.Sprintf(format, args...))
}

// Type is the type of the message in a frame of the token protocol.
type Type uint16

// The types of frames.
const (
	TypeHello    Type = 1
	TypeWelcome  Type = 2
	TypeNeed     Type = 3
	TypeBye      Type = 4
	TypeSnapshot Type = 5
	TypeError    Type = 6
)

// Header is the part of a frame that does not depend on its message.
type Header struct {
	Major, Minor uint16 // written by Encode
	Flags        uint16
	Sequence     uint64 // counts the sender's frames, from 1
	Generation   uint64 // start of the server that sent or addressed it; 0 in HELLO
}

// Encode returns the frame that carries a message. It fails only for a message that exceeds a limit of the protocol.
func Encode(h Header, m Message) ([]byte, error) {
	frame := make([]byte, headerSize, 128)
	frame, err := m.append(frame)
	if err != nil {
		return nil, err
	}
	if len(frame) > MaxFrame {
		return nil, malformed("%d bytes are more than %d", len(frame), MaxFrame)
	}
	binary.LittleEndian.PutUint32(frame[0:], magic)
	binary.LittleEndian.PutUint16(frame[4:], Major)
	binary.LittleEndian.PutUint16(frame[6:], Minor)
	binary.LittleEndian.PutUint16(frame[8:], uint16(m.Type()))
	binary.LittleEndian.PutUint16(frame[10:], h.Flags)
	binary.LittleEndian.PutUint32(frame[12:], uint32(len(frame)-headerSize))
	binary.LittleEndian.PutUint64(frame[16:], h.Sequence)
	binary.LittleEndian.PutUint64(frame[24:], h.Generation)
	return frame, nil
}

// Decode decodes one frame, which is one whole socket message. Errors wrap ErrMalformed or ErrVersion. The returned message does not alias
// the frame.
func Decode(frame []byte) (Header, Message, error) {
	if len(frame) < headerSize || len(frame) > MaxFrame {
		return Header{}, nil, malformed("%d bytes", len(frame))
	}
	if got := binary.LittleEndian.Uint32(frame); got != magic {
		return Header{}, nil, malformed("magic %#x", got)
	}
	h := Header{
		Major:      binary.LittleEndian.Uint16(frame[4:]),
		Minor:      binary.LittleEndian.Uint16(frame[6:]),
		Flags:      binary.LittleEndian.Uint16(frame[10:]),
		Sequence:   binary.LittleEndian.Uint64(frame[16:]),
		Generation: binary.LittleEndian.Uint64(frame[24:]),
	}
	if h.Major != Major {
		return h, nil, fmt.Errorf("%w: %d.%d, want %d", ErrVersion, h.Major, h.Minor, Major)
	}
	if length := binary.LittleEndian.Uint32(frame[12:]); int64(length) != int64(len(frame)-headerSize) {
		return h, nil, malformed("header claims %d bytes of body, frame has %d", length, len(frame)-headerSize)
	}
	m, err := decodeBody(Type(binary.LittleEndian.Uint16(frame[8:])), frame[headerSize:])
	return h, m, err
}
