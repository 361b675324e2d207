package oip

import (
	"bytes"
	"math"
	"slices"
	"strconv"
	"time"
)

// ParseRequest locates the tensors in the body of a REST request, whose first jsonLength bytes are JSON (see JSONLength). It converts no tensor into
// numbers. It keeps body, which must not change as long as the request is used. The error is an *Error.
func ParseRequest(body []byte, jsonLength int) (*Request, error) {
	if err := bounds(body, jsonLength); err != nil {
		return nil, err
	}
	r := &Request{body: body, jsonLength: jsonLength}
	if jsonLength == 0 && len(body) > 0 {
		r.refuseCompany(&Error{"", "is binary data without JSON"})
		return r, nil
	}
	s := newScanner(body[:jsonLength])
	s.request(r)
	if s.err == nil {
		s.err = locateBlobs(r.inputs, "inputs", body[jsonLength:])
	}
	if s.err != nil {
		return nil, s.err
	}
	r.finish()
	return r, nil
}

// bounds checks the length of a message and of its JSON part.
func bounds(body []byte, jsonLength int) *Error {
	switch {
	case len(body) > maxBody:
		return &Error{"", "has more than " + strconv.Itoa(maxBody) + " bytes"}
	case jsonLength < 0 || jsonLength > len(body):
		return &Error{HeaderName, "is " + strconv.Itoa(jsonLength) + ", the body has " + strconv.Itoa(len(body)) + " bytes"}
	}
	return nil
}

// request reads a request, except its binary data.
func (s *scanner) request(r *Request) {
	s.members(func(key, _ []byte) {
		switch string(key) {
		case "id":
			if s.null() {
				break
			}
			r.id = s.stringToken()
			r.ID = string(unquote(r.id))
		case "parameters":
			r.parameters = s.parameters(func(key []byte) bool {
				switch string(key) {
				case "timeout":
					r.Timeout = time.Duration(s.unsigned(maxTimeout)) * time.Microsecond
				case "priority":
					r.Priority = s.unsigned(math.MaxUint64)
				default:
					return false
				}
				return true
			})
		case "inputs":
			s.elements(maxTensors, func(int) { r.inputs = append(r.inputs, s.tensor()) })
			if !s.failed() && len(r.inputs) == 0 {
				s.fail("is empty")
			}
		case "outputs":
			if s.null() {
				break
			}
			from := s.at
			s.elements(maxTensors, func(int) { r.outputs = append(r.outputs, s.output(r)) })
			if !s.failed() {
				r.rawOutputs = bytes.TrimLeft(s.text[from:s.at], " \t\r\n")
			}
		default:
			r.refuseCompany(s.problem(unknown))
			s.value()
		}
	})
	s.end()
	if r.inputs == nil {
		s.missing("inputs")
	}
}

// unknown is the problem of a field that the protocol does not define.
const unknown = "is not a field of the protocol"

// otherwiseNested is the problem of data with the encoding otherwise.
const otherwiseNested = "are nested neither flat nor as the shape"

// null skips a null, which some clients write for an optional field without a value, and reports whether there was one.
func (s *scanner) null() bool { return s.peek() == 'n' && s.literal("null") }

// parameters reads a parameters object. It calls known before each value; known either reads the value and returns true, or the parameter is among
// those returned.
func (s *scanner) parameters(known func(key []byte) bool) []parameter {
	if s.null() {
		return nil
	}
	var found []parameter
	s.members(func(key, token []byte) {
		if !known(key) {
			found = append(found, parameter{key, token, s.value()})
		}
	})
	return found
}

// tensor reads an input or an output, except its binary data.
func (s *scanner) tensor() tensor {
	t := tensor{size: -1}
	var data array
	hasData := false
	s.members(func(key, token []byte) {
		switch string(key) {
		case "name":
			t.token = s.stringToken()
			t.name = unquote(t.token)
		case "datatype":
			t.datatype = string(unquote(s.stringToken()))
			if _, ok := datatypes[t.datatype]; !ok {
				s.fail("is not a datatype of the protocol: " + strconv.Quote(clip([]byte(t.datatype))))
			}
		case "shape":
			t.shape = []int64{}
			s.elements(maxDimensions, func(int) { t.shape = append(t.shape, int64(s.unsigned(math.MaxInt64))) })
		case "parameters":
			t.parameters = s.parameters(func(key []byte) bool {
				if string(key) == "binary_data_size" {
					t.size = int64(s.unsigned(maxBody))
					return true
				}
				return false
			})
		case "data":
			data, hasData = s.array(), true
		default:
			t.others = append(t.others, parameter{key, token, s.value()})
		}
	})
	switch {
	case t.token == nil:
		s.missing("name")
	case t.datatype == "":
		s.missing("datatype")
	case t.shape == nil:
		s.missing("shape")
	}
	var fits bool
	if t.elements, fits = product(t.shape); !fits {
		s.failIn("shape", "has more elements than a number of 64 bits counts: "+shapeText(t.shape))
	}
	switch {
	case s.failed():
	case hasData && t.size >= 0:
		s.failIn("data", "are given besides parameters.binary_data_size")
	case hasData:
		t.take(s, &data)
	case t.size >= 0:
		t.encoding = blob
	case has(t.parameters, "shared_memory_region"):
		t.encoding = shared
	default:
		s.missing("data")
	}
	return t
}

// take gives the tensor its data, a JSON array.
func (t *tensor) take(s *scanner, a *array) {
	t.data = a.content
	t.hasText = a.kinds&texts != 0
	t.odd = !datatypes[t.datatype].takes(a)
	switch {
	case a.count != t.elements:
		s.failIn("data", "have "+strconv.FormatInt(a.count, 10)+" values, which is not a tensor of "+t.String())
	case a.depth == 1:
		t.encoding = flat
	case a.depth == len(t.shape) && slices.Equal(a.sizes[:a.depth], t.shape):
		t.encoding = nested
	default:
		t.encoding = otherwise
	}
}

// output reads a requested output.
func (s *scanner) output(r *Request) output {
	var o output
	s.members(func(key, _ []byte) {
		switch string(key) {
		case "name":
			o.name = unquote(s.stringToken())
		case "parameters":
			o.parameters = s.parameters(func([]byte) bool { return false })
		default:
			r.refuseCompany(s.problem(unknown))
			s.value()
		}
	})
	if !s.failed() && o.name == nil {
		s.missing("name")
	}
	return o
}

// locateBlobs assigns the binary data in body to those tensors of a field that have such data. body must hold these data and nothing else.
func locateBlobs(tensors []tensor, field string, body []byte) *Error {
	for i := range tensors {
		t := &tensors[i]
		if t.encoding != blob {
			continue
		}
		if t.size > int64(len(body)) {
			return &Error{element(field, i) + ".parameters.binary_data_size",
				"is " + strconv.FormatInt(t.size, 10) + ", the message has " + strconv.Itoa(len(body)) + " bytes left"}
		}
		t.data, body = body[:t.size:t.size], body[t.size:]
		if problem := t.checkBlob(); problem != "" {
			return &Error{element(field, i) + ".parameters.binary_data_size", problem}
		}
	}
	if len(body) > 0 {
		return &Error{"", "has " + strconv.Itoa(len(body)) + " bytes after the last tensor"}
	}
	return nil
}
