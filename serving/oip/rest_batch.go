package oip

import (
	"bytes"
	"strconv"
)

func mergeREST(b *Batch) Message {
	requests := b.members()
	first := requests[0]
	var out splicer
	out.add("{")
	if len(first.parameters) > 0 {
		out.add(`"parameters":{`)
		out.fields(first.parameters)
		out.add("},")
	}
	out.add(`"inputs":[`)
	for i := range first.inputs {
		if i > 0 {
			out.add(",")
		}
		t := &first.inputs[i]
		size := 0
		for _, r := range requests {
			size += len(r.inputs[i].data)
		}
		out.head(t, b.Rows, size)
		if t.encoding != blob {
			out.add(`,"data":[`)
			for j, r := range requests {
				if j > 0 {
					out.add(",")
				}
				out.splice(r.inputs[i].data)
			}
			out.add("]")
		}
		out.add("}")
	}
	out.add("]")
	if len(first.outputs) > 0 {
		out.add(`,"outputs":`)
		out.splice(first.rawOutputs)
	}
	out.add("}")
	length := out.size()
	for i := range first.inputs {
		if first.inputs[i].encoding == blob {
			for _, r := range requests {
				out.splice(r.inputs[i].data)
			}
		}
	}
	return Message{out.segments(), length}
}

// head writes a tensor up to its data, with the given first dimension and, if the data are binary, with size as their number of bytes.
func (s *splicer) head(t *tensor, rows int64, size int) {
	s.add(`{"name":`)
	s.splice(t.token)
	s.add(`,"shape":[` + strconv.FormatInt(rows, 10))
	for _, size := range t.shape[1:] {
		s.add("," + strconv.FormatInt(size, 10))
	}
	s.add(`],"datatype":"` + t.datatype + `"`)
	if len(t.others) > 0 {
		s.add(",")
		s.fields(t.others)
	}
	if t.encoding == blob || len(t.parameters) > 0 {
		s.add(`,"parameters":{`)
		if t.encoding == blob {
			s.add(`"binary_data_size":` + strconv.Itoa(size))
			if len(t.parameters) > 0 {
				s.add(",")
			}
		}
		s.fields(t.parameters)
		s.add("}")
	}
}

// fields writes members of an object, separated by commas.
func (s *splicer) fields(fields []parameter) {
	for i, f := range fields {
		if i > 0 {
			s.add(",")
		}
		s.splice(f.token)
		s.add(":")
		s.splice(f.value)
	}
}

// splitREST sets parts to the responses to the requests of the batch.
func splitREST(b *Batch, body []byte, jsonLength int, parts []*Message) *Error {
	s := newScanner(body[:jsonLength])
	outputs, others := s.response()
	if s.err == nil {
		s.err = locateBlobs(outputs, "outputs", body[jsonLength:])
	}
	if s.err == nil {
		s.err = checkRows(outputs, b.Rows)
	}
	if s.err != nil {
		return s.err
	}
	cuts := make([][]byte, len(outputs))
	for i, r := range b.requests {
		if r == nil {
			continue
		}
		var out splicer
		out.add("{")
		if len(others) > 0 {
			out.fields(others)
			out.add(",")
		}
		if r.id != nil {
			out.add(`"id":`)
			out.splice(r.id)
			out.add(",")
		}
		out.add(`"outputs":[`)
		for j := range outputs {
			t := &outputs[j]
			if j > 0 {
				out.add(",")
			}
			cuts[j], t.data = t.cut(r.Rows)
			out.head(t, r.Rows, len(cuts[j]))
			if t.encoding != blob {
				out.add(`,"data":[`)
				out.splice(cuts[j])
				out.add("]")
			}
			out.add("}")
		}
		out.add("]}")
		length := out.size()
		for j := range outputs {
			if outputs[j].encoding == blob {
				out.splice(cuts[j])
			}
		}
		parts[i] = &Message{out.segments(), length}
	}
	return nil
}

// response reads a response, except its binary data. It leaves out the id.
func (s *scanner) response() (outputs []tensor, others []parameter) {
	s.members(func(key, token []byte) {
		switch string(key) {
		case "id":
			s.value()
		case "outputs":
			outputs = []tensor{}
			s.elements(maxTensors, func(int) {
				t := s.tensor()
				switch t.encoding {
				case otherwise:
					s.failIn("data", otherwiseNested)
				case shared:
					s.missing("data")
				}
				outputs = append(outputs, t)
			})
		default:
			others = append(others, parameter{key, token, s.value()})
		}
	})
	s.end()
	if outputs == nil {
		s.missing("outputs")
	}
	return outputs, others
}

// cutArray returns the first n elements in the content of an array, and the rest without the comma between them. The content must have been read
// before, so that it is valid.
func cutArray(content []byte, n int64, hasText, nested bool) (part, rest []byte) {
	if n == 0 {
		return nil, content
	}
	at := 0
	for depth := 0; n > 0; {
		if !hasText && !nested {
			comma := bytes.IndexByte(content[at:], ',')
			if comma < 0 {
				return content, nil
			}
			at += comma + 1
			n--
			continue
		}
		if at == len(content) {
			return content, nil
		}
		switch content[at] {
		case '"':
			at += stringLength(content[at:]) - 1
		case '[':
			depth++
		case ']':
			depth--
		case ',':
			if depth == 0 {
				n--
			}
		}
		at++
	}
	return content[: at-1 : at-1], content[at:]
}

// stringLength returns the length of the string that text begins with.
func stringLength(text []byte) int {
	for i := 1; ; i++ {
		switch text[i] {
		case '"':
			return i + 1
		case '\\':
			i++
		}
	}
}
