package oip

import (
	"slices"
	"strconv"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// field is a field of a protocol buffers message.
type field struct {
	number protowire.Number
	kind   protowire.Type
	value  []byte // as encoded; for BytesType without its length
	whole  []byte // with tag and length
}

// reader reads protocol buffers messages. After the first error it makes no more calls, and err keeps that error.
type reader struct {
	err     *Error
	unknown *Error // the first field that the protocol does not define
}

func (r *reader) fail(at, problem string) {
	if r.err == nil {
		r.err = &Error{at, problem}
	}
}

// fields calls read for each field of the message at the given path.
func (r *reader) fields(at string, message []byte, read func(f field)) {
	for len(message) > 0 && r.err == nil {
		number, kind, tag := protowire.ConsumeTag(message)
		length := 0
		if tag > 0 {
			length = protowire.ConsumeFieldValue(number, kind, message[tag:])
		}
		if tag < 0 || length < 0 || number > protowire.MaxValidNumber {
			r.fail(at, "is not a message of protocol buffers: "+strconv.Itoa(len(message))+" bytes before its end no field begins")
			return
		}
		f := field{number: number, kind: kind, value: message[tag : tag+length], whole: message[:tag+length]}
		if kind == protowire.BytesType {
			f.value, _ = protowire.ConsumeBytes(f.value)
		}
		message = message[tag+length:]
		read(f)
	}
}

// is checks the wire type of the field at the given path.
func (r *reader) is(at string, f field, kind protowire.Type) bool {
	if f.kind != kind {
		r.fail(at, "has wire type "+strconv.Itoa(int(f.kind))+", not "+strconv.Itoa(int(kind)))
	}
	return r.err == nil
}

// once returns the bytes of a field that may be given only once. before is its value so far.
func (r *reader) once(at string, f field, before []byte) []byte {
	if before != nil {
		r.fail(at, "is given twice")
	}
	if !r.is(at, f, protowire.BytesType) {
		return nil
	}
	return slices.Clip(f.value)
}

// text is once for a string field, which has to be UTF-8.
func (r *reader) text(at string, f field, before []byte) []byte {
	value := r.once(at, f, before)
	if !utf8.Valid(value) {
		r.fail(at, "is not UTF-8")
	}
	return value
}

// strange records a field that the protocol does not define.
func (r *reader) strange(at string, f field) {
	if r.unknown == nil {
		r.unknown = &Error{join(at, strconv.Itoa(int(f.number))), unknown}
	}
}

// join returns the path of a field in the message at a path.
func join(at, name string) string {
	if at == "" {
		return name
	}
	return at + "." + name
}

// room reports whether a repeated field with n elements may have one more.
func (r *reader) room(at string, n int) bool {
	if n >= maxTensors {
		r.fail(at, "has more than "+strconv.Itoa(maxTensors)+" elements")
	}
	return r.err == nil
}
