package oip

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strconv"
)

// output is an output that a request asks for.
type output struct {
	name       []byte
	parameters []parameter
	message    []byte // the protocol buffers message; nil for REST
}

// element returns the path of an element of a field.
func element(field string, index int) string { return field + "[" + strconv.Itoa(index) + "]" }

// has reports whether there is a parameter of that name.
func has(parameters []parameter, name string) bool {
	return slices.ContainsFunc(parameters, func(p parameter) bool { return string(p.key) == name })
}

// refuseCompany records why the request must be sent alone. Only the first reason is kept; nil is no reason.
func (r *Request) refuseCompany(why *Error) {
	if r.alone == nil && why != nil {
		r.alone = why
	}
}

// finish decides whether the request may be merged, and sets its signature if so. It is called once everything has been read.
func (r *Request) finish() {
	for _, name := range []string{"sequence_id", "sequence_start", "sequence_end"} {
		if has(r.parameters, name) {
			r.refuseCompany(&Error{"parameters." + name, "makes the request one of a sequence"})
		}
	}
	for i := range r.inputs {
		if problem := r.inputs[i].whyAlone(r.inputs[0].rows()); problem != nil {
			problem.Field = element("inputs", i) + "." + problem.Field
			r.refuseCompany(problem)
		}
	}
	for i, o := range r.outputs {
		if has(o.parameters, "shared_memory_region") {
			r.refuseCompany(&Error{element("outputs", i), "goes to shared memory"})
		}
	}
	if r.alone == nil {
		r.Rows = r.inputs[0].rows()
		r.signature = r.sign()
	}
}

// form returns the name of the form of the message.
func (r *Request) form() string {
	if r.gRPC {
		return "gRPC"
	}
	return "REST"
}

// sign returns the signature: everything that two requests of a batch have in common, each part preceded by its length.
func (r *Request) sign() string {
	text := make([]byte, 0, 256)
	text = prefixed(text, []byte(r.form()))
	text = prefixed(text, []byte(r.Model))
	text = prefixed(text, []byte(r.Version))
	text = sign(text, r.parameters)
	text = binary.AppendUvarint(text, uint64(len(r.inputs)))
	for i := range r.inputs {
		t := &r.inputs[i]
		text = prefixed(text, t.name)
		text = prefixed(text, []byte(t.datatype))
		text = prefixed(text, []byte(t.encoding))
		text = binary.AppendUvarint(text, uint64(len(t.shape)))
		for _, size := range t.shape[1:] {
			text = binary.AppendUvarint(text, uint64(size))
		}
		text = sign(text, t.parameters)
	}
	text = binary.AppendUvarint(text, uint64(len(r.outputs)))
	for _, o := range r.outputs {
		text = prefixed(text, o.name)
		text = sign(text, o.parameters)
	}
	return string(text)
}

func prefixed(text, part []byte) []byte {
	return append(binary.AppendUvarint(text, uint64(len(part))), part...)
}

// sign appends parameters, sorted by name.
func sign(text []byte, parameters []parameter) []byte {
	text = binary.AppendUvarint(text, uint64(len(parameters)))
	if len(parameters) > 1 {
		parameters = slices.SortedFunc(slices.Values(parameters), func(a, b parameter) int { return bytes.Compare(a.key, b.key) })
	}
	for _, p := range parameters {
		text = prefixed(text, p.key)
		text = prefixed(text, p.value)
	}
	return text
}

// mismatch returns why other cannot be in a batch with r, or nil.
func (r *Request) mismatch(other *Request) error {
	switch {
	case r.alone != nil:
		return &Error{"", "cannot join a request that must be sent alone: " + r.alone.Error()}
	case other.alone != nil:
		return other.alone
	case r.signature == other.signature:
		return nil
	case r.gRPC != other.gRPC:
		return differs("", other.form(), r.form())
	case r.Model != other.Model:
		return differs("model_name", strconv.Quote(clip([]byte(other.Model))), strconv.Quote(clip([]byte(r.Model))))
	case r.Version != other.Version:
		return differs("model_version", strconv.Quote(clip([]byte(other.Version))), strconv.Quote(clip([]byte(r.Version))))
	case len(r.inputs) != len(other.inputs):
		return differs("inputs", strconv.Itoa(len(other.inputs))+" tensors", strconv.Itoa(len(r.inputs)))
	case !bytes.Equal(sign(nil, r.parameters), sign(nil, other.parameters)):
		return &Error{"parameters", "differ from those of the batch"}
	}
	for i := range r.inputs {
		a, b, field := &other.inputs[i], &r.inputs[i], element("inputs", i)
		switch {
		case !bytes.Equal(a.name, b.name):
			return differs(field+".name", strconv.Quote(clip(a.name)), strconv.Quote(clip(b.name)))
		case a.datatype != b.datatype:
			return differs(field+".datatype", a.datatype, b.datatype)
		case len(a.shape) != len(b.shape) || !slices.Equal(a.shape[1:], b.shape[1:]):
			return differs(field+".shape", shapeText(a.shape), shapeText(b.shape)+", of which only the first dimension may differ")
		case a.encoding != b.encoding:
			return differs(field+".data", string(a.encoding), string(b.encoding))
		case !bytes.Equal(sign(nil, a.parameters), sign(nil, b.parameters)):
			return &Error{field + ".parameters", "differ from those of the batch"}
		}
	}
	return &Error{"outputs", "differ from those of the batch"}
}

func differs(field, is, batch string) *Error {
	return &Error{field, "is " + is + ", the batch has " + batch}
}

// checkRows compares the first dimension of each output with the rows of a batch.
func checkRows(outputs []tensor, rows int64) *Error {
	for i := range outputs {
		if outputs[i].rows() != rows {
			return &Error{element("outputs", i) + ".shape",
				"is " + shapeText(outputs[i].shape) + ", the batch has " + strconv.FormatInt(rows, 10) + " rows"}
		}
	}
	return nil
}
