package tokenwire

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// The version of frames and pages that this package speaks.
const (
	Major = 1
	Minor = 1 // 1: block tokens
)

// Bounds of a frame.
const (
	MaxFrame   = 4096 // bytes, header and body
	MaxVGPUs   = 16   // of one container
	uuidSize   = 48   // with its zero byte
	headerSize = 32
	magic      = 0x52485347 // "GSHR"
)

// Errors of Decode. They end the connection.
var (
	ErrMalformed = errors.New("malformed frame")
	ErrVersion   = errors.New("other major version") // of an otherwise readable header
)

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrMalformed, fmt.Sprintf(format, args...))
}

// Type names the message in a frame.
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

// Header is what a frame says besides its message.
type Header struct {
	Major, Minor uint16 // written by Encode
	Flags        uint16
	Sequence     uint64 // counts the sender's frames, from 1
	Generation   uint64 // of the server's run; 0 in HELLO
}

// Encode writes one frame. Only a message that breaks a bound fails.
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

// Decode reads one frame, which is all of one socket message. Errors wrap ErrMalformed or ErrVersion. The message keeps
// no reference to the frame.
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
		return h, nil, malformed("says %d bytes of body, has %d", length, len(frame)-headerSize)
	}
	m, err := decodeBody(Type(binary.LittleEndian.Uint16(frame[8:])), frame[headerSize:])
	return h, m, err
}
