// Package storewire holds the frames between a program and the model store of its slice. They go over a Unix socket of type SEQPACKET, one
// frame a packet, a request and its response in turn. The connection is the lease of all that it has been given: it ends when the program
// closes it or ends. Numbers are little-endian.
//
// A request has 96 bytes:
//
//	0  version (uint16), operation (uint16), length of the layout's name (uint32)
//	8  bytes of the weights, for Put (uint64)
//	16 SHA-256 of the weights (32 bytes)
//	48 the layout's name, with zeros behind it (48 bytes)
//
// A response has 24 bytes, and for Get and Put the file descriptor of the memory, as SCM_RIGHTS:
//
//	0  version (uint16), status (uint16), 0 (uint32)
//	8  bytes of the weights (uint64)
//	16 bytes of the device memory (uint64), which is what to map
//
// Own comes with a descriptor, as SCM_RIGHTS, and has no key. A store whose memory it is answers with OK, and with 0 bytes of weights while
// the process that asks writes them; any other answer means that it is not. The hook asks it of memory that a program imports.
//
// A store that does not know a request's version answers with its own version and UnknownVersion.
package storewire

import (
	"encoding/binary"
	"fmt"

	"github.com/gshare-dev/gshare/vgpu/share"
	"github.com/gshare-dev/gshare/vgpu/store"
)

// Version is that of the frames.
const Version = 1

// Sizes of frames in bytes, and of the name of a layout.
const (
	RequestSize  = 96
	ResponseSize = 24
	MaxLayout    = 48
)

// Operation is what a client asks for.
type Operation uint16

// The operations.
const (
	Get    Operation = 1 // read weights
	Put    Operation = 2 // become the writer of absent weights
	Commit Operation = 3 // end the writing, and wait until the digest is verified
	Own    Operation = 4 // whether a descriptor is of the store's memory
)

// Status is how a request ended.
type Status uint16

// The statuses. Those but OK, UnknownVersion, Malformed and Failed are the errors of package store.
const (
	OK             Status = 0
	UnknownVersion Status = 1
	Malformed      Status = 2 // of the request
	Failed         Status = 3 // of the driver, or of the store
	Namespace      Status = 4
	Absent         Status = 5
	Busy           Status = 6
	Present        Status = 7
	Size           Status = 8
	Full           Status = 9
	Writer         Status = 10
	Digest         Status = 11
)

// Request is a frame of a client.
type Request struct {
	Version   uint16
	Operation Operation
	Key       store.Key
	Bytes     share.Bytes // for Put
}

// Response is a frame of a store.
type Response struct {
	Version uint16
	Status  Status
	Bytes   share.Bytes // of the weights
	Size    share.Bytes // of the device memory
}

// VersionError is the error of DecodeRequest and DecodeResponse for a frame of another version.
type VersionError struct{ Version uint16 }

func (e *VersionError) Error() string {
	return fmt.Sprintf("frame of version %d, this is version %d", e.Version, Version)
}

// Encode returns the frame. It fails for a name of a layout that is too long or has a byte 0.
func (r Request) Encode() ([]byte, error) {
	if err := checkLayout([]byte(r.Key.Layout)); err != nil {
		return nil, err
	}
	frame := make([]byte, RequestSize)
	binary.LittleEndian.PutUint16(frame, r.Version)
	binary.LittleEndian.PutUint16(frame[2:], uint16(r.Operation))
	binary.LittleEndian.PutUint32(frame[4:], uint32(len(r.Key.Layout)))
	binary.LittleEndian.PutUint64(frame[8:], uint64(r.Bytes))
	copy(frame[16:], r.Key.Digest[:])
	copy(frame[48:], r.Key.Layout)
	return frame, nil
}

func checkLayout(name []byte) error {
	if len(name) > MaxLayout {
		return fmt.Errorf("the name of a layout has %d bytes, more than %d", len(name), MaxLayout)
	}
	for _, b := range name {
		if b < ' ' || b > '~' {
			return fmt.Errorf("the name of a layout has the byte %#x, which is not printable ASCII", b)
		}
	}
	return nil
}

