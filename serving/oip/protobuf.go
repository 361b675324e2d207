package oip

import (
	"slices"
	"strconv"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// field is one of a message of protocol buffers.
type field struct {
	number protowire.Number
	kind   protowire.Type
	value  []byte // as written, but for BytesType without its length
	whole  []byte // with tag and length
}

// reader reads messages of protocol buffers. After the first error it calls nobody, and err stays.
type reader struct {
	err     *Error
	unknown *Error // first field that the protocol does not have
}

func (r *reader) fail(at, problem string) {
	if r.err == nil {
		r.err = &Error{at, problem}
	}
}

// fields calls read for each field of a message that is at the given path.
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

// is checks the type of a field that is at the given path.
func (r *reader) is(at string, f field, kind protowire.Type) bool {
	if f.kind != kind {
		r.fail(at, "has wire type "+strconv.Itoa(int(f.kind))+", not "+strconv.Itoa(int(kind)))
	}
	return r.err == nil
}

// once returns the bytes of a field that may be there once; before is what it was before.
func (r *reader) once(at string, f field, before []byte) []byte {
	if before != nil {
		r.fail(at, "is given twice")
	}
	if !r.is(at, f, protowire.BytesType) {
		return nil
	}
	return slices.Clip(f.value)
}

// text is once for a string.
func (r *reader) text(at string, f field, before []byte) []byte {
	value := r.once(at, f, before)
	if !utf8.Valid(value) {
		r.fail(at, "is not UTF-8")
	}
	return value
}

// strange notes a field that the protocol does not have.
func (r *reader) strange(at string, f field) {
	if r.unknown == nil {
		r.unknown = &Error{join(at, strconv.Itoa(int(f.number))), unknown}
	}
}

// join returns the path of a field of the message at a path.
func join(at, name string) string {
	if at == "" {
		return name
	}
	return at + "." + name
}

// room reports whether one more element of a repeated field is within the bounds.
func (r *reader) room(at string, n int) bool {
	if n >= maxTensors {
		r.fail(at, "has more than "+strconv.Itoa(maxTensors)+" elements")
	}
	return r.err == nil
}
