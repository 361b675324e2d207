package oip

import (
	"encoding/binary"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
)

// tag writes the tag of a field of BytesType and the length of its value.
func (s *splicer) tag(number protowire.Number, length int) {
	s.text = protowire.AppendVarint(protowire.AppendTag(s.text, number, protowire.BytesType), uint64(length))
}

// bytes writes a field of BytesType.
func (s *splicer) bytes(number protowire.Number, value []byte) {
	s.tag(number, len(value))
	s.splice(value)
}

// sum returns the total length of all parts.
func sum(parts [][]byte) int {
	n := 0
	for _, part := range parts {
		n += len(part)
	}
	return n
}

// tensor writes an input or an output with the given number of rows. parts are its data. If these are raw, they are not written here but by the
// caller, later.
func (s *splicer) tensor(number protowire.Number, t *tensor, rows int64, parts [][]byte) {
	var shape []byte
	for i, size := range t.shape {
		if i == 0 {
			size = rows
		}
		shape = binary.AppendUvarint(shape, uint64(size))
	}
	var head splicer
	head.bytes(tensorName, t.name)
	head.bytes(tensorDatatype, []byte(t.datatype))
	head.bytes(tensorShape, shape)
	for _, p := range t.parameters {
		head.bytes(tensorParameters, p.token)
	}
	for _, f := range t.others {
		head.splice(f.token)
	}
	if length := sum(parts); t.encoding == typed && length > 0 {
		want := contentsOf[t.datatype]
		if want.kind == protowire.BytesType {
			head.tag(tensorContents, length)
		} else {
			head.tag(tensorContents, protowire.SizeTag(want.field)+protowire.SizeBytes(length))
			head.tag(want.field, length)
		}
		for _, part := range parts {
			head.splice(part)
		}
	}
	s.tag(number, head.size())
	for _, segment := range head.segments() {
		s.splice(segment)
	}
}

func mergeGRPC(b *Batch) Message {
	requests := b.members()
	first := requests[0]
	var out splicer
	out.bytes(modelName, []byte(first.Model))
	if first.Version != "" {
		out.bytes(modelVersion, []byte(first.Version))
	}
	for _, p := range first.parameters {
		out.bytes(parameters, p.token)
	}
	data := make([][][]byte, len(first.inputs)) // indexed by input, then request
	for i := range first.inputs {
		for _, r := range requests {
			data[i] = append(data[i], r.inputs[i].data)
		}
		out.tensor(inputs, &first.inputs[i], b.Rows, data[i])
	}
	for _, o := range first.outputs {
		out.bytes(requestedOutputs, o.message)
	}
	for i := range first.inputs {
		if first.inputs[i].encoding == blob {
			out.tag(rawInputs, sum(data[i]))
			for _, part := range data[i] {
				out.splice(part)
			}
		}
	}
	return Message{Segments: out.segments()}
}

// splitGRPC sets parts to the responses to the requests of the batch.
func splitGRPC(b *Batch, message []byte, _ int, parts []*Message) *Error {
	var p reader
	var tensors []tensor
	var model, version, id []byte
	var found []parameter
	var others, raw [][]byte
	p.fields("", message, func(f field) {
		switch f.number {
		case messageID:
			id = p.text("id", f, id)
		case outputs:
			if p.room("outputs", len(tensors)) {
				tensors = append(tensors, p.tensor("outputs", len(tensors), f))
			}
		case rawOutputs:
			if at := "raw_output_contents"; p.room(at, len(raw)) && p.is(element(at, len(raw)), f, protowire.BytesType) {
				raw = append(raw, slices.Clip(f.value))
			}
		case modelName:
			model = p.text("model_name", f, model)
		case modelVersion:
			version = p.text("model_version", f, version)
		case parameters:
			p.parameter("parameters", f, &found, nil)
		}
		if f.number != messageID && f.number != outputs && f.number != rawOutputs {
			others = append(others, f.whole)
		}
	})
	p.locateRaw(tensors, "outputs", raw, "raw_output_contents")
	for i := range tensors {
		if tensors[i].encoding == shared {
			p.fail(element("outputs", i)+".contents", "is missing")
		}
	}
	if p.err == nil {
		p.err = checkRows(tensors, b.Rows)
	}
	if p.err != nil {
		return p.err
	}
	cuts := make([][]byte, len(tensors))
	for i, r := range b.requests {
		if r == nil {
			continue
		}
		var out splicer
		for _, f := range others {
			out.splice(f)
		}
		if len(r.id) > 0 {
			out.bytes(messageID, r.id)
		}
		for j := range tensors {
			t := &tensors[j]
			cuts[j], t.data = t.cut(r.Rows)
			out.tensor(outputs, t, r.Rows, cuts[j:j+1])
		}
		for j := range tensors {
			if tensors[j].encoding == blob {
				out.bytes(rawOutputs, cuts[j])
			}
		}
		parts[i] = &Message{Segments: out.segments()}
	}
	return nil
}

// cutContents returns the first n elements of typed contents, and the rest.
func (t *tensor) cutContents(n int64) (part, rest []byte) {
	length := 0
	switch contentsOf[t.datatype].kind {
	case protowire.VarintType:
		for range n {
			length += protowire.ConsumeFieldValue(1, protowire.VarintType, t.data[length:])
		}
	case protowire.BytesType:
		for range n {
			_, _, size := protowire.ConsumeField(t.data[length:])
			length += size
		}
	default:
		length = int(n) * datatypes[t.datatype].bytes
	}
	return t.data[:length:length], t.data[length:]
}