// DecodeRequest parses a frame of a client, who may be hostile. The error is a *VersionError for another version.
func DecodeRequest(frame []byte) (r Request, _ error) {
	if len(frame) < 2 {
		return r, fmt.Errorf("request of %d bytes", len(frame))
	}
	if r.Version = binary.LittleEndian.Uint16(frame); r.Version != Version {
		return r, &VersionError{r.Version}
	}
	if len(frame) != RequestSize {
		return r, fmt.Errorf("request of %d bytes, want %d", len(frame), RequestSize)
	}
	r.Operation = Operation(binary.LittleEndian.Uint16(frame[2:]))
	r.Bytes = share.Bytes(binary.LittleEndian.Uint64(frame[8:]))
	copy(r.Key.Digest[:], frame[16:])
	length := binary.LittleEndian.Uint32(frame[4:])
	if length > MaxLayout {
		return r, fmt.Errorf("name of a layout with %d bytes", length)
	}
	name, rest := frame[48:48+length], frame[48+length:]
	for _, b := range rest {
		if b != 0 {
			return r, fmt.Errorf("%q follows the name of the layout", rest)
		}
	}
	if err := checkLayout(name); err != nil {
		return r, err
	}
	r.Key.Layout = string(name)
	if r.Operation < Get || r.Operation > Own {
		return r, fmt.Errorf("operation %d", r.Operation)
	}
	return r, nil
}

// Encode returns the frame.
func (r Response) Encode() []byte {
	frame := make([]byte, ResponseSize)
	binary.LittleEndian.PutUint16(frame, r.Version)
	binary.LittleEndian.PutUint16(frame[2:], uint16(r.Status))
	binary.LittleEndian.PutUint64(frame[8:], uint64(r.Bytes))
	binary.LittleEndian.PutUint64(frame[16:], uint64(r.Size))
	return frame
}

// DecodeResponse parses a frame of a store. The error is a *VersionError for another version.
func DecodeResponse(frame []byte) (r Response, _ error) {
	if len(frame) < 2 {
		return r, fmt.Errorf("response of %d bytes", len(frame))
	}
	if r.Version = binary.LittleEndian.Uint16(frame); r.Version != Version {
		return r, &VersionError{r.Version}
	}
	if len(frame) != ResponseSize || binary.LittleEndian.Uint32(frame[4:]) != 0 {
		return r, fmt.Errorf("response %x", frame)
	}
	r.Status = Status(binary.LittleEndian.Uint16(frame[2:]))
	r.Bytes, r.Size = share.Bytes(binary.LittleEndian.Uint64(frame[8:])), share.Bytes(binary.LittleEndian.Uint64(frame[16:]))
	if r.Bytes < 0 || r.Size < 0 {
		return r, fmt.Errorf("response %x has a negative size", frame)
	}
	return r, nil
}

// errorsOf are the errors of package store by their status.
var errorsOf = map[Status]error{
	Namespace: store.ErrNamespace, Absent: store.ErrAbsent, Busy: store.ErrBusy, Present: store.ErrPresent, Size: store.ErrSize,
	Full: store.ErrFull, Writer: store.ErrWriter, Digest: store.ErrDigest,
}

// StatusOf returns the status of an error of package store; Failed for another one, OK for none.
func StatusOf(err error) Status {
	if err == nil {
		return OK
	}
	for status, known := range errorsOf {
		if err == known {
			return status
		}
	}
	return Failed
}

// Err returns the error of a status; nil for OK.
func (s Status) Err() error {
	switch s {
	case OK:
		return nil
	case Malformed:
		return fmt.Errorf("the store did not understand the request")
	case UnknownVersion:
		return fmt.Errorf("the store does not speak version %d", Version)
	case Failed:
		return fmt.Errorf("the store failed, see its log")
	}
	if err := errorsOf[s]; err != nil {
		return err
	}
	return fmt.Errorf("status %d of the store", s)
}
