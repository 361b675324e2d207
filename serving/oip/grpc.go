package oip

import (
	"encoding/binary"
	"math"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// Fields of the messages of inference.GRPCInferenceService.
const (
	// ModelInferRequest and ModelInferResponse
	modelName    protowire.Number = 1
	modelVersion protowire.Number = 2
	messageID    protowire.Number = 3
	parameters   protowire.Number = 4

	// ModelInferRequest
	inputs           protowire.Number = 5
	requestedOutputs protowire.Number = 6
	rawInputs        protowire.Number = 7

	// ModelInferResponse
	outputs    protowire.Number = 5
	rawOutputs protowire.Number = 6

	// InferInputTensor and InferOutputTensor
	tensorName       protowire.Number = 1
	tensorDatatype   protowire.Number = 2
	tensorShape      protowire.Number = 3
	tensorParameters protowire.Number = 4
	tensorContents   protowire.Number = 5

	// InferRequestedOutputTensor
	outputParameters protowire.Number = 2

	// InferParameter
	boolParameter   protowire.Number = 1
	int64Parameter  protowire.Number = 2
	stringParameter protowire.Number = 3
	doubleParameter protowire.Number = 4
	uint64Parameter protowire.Number = 5
)

var parameterKinds = map[protowire.Number]protowire.Type{
	boolParameter: protowire.VarintType, int64Parameter: protowire.VarintType, stringParameter: protowire.BytesType,
	doubleParameter: protowire.Fixed64Type, uint64Parameter: protowire.VarintType,
}

// contents is the field of InferTensorContents that holds the elements of tensors of a datatype.
type contents struct {
	field protowire.Number
	name  string
	kind  protowire.Type // wire type of an element
}

var contentsOf = map[string]contents{
	"BOOL": {1, "bool_contents", protowire.VarintType},
	"INT8": {2, "int_contents", protowire.VarintType}, "INT16": {2, "int_contents", protowire.VarintType}, "INT32": {2, "int_contents", protowire.VarintType},
	"INT64": {3, "int64_contents", protowire.VarintType},
	"UINT8": {4, "uint_contents", protowire.VarintType}, "UINT16": {4, "uint_contents", protowire.VarintType}, "UINT32": {4, "uint_contents", protowire.VarintType},
	"UINT64": {5, "uint64_contents", protowire.VarintType},
	"FP32":   {6, "fp32_contents", protowire.Fixed32Type},
	"FP64":   {7, "fp64_contents", protowire.Fixed64Type},
	"BYTES":  {8, "bytes_contents", protowire.BytesType},
}

// ParseModelInfer locates the tensors of a ModelInferRequest of inference.GRPCInferenceService, in raw_input_contents or in the contents of the
// inputs. It keeps the message, which must not change as long as the request is used. The error is an *Error.
func ParseModelInfer(message []byte) (*Request, error) {
	if err := bounds(message, 0); err != nil {
		return nil, err
	}
	r := &Request{body: message, gRPC: true}
	var p reader
	var model, version []byte
	var raw [][]byte
	p.fields("", message, func(f field) {
		switch f.number {
		case modelName:
			model = p.text("model_name", f, model)
		case modelVersion:
			version = p.text("model_version", f, version)
		case messageID:
			r.id = p.text("id", f, r.id)
		case parameters:
			p.parameter("parameters", f, &r.parameters, r.take)
		case inputs:
			if p.room("inputs", len(r.inputs)) {
				r.inputs = append(r.inputs, p.tensor("inputs", len(r.inputs), f))
			}
		case requestedOutputs:
			if p.room("outputs", len(r.outputs)) {
				r.outputs = append(r.outputs, p.output(len(r.outputs), f))
			}
		case rawInputs:
			if at := "raw_input_contents"; p.room(at, len(raw)) && p.is(element(at, len(raw)), f, protowire.BytesType) {
				raw = append(raw, slices.Clip(f.value))
			}
		default:
			p.strange("", f)
		}
	})
	if len(r.inputs) == 0 {
		p.fail("inputs", "is missing")
	}
	p.locateRaw(r.inputs, "inputs", raw, "raw_input_contents")
	if p.err != nil {
		return nil, p.err
	}
	r.ID, r.Model, r.Version = string(r.id), string(model), string(version)
	r.refuseCompany(p.unknown)
	r.finish()
	return r, nil
}

// take reads a parameter that is not sent with a batch (timeout or priority). It returns false for any other parameter.
func (r *Request) take(p *reader, at, key string, value field) bool {
	var number uint64
	if key == "timeout" || key == "priority" {
		number, _ = protowire.ConsumeVarint(value.value)
		if value.number != int64Parameter && value.number != uint64Parameter {
			p.fail(at, "is neither int64_param nor uint64_param")
		}
		if value.number == int64Parameter && number > math.MaxInt64 {
			p.fail(at, "is less than zero")
		}
	}
	switch key {
	case "timeout":
		if number > maxTimeout {
			p.fail(at, "is more than "+strconv.Itoa(maxTimeout))
		}
		r.Timeout = time.Duration(number) * time.Microsecond
	case "priority":
		r.Priority = number
	default:
		return false
	}
	return true
}

// parameter reads an entry of a map of InferParameters and appends it to found, unless take handles it.
func (r *reader) parameter(at string, entry field, found *[]parameter, take func(p *reader, at, key string, value field) bool) {
	if !r.is(at, entry, protowire.BytesType) {
		return
	}
	var key, message []byte
	r.fields(at, entry.value, func(f field) {
		switch f.number {
		case 1:
			key = r.text(at, f, key)
		case 2:
			message = r.once(at, f, message)
		default:
			r.strange(at, f)
		}
	})
	at += "[" + strconv.Quote(clip(key)) + "]"
	var value field
	r.fields(at, message, func(f field) {
		kind, known := parameterKinds[f.number]
		switch {
		case !known:
			r.strange(at, f)
		case value.number != 0:
			r.fail(at, "has two values")
		case r.is(at, f, kind):
			value = f
		}
		if f.number == stringParameter && !utf8.Valid(f.value) {
			r.fail(at, "is not UTF-8")
		}
	})
	if len(*found) == maxMembers {
		r.fail(at, "is one of more than "+strconv.Itoa(maxMembers)+" parameters")
	}
	if has(*found, string(key)) {
		r.fail(at, "is given twice")
	}
	if r.err == nil && (take == nil || !take(r, at, string(key), value)) {
		*found = append(*found, parameter{key, entry.value, message})
	}
}

// tensor reads an input or an output, except its raw data.
func (r *reader) tensor(list string, index int, message field) tensor {
	at := element(list, index)
	var t tensor
	if !r.is(at, message, protowire.BytesType) {
		return t
	}
	var datatype, contents []byte
	r.fields(at, message.value, func(f field) {
		switch f.number {
		case tensorName:
			t.name = r.text(at+".name", f, t.name)
		case tensorDatatype:
			datatype = r.text(at+".datatype", f, datatype)
		case tensorShape:
			r.shape(at+".shape", f, &t.shape)
		case tensorParameters:
			r.parameter(at+".parameters", f, &t.parameters, nil)
		case tensorContents:
			contents = r.once(at+".contents", f, contents)
		default:
			r.strange(at, f)
			t.others = append(t.others, parameter{token: f.whole})
		}
	})
	t.datatype = string(datatype)
	if _, known := datatypes[t.datatype]; !known {
		r.fail(at+".datatype", "is not a datatype of the protocol: "+strconv.Quote(clip(datatype)))
	}
	var fits bool
	if t.elements, fits = product(t.shape); !fits {
		r.fail(at+".shape", "has more elements than a number of 64 bits counts: "+shapeText(t.shape))
	}
	if len(contents) > 0 {
		r.contents(at+".contents", contents, &t)
	}
	return t
}

// shape appends to a shape what one field adds to it: one dimension, or several that are packed.
func (r *reader) shape(at string, f field, shape *[]int64) {
	if f.kind != protowire.VarintType && !r.is(at, f, protowire.BytesType) {
		return
	}
	for rest := f.value; len(rest) > 0 && r.err == nil; {
		size, n := protowire.ConsumeVarint(rest)
		switch {
		case n < 0:
			r.fail(at, "is not a list of numbers")
			return
		case size > math.MaxInt64:
			r.fail(element(at, len(*shape)), "is less than zero")
		case len(*shape) == maxDimensions:
			r.fail(at, "has more than "+strconv.Itoa(maxDimensions)+" elements")
		}
		*shape, rest = append(*shape, int64(size)), rest[n:]
	}
}

// contents locates the elements of a tensor in InferTensorContents.
func (r *reader) contents(at string, message []byte, t *tensor) {
	want := contentsOf[t.datatype]
	t.encoding = typed
	fields := 0
	r.fields(at, message, func(f field) {
		switch {
		case f.number != want.field:
			r.fail(at, "has field "+strconv.Itoa(int(f.number))+", which is not for "+t.datatype)
		case want.kind == protowire.BytesType:
			r.is(at, f, protowire.BytesType)
			t.data = message
		case f.kind != want.kind && !r.is(at, f, protowire.BytesType):
		case fields == 0:
			t.data = slices.Clip(f.value)
		default:
			t.data = append(t.data, f.value...) // copies, as Clip left no capacity
		}
		fields++
	})
	count := int64(fields)
	switch {
	case r.err != nil:
		return
	case want.kind == protowire.VarintType:
		count = t.checkVarints()
	case want.kind != protowire.BytesType:
		size := datatypes[t.datatype].bytes
		if count = int64(len(t.data) / size); len(t.data)%size != 0 {
			count = -1
		}
	}
	switch {
	case count < 0:
		r.fail(at+"."+want.name, "ends within an element")
	case count != t.elements:
		r.fail(at+"."+want.name, "has "+strconv.FormatInt(count, 10)+" elements, which is not a tensor of "+t.String())
	}
}

// checkVarints returns how many numbers the data of typed contents hold, or -1 if the data end within a number. It sets odd if any number is out of
// range for the datatype.
func (t *tensor) checkVarints() int64 {
	d := datatypes[t.datatype]
	count := int64(0)
	for rest := t.data; len(rest) > 0; count++ {
		v, n := protowire.ConsumeVarint(rest)
		if n < 0 {
			return -1
		}
		switch rest = rest[n:]; {
		case d.kinds == booleans:
			t.odd = t.odd || v > 1
		case d.mostBelow > 0 && int64(v) < 0:
			t.odd = t.odd || -v > d.mostBelow
		default:
			t.odd = t.odd || v > d.most
		}
	}
	return count
}

// output reads an InferRequestedOutputTensor.
func (r *reader) output(index int, message field) output {
	at := element("outputs", index)
	o := output{message: message.value}
	if !r.is(at, message, protowire.BytesType) {
		return o
	}
	r.fields(at, message.value, func(f field) {
		switch f.number {
		case tensorName:
			o.name = r.text(at+".name", f, o.name)
		case outputParameters:
			r.parameter(at+".parameters", f, &o.parameters, nil)
		default:
			r.strange(at, f)
		}
	})
	return o
}

// locateRaw assigns raw data to the tensors of a list. There must be either no raw data, or one element for each tensor that is not in shared memory.
func (r *reader) locateRaw(tensors []tensor, list string, raw [][]byte, rawList string) {
	taken := 0
	for i := range tensors {
		t := &tensors[i]
		at := element(list, i) + ".contents"
		switch {
		case r.err != nil:
			return
		case has(t.parameters, "shared_memory_region"):
			t.encoding = shared
		case len(raw) > 0 && t.encoding == typed:
			r.fail(at, "is given besides "+rawList)
		case t.encoding == typed:
		case len(raw) == 0 && t.elements > 0:
			r.fail(at, "is missing")
		case len(raw) == 0:
			t.encoding = typed
		case taken == len(raw):
			r.fail(rawList, "has no element for "+element(list, i))
		default:
			t.encoding, t.data = blob, raw[taken]
			if problem := t.checkBlob(); problem != "" {
				r.fail(element(rawList, taken), problem)
			}
			taken++
		}
	}
	if taken < len(raw) {
		r.fail(rawList, "has "+strconv.Itoa(len(raw))+" elements, for "+strconv.Itoa(taken)+" tensors")
	}
}

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
