package oip_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/gshare-dev/gshare/serving/oip"
)

// service describes the messages of the protocol as they are published, without generated code. A message is a list of fields; "*" is
// repeated, "%" a map, "|" one of several.
var service = describe(map[string]string{
	"InferParameter":      "|bool_param:bool |int64_param:int64 |string_param:string |double_param:double |uint64_param:uint64",
	"InferTensorContents": "*bool_contents:bool *int_contents:int32 *int64_contents:int64 *uint_contents:uint32 *uint64_contents:uint64 *fp32_contents:float *fp64_contents:double *bytes_contents:bytes",
	"Tensor":              "name:string datatype:string *shape:int64 %parameters:InferParameter contents:InferTensorContents",
	"RequestedOutput":     "name:string %parameters:InferParameter",
	"ModelInferRequest":   "model_name:string model_version:string id:string %parameters:InferParameter *inputs:Tensor *outputs:RequestedOutput *raw_input_contents:bytes",
	"ModelInferResponse":  "model_name:string model_version:string id:string %parameters:InferParameter *outputs:Tensor *raw_output_contents:bytes",
})

func describe(messages map[string]string) protoreflect.FileDescriptor {
	file := &descriptorpb.FileDescriptorProto{Name: new("oip.proto"), Package: new("inference"), Syntax: new("proto3")}
	for name, fields := range messages {
		m := &descriptorpb.DescriptorProto{Name: new(name)}
		for i, text := range strings.Fields(fields) {
			field, kind, _ := strings.Cut(strings.TrimLeft(text, "*%|"), ":")
			f := &descriptorpb.FieldDescriptorProto{Name: new(field), Number: new(int32(i + 1)), Label: descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum()}
			typeOf(f, kind)
			switch text[0] {
			case '*':
				f.Label = descriptorpb.FieldDescriptorProto_LABEL_REPEATED.Enum()
			case '|':
				f.OneofIndex = new(int32(0))
				m.OneofDecl = []*descriptorpb.OneofDescriptorProto{{Name: new("parameter_choice")}}
			case '%':
				f.Label = descriptorpb.FieldDescriptorProto_LABEL_REPEATED.Enum()
				entry := &descriptorpb.DescriptorProto{Name: new("ParametersEntry"), Options: &descriptorpb.MessageOptions{MapEntry: new(true)}}
				for j, kind := range []string{"string", kind} {
					e := &descriptorpb.FieldDescriptorProto{Name: new([]string{"key", "value"}[j]), Number: new(int32(j + 1)), Label: f.Label}
					e.Label = descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum()
					typeOf(e, kind)
					entry.Field = append(entry.Field, e)
				}
				m.NestedType = append(m.NestedType, entry)
				typeOf(f, name+".ParametersEntry")
			}
			m.Field = append(m.Field, f)
		}
		file.MessageType = append(file.MessageType, m)
	}
	built, err := protodesc.NewFile(file, nil)
	if err != nil {
		panic(err)
	}
	return built
}

func typeOf(f *descriptorpb.FieldDescriptorProto, kind string) {
	if number, ok := descriptorpb.FieldDescriptorProto_Type_value["TYPE_"+strings.ToUpper(kind)]; ok {
		f.Type = descriptorpb.FieldDescriptorProto_Type(number).Enum()
		return
	}
	f.Type, f.TypeName = descriptorpb.FieldDescriptorProto_TYPE_MESSAGE.Enum(), new(".inference."+kind)
}

func newMessage(name string) *dynamicpb.Message {
	return dynamicpb.NewMessage(service.Messages().ByName(protoreflect.Name(name)))
}

// encode writes a message, given as JSON, as protocol buffers.
func encode(t testing.TB, name, text string) []byte {
	t.Helper()
	m := newMessage(name)
	if err := protojson.Unmarshal([]byte(text), m); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	message, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return message
}

// decoded is what golang/protobuf reads from a message.
func decoded(t testing.TB, name string, message []byte) *dynamicpb.Message {
	t.Helper()
	m := newMessage(name)
	if err := proto.Unmarshal(message, m); err != nil {
		t.Fatalf("%v: %q", err, message)
	}
	return m
}

// wantMessage compares a message with one that is given as JSON.
func wantMessage(t testing.TB, name string, got *oip.Message, want string) {
	t.Helper()
	g, w := decoded(t, name, []byte(text(got))), decoded(t, name, encode(t, name, want))
	if !proto.Equal(g, w) {
		t.Errorf("got  %v\nwant %v", protojson.Format(g), protojson.Format(w))
	}
}

func parseInfer(t testing.TB, text string) *oip.Request {
	t.Helper()
	r, err := oip.ParseModelInfer(encode(t, "ModelInferRequest", text))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// infer is a request for one row, to be varied.
const infer = `{"modelName":"m","modelVersion":"1","id":"a","parameters":{"timeout":{"int64Param":"2500"},"priority":{"uint64Param":"2"},"x":{"stringParam":"y"}},` +
	`"inputs":[{"name":"in","datatype":"FP32","shape":["1","2"],"contents":{"fp32Contents":[1.5,2]}}],"outputs":[{"name":"out"}]}`

func TestParseModelInfer(t *testing.T) {
	r := parseInfer(t, infer)
	if r.ID != "a" || r.Model != "m" || r.Version != "1" || r.Timeout != 2500*time.Microsecond || r.Priority != 2 || r.Rows != 1 || r.Alone() != nil {
		t.Errorf("got %+v (alone: %v)", r, r.Alone())
	}
}

func TestMergeGRPC(t *testing.T) {
	const head = `{"modelName":"m","parameters":{"x":{"stringParam":"y"},"timeout":{"uint64Param":"7"}},"outputs":[{"name":"o","parameters":{"k":{"boolParam":true}}}],`
	a := parseInfer(t, head+`"id":"a","inputs":[{"name":"i","datatype":"INT64","shape":["1","2"],"parameters":{"p":{"doubleParam":0.5}},"contents":{"int64Contents":["-1","300"]}},`+
		`{"name":"t","datatype":"BYTES","shape":["1"],"contents":{"bytesContents":["YQ=="]}}]}`)
	b := parseInfer(t, head+`"inputs":[{"name":"i","datatype":"INT64","shape":["2","2"],"parameters":{"p":{"doubleParam":0.5}},"contents":{"int64Contents":["4","5","6","7"]}},`+
		`{"name":"t","datatype":"BYTES","shape":["2"],"contents":{"bytesContents":["","Yg=="]}}]}`)
	batch, errs := oip.Merge([]*oip.Request{a, b})
	if errs != nil {
		t.Fatal(errs)
	}
	wantMessage(t, "ModelInferRequest", &batch.Message, `{"modelName":"m","parameters":{"x":{"stringParam":"y"}},"outputs":[{"name":"o","parameters":{"k":{"boolParam":true}}}],`+
		`"inputs":[{"name":"i","datatype":"INT64","shape":["3","2"],"parameters":{"p":{"doubleParam":0.5}},"contents":{"int64Contents":["-1","300","4","5","6","7"]}},`+
		`{"name":"t","datatype":"BYTES","shape":["3"],"contents":{"bytesContents":["YQ==","","Yg=="]}}]}`)
	parts, err := batch.Split(encode(t, "ModelInferResponse", `{"modelName":"m","modelVersion":"2","id":"server","parameters":{"q":{"boolParam":false}},`+
		`"outputs":[{"name":"f","datatype":"FP64","shape":["3","1"],"parameters":{"z":{"int64Param":"1"}},"contents":{"fp64Contents":[1,2,3]}},`+
		`{"name":"e","datatype":"FP16","shape":["3","0"]},{"name":"t","datatype":"BYTES","shape":["3"],"contents":{"bytesContents":["YQ==","","Yg=="]}}]}`), 0)
	if err != nil {
		t.Fatal(err)
	}
	wantMessage(t, "ModelInferResponse", parts[0], `{"modelName":"m","modelVersion":"2","id":"a","parameters":{"q":{"boolParam":false}},`+
		`"outputs":[{"name":"f","datatype":"FP64","shape":["1","1"],"parameters":{"z":{"int64Param":"1"}},"contents":{"fp64Contents":[1]}},`+
		`{"name":"e","datatype":"FP16","shape":["1","0"]},{"name":"t","datatype":"BYTES","shape":["1"],"contents":{"bytesContents":["YQ=="]}}]}`)
	wantMessage(t, "ModelInferResponse", parts[1], `{"modelName":"m","modelVersion":"2","parameters":{"q":{"boolParam":false}},`+
		`"outputs":[{"name":"f","datatype":"FP64","shape":["2","1"],"parameters":{"z":{"int64Param":"1"}},"contents":{"fp64Contents":[2,3]}},`+
		`{"name":"e","datatype":"FP16","shape":["2","0"]},{"name":"t","datatype":"BYTES","shape":["2"],"contents":{"bytesContents":["","Yg=="]}}]}`)
}

// TestUnpackedContents reads contents and shapes whose numbers have a field each, or are packed in several fields, as the encoding allows.
func TestUnpackedContents(t *testing.T) {
	number := func(message []byte, field protowire.Number, n uint64) []byte {
		return protowire.AppendVarint(protowire.AppendTag(message, field, protowire.VarintType), n)
	}
	bytesField := func(message []byte, field protowire.Number, value string) []byte {
		return protowire.AppendString(protowire.AppendTag(message, field, protowire.BytesType), value)
	}
	contents := bytesField(number(number(nil, 3, 1), 3, 300), 3, "\x03\x04")
	tensor := bytesField(bytesField(number(number(nil, 3, 1), 3, 4), 1, "in"), 2, "INT64")
	r, err := oip.ParseModelInfer(bytesField(nil, 5, string(bytesField(tensor, 5, string(contents)))))
	if err != nil || r.Alone() != nil {
		t.Fatalf("%v, alone: %v", err, r.Alone())
	}
	batch, errs := oip.Merge([]*oip.Request{r, r})
	if errs != nil {
		t.Fatal(errs)
	}
	wantMessage(t, "ModelInferRequest", &batch.Message, `{"inputs":[{"name":"in","datatype":"INT64","shape":["2","4"],"contents":{"int64Contents":["1","300","3","4","1","300","3","4"]}}]}`)
}

// TestMalformedGRPC gives messages that are refused, with the error that names the field.
func TestMalformedGRPC(t *testing.T) {
	input := func(fields string) string { return `{"inputs":[{"name":"a",` + fields + `}]}` }
	raw := func(fields, raw string) string {
		return `{"inputs":[{"name":"a",` + fields + `}],"rawInputContents":[` + raw + `]}`
	}
	for name, test := range map[string]struct{ text, want string }{
		"empty":              {`{}`, "inputs is missing"},
		"many inputs":        {`{"inputs":[` + strings.Repeat(`{"datatype":"BOOL","shape":["0"]},`, 256) + `{}]}`, "inputs has more than 256 elements"},
		"timeout, text":      {`{"parameters":{"timeout":{"stringParam":"1"}}}`, `parameters["timeout"] is neither int64_param nor uint64_param`},
		"timeout, nothing":   {`{"parameters":{"timeout":{}}}`, `parameters["timeout"] is neither int64_param nor uint64_param`},
		"timeout, negative":  {`{"parameters":{"timeout":{"int64Param":"-1"}}}`, `parameters["timeout"] is less than zero`},
		"timeout, too long":  {`{"parameters":{"timeout":{"uint64Param":"9223372036854776"}}}`, `parameters["timeout"] is more than 9223372036854775`},
		"datatype":           {input(`"datatype":"FP8"`), `inputs[0].datatype is not a datatype of the protocol: "FP8"`},
		"negative dimension": {input(`"datatype":"FP32","shape":["1","-1"]`), "inputs[0].shape[1] is less than zero"},
		"shape overflows":    {input(`"datatype":"FP32","shape":["4294967296","4294967296"]`), "inputs[0].shape has more elements than a number of 64 bits counts: [4294967296,4294967296]"},
		"many dimensions":    {input(`"datatype":"FP32","shape":["1"` + strings.Repeat(`,"1"`, 16) + `]`), "inputs[0].shape has more than 16 elements"},
		"no contents":        {input(`"datatype":"FP32","shape":["1"]`), "inputs[0].contents is missing"},
		"other contents":     {input(`"datatype":"FP32","shape":["1"],"contents":{"fp64Contents":[1]}`), "inputs[0].contents has field 7, which is not for FP32"},
		"FP16":               {input(`"datatype":"FP16","shape":["1"],"contents":{"fp32Contents":[1]}`), "inputs[0].contents has field 6, which is not for FP16"},
		"contents, too few":  {input(`"datatype":"FP32","shape":["2"],"contents":{"fp32Contents":[1]}`), "inputs[0].contents.fp32_contents has 1 elements, which is not a tensor of FP32 [2]"},
		"texts, too many":    {input(`"datatype":"BYTES","shape":["1"],"contents":{"bytesContents":["",""]}`), "inputs[0].contents.bytes_contents has 2 elements, which is not a tensor of BYTES [1]"},
		"raw and contents":   {raw(`"datatype":"FP32","shape":["1"],"contents":{"fp32Contents":[1]}`, `"AAAAAA=="`), "inputs[0].contents is given besides raw_input_contents"},
		"raw, too short":     {raw(`"datatype":"FP32","shape":["2"]`, `"AAAAAA=="`), "raw_input_contents[0] has 4 bytes, which is not a tensor of FP32 [2]"},
		"raw, too many":      {raw(`"datatype":"FP32","shape":["1"]`, `"AAAAAA==",""`), "raw_input_contents has 2 elements, for 1 tensors"},
		"raw, too few":       {`{"inputs":[{"name":"a","datatype":"BOOL","shape":["1"]},{"name":"b","datatype":"BOOL","shape":["1"]}],"rawInputContents":["AA=="]}`, "raw_input_contents has no element for inputs[1]"},
		"raw, many":          {raw(`"datatype":"FP32","shape":["1"]`, `""`+strings.Repeat(`,""`, 256)), "raw_input_contents has more than 256 elements"},
		"raw, text cut":      {raw(`"datatype":"BYTES","shape":["1"]`, `"AgAAAGE="`), "raw_input_contents[0] ends within element 0 of a tensor of BYTES [1]"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := oip.ParseModelInfer(encode(t, "ModelInferRequest", test.text))
			if err == nil || err.Error() != test.want {
				t.Errorf("error %v, want %q", err, test.want)
			}
		})
	}
	for name, test := range map[string]struct{ message, want string }{
		"cut off":                {"\x2a\x05\x0a", "message is not a message of protocol buffers: 3 bytes before its end no field begins"},
		"field zero":             {"\x02\x00", "message is not a message of protocol buffers: 2 bytes before its end no field begins"},
		"end of a group":         {"\x0c", "message is not a message of protocol buffers: 1 bytes before its end no field begins"},
		"input, cut off":         {"\x2a\x01\x0a", "inputs[0] is not a message of protocol buffers: 1 bytes before its end no field begins"},
		"id, number":             {"\x18\x01", "id has wire type 0, not 2"},
		"id twice":               {"\x1a\x00\x1a\x00", "id is given twice"},
		"id, not UTF-8":          {"\x1a\x01\xff", "id is not UTF-8"},
		"shape, fixed":           {"\x2a\x05\x1d\x00\x00\x00\x00", "inputs[0].shape has wire type 5, not 2"},
		"shape, cut off":         {"\x2a\x03\x1a\x01\x80", "inputs[0].shape is not a list of numbers"},
		"many parameters":        {many("\x22\x04\x0a\x02%", 65), `parameters["Cm"] is one of more than 64 parameters`},
		"parameter twice":        {"\x22\x03\x0a\x01a\x22\x03\x0a\x01a", `parameters["a"] is given twice`},
		"parameter, two values":  {"\x22\x06\x12\x04\x08\x01\x10\x01", `parameters[""] has two values`},
		"parameter, not UTF-8":   {"\x22\x05\x12\x03\x1a\x01\xff", `parameters[""] is not UTF-8`},
		"parameter, of no type":  {"\x22\x05\x12\x03\x0a\x01\x01", `parameters[""] has wire type 2, not 0`},
		"contents, cut off":      {"\x2a\x0f\x12\x05INT64\x1a\x01\x01\x2a\x03\x1a\x01\x80", "inputs[0].contents.int64_contents ends within an element"},
		"contents, half a float": {"\x2a\x0e\x12\x04FP32\x1a\x01\x01\x2a\x03\x32\x01\x00", "inputs[0].contents.fp32_contents ends within an element"},
		"contents, number":       {"\x2a\x0e\x12\x05BYTES\x1a\x01\x01\x2a\x02\x40\x01", "inputs[0].contents has wire type 0, not 2"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := oip.ParseModelInfer([]byte(test.message)); err == nil || err.Error() != test.want {
				t.Errorf("error %v, want %q", err, test.want)
			}
		})
	}
}

func TestAloneGRPC(t *testing.T) {
	rest := `"outputs":[{"name":"out"}]}`
	for name, test := range map[string]struct{ text, want string }{
		"sequence":           {strings.Replace(infer, `"x":`, `"sequence_start":`, 1), "parameters.sequence_start makes the request one of a sequence"},
		"shared memory":      {`{"inputs":[{"name":"a","datatype":"FP32","shape":["1"],"parameters":{"shared_memory_region":{"stringParam":"r"}}}]}`, "inputs[0].parameters refer to shared memory"},
		"shared memory, out": {strings.Replace(infer, rest, `"outputs":[{"name":"out","parameters":{"shared_memory_region":{"stringParam":"r"}}}]}`, 1), "outputs[0] goes to shared memory"},
		"scalar":             {`{"inputs":[{"name":"a","datatype":"FP32","contents":{"fp32Contents":[1]}}]}`, "inputs[0].shape has no rows: []"},
		"empty":              {`{"inputs":[{"name":"a","datatype":"FP32","shape":["1","0"]}]}`, "inputs[0].shape has no elements: [1,0]"},
		"beyond 8 bits":      {`{"inputs":[{"name":"a","datatype":"INT8","shape":["1"],"contents":{"intContents":[128]}}]}`, "inputs[0].data have values that not every server takes for INT8"},
		"below 8 bits":       {`{"inputs":[{"name":"a","datatype":"INT8","shape":["1"],"contents":{"intContents":[-129]}}]}`, "inputs[0].data have values that not every server takes for INT8"},
	} {
		t.Run(name, func(t *testing.T) {
			if r := parseInfer(t, test.text); r.Alone() == nil || r.Alone().Error() != test.want {
				t.Errorf("alone: %v, want %q", r.Alone(), test.want)
			}
		})
	}
	for name, test := range map[string]struct{ more, want string }{
		"unknown field":    {"\x80\x01\x01", "16 is not a field of the protocol"},
		"unknown group":    {"\x83\x01\x08\x01\x84\x01", "16 is not a field of the protocol"},
		"unknown, map":     {"\x22\x06\x0a\x01k\x80\x01\x01", `parameters.16 is not a field of the protocol`},
		"unknown, outputs": {"\x32\x03\x80\x01\x01", "outputs[1].16 is not a field of the protocol"},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := oip.ParseModelInfer(append(encode(t, "ModelInferRequest", infer), test.more...))
			if err != nil || r.Alone() == nil || r.Alone().Error() != test.want {
				t.Errorf("alone: %v, want %q; %v", r.Alone(), test.want, err)
			}
		})
	}
}

func TestMismatchGRPC(t *testing.T) {
	for name, test := range map[string]struct{ old, new, want string }{
		"model":   {`"m"`, `"n"`, `model_name is "n", the batch has "m"`},
		"version": {`"modelVersion":"1"`, `"modelVersion":"2"`, `model_version is "2", the batch has "1"`},
		"raw": {`"contents":{"fp32Contents":[1.5,2]}}],`, `"parameters":{}}],"rawInputContents":["AAAAAAAAAAA="],`,
			`inputs[0].data is binary data, the batch has typed contents`},
		"parameter": {`{"stringParam":"y"}`, `{"stringParam":"z"}`, `parameters differ from those of the batch`},
		"output":    {`"out"`, `"o"`, `outputs differ from those of the batch`},
	} {
		t.Run(name, func(t *testing.T) {
			_, errs := oip.Merge([]*oip.Request{parseInfer(t, infer), parseInfer(t, strings.Replace(infer, test.old, test.new, 1))})
			if len(errs) != 2 || errs[0] != nil || errs[1] == nil || errs[1].Error() != test.want {
				t.Errorf("errors %v, want the second to be %q", errs, test.want)
			}
		})
	}
	if _, errs := oip.Merge([]*oip.Request{parseInfer(t, infer), parse(t, one)}); errs == nil || errs[1].Error() != "message is REST, the batch has gRPC" {
		t.Errorf("errors %v", errs)
	}
}

// TestRESTAndGRPC gives requests whose tensors are alike and written alike, one in each form.
func TestRESTAndGRPC(t *testing.T) {
	head := `{"inputs":[{"name":"x","shape":[1,2],"datatype":"UINT8","parameters":{"binary_data_size":2}}]}`
	rest, err := oip.ParseRequest([]byte(head+"12"), len(head))
	if err != nil {
		t.Fatal(err)
	}
	grpc := parseInfer(t, `{"inputs":[{"name":"x","shape":["1","2"],"datatype":"UINT8"}],"rawInputContents":["MTI="]}`)
	if _, errs := oip.Merge([]*oip.Request{rest, grpc}); rest.Signature() == grpc.Signature() || errs == nil || errs[1].Error() != "message is gRPC, the batch has REST" {
		t.Errorf("errors %v", errs)
	}
}

// TestUnknownFieldsOfResponse hands on fields of a server that are newer than the package.
func TestUnknownFieldsOfResponse(t *testing.T) {
	batch, _ := oip.Merge([]*oip.Request{parseInfer(t, infer), parseInfer(t, infer)})
	bytesField := func(message []byte, field protowire.Number, value string) []byte {
		return protowire.AppendString(protowire.AppendTag(message, field, protowire.BytesType), value)
	}
	tensor := encode(t, "Tensor", `{"name":"o","datatype":"BOOL","shape":["2"],"contents":{"boolContents":[true,false]}}`)
	parts, err := batch.Split(bytesField(bytesField(nil, 16, "new"), 5, string(bytesField(tensor, 17, "newer"))), 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range parts {
		got := decoded(t, "ModelInferResponse", []byte(text(part)))
		output := got.Get(got.Descriptor().Fields().ByName("outputs")).List().Get(0).Message()
		if string(got.GetUnknown()) != string(bytesField(nil, 16, "new")) || string(output.GetUnknown()) != string(bytesField(nil, 17, "newer")) {
			t.Errorf("unknown fields %q and %q", got.GetUnknown(), output.GetUnknown())
		}
	}
}

func TestBadResponseGRPC(t *testing.T) {
	batch, _ := oip.Merge([]*oip.Request{parseInfer(t, infer), parseInfer(t, infer)})
	for name, test := range map[string]struct{ text, want string }{
		"other rows":    {`{"outputs":[{"name":"o","datatype":"BOOL","shape":["1"],"contents":{"boolContents":[true]}}]}`, "outputs[0].shape is [1], the batch has 2 rows"},
		"no data":       {`{"outputs":[{"name":"o","datatype":"BOOL","shape":["2"]}]}`, "outputs[0].contents is missing"},
		"shared memory": {`{"outputs":[{"name":"o","datatype":"BOOL","shape":["2"],"parameters":{"shared_memory_region":{}}}]}`, "outputs[0].contents is missing"},
		"raw too short": {`{"outputs":[{"name":"o","datatype":"BOOL","shape":["2"]}],"rawOutputContents":["AA=="]}`, "raw_output_contents[0] has 1 bytes, which is not a tensor of BOOL [2]"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := batch.Split(encode(t, "ModelInferResponse", test.text), 0); err == nil || err.Error() != test.want {
				t.Errorf("error %v, want %q", err, test.want)
			}
		})
	}
}

// TestSplitRestoresWhatMergeJoinedGRPC is TestSplitRestoresWhatMergeJoined for gRPC: golang/protobuf reads and writes everything.
func TestSplitRestoresWhatMergeJoinedGRPC(t *testing.T) {
	for seed := range uint64(500) {
		random := rand.New(rand.NewPCG(seed, 2))
		raw := random.IntN(2) == 0
		var datatypes []string
		for range 1 + random.IntN(3) {
			datatypes = append(datatypes, []string{"BOOL", "INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64", "FP32", "FP64", "BYTES"}[random.IntN(12)])
		}
		width := 1 + random.IntN(3)
		var parsed []*oip.Request
		var responses []*dynamicpb.Message
		whole := newInference(datatypes, raw)
		for range 2 + random.IntN(5) {
			part := newInference(datatypes, raw)
			rows := 1 + random.IntN(4)
			for i, datatype := range datatypes {
				for range rows * width {
					size := random.IntN(3)
					if random.IntN(20) == 0 {
						size = 2000
					}
					value := bytes.Repeat([]byte{byte(random.IntN(256))}, size)
					n := random.Uint64() >> random.IntN(64)
					part.add(i, datatype, n, value)
					whole.add(i, datatype, n, value)
				}
			}
			id := ""
			if random.IntN(2) == 0 {
				id = fmt.Sprint("id", random.IntN(100))
			}
			request, err := proto.Marshal(part.message("ModelInferRequest", "inputs", "raw_input_contents", id, rows, width))
			if err != nil {
				t.Fatal(err)
			}
			r, err := oip.ParseModelInfer(request)
			if err != nil || r.Alone() != nil || r.Rows != int64(rows) || r.ID != id {
				t.Fatalf("seed %d: %v; %+v, alone %v", seed, err, r, r.Alone())
			}
			parsed = append(parsed, r)
			responses = append(responses, part.message("ModelInferResponse", "outputs", "raw_output_contents", id, rows, width))
			whole.rows += rows
		}
		batch, errs := oip.Merge(parsed)
		if errs != nil {
			t.Fatal(errs)
		}
		if got, want := decoded(t, "ModelInferRequest", []byte(text(&batch.Message))), whole.message("ModelInferRequest", "inputs", "raw_input_contents", "", whole.rows, width); !proto.Equal(got, want) {
			t.Fatalf("seed %d: got %v, want %v", seed, got, want)
		}
		response, err := proto.Marshal(whole.message("ModelInferResponse", "outputs", "raw_output_contents", "server", whole.rows, width))
		if err != nil {
			t.Fatal(err)
		}
		parts, err := batch.Split(response, 0)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		for i, want := range responses {
			if got := decoded(t, "ModelInferResponse", []byte(text(parts[i]))); !proto.Equal(got, want) {
				t.Fatalf("seed %d: part %d is %v, want %v", seed, i, got, want)
			}
		}
	}
}

// inference gathers the elements of tensors, either as contents or raw.
type inference struct {
	datatypes []string
	contents  []*dynamicpb.Message // nil if raw
	raw       [][]byte
	rows      int
}

func newInference(datatypes []string, raw bool) *inference {
	f := &inference{datatypes: datatypes}
	for range datatypes {
		if raw {
			f.raw = append(f.raw, nil)
		} else {
			f.contents = append(f.contents, newMessage("InferTensorContents"))
		}
	}
	return f
}

// add appends an element to a tensor: n for numbers, text for BYTES.
func (f *inference) add(tensor int, datatype string, n uint64, text []byte) {
	var name string
	var value protoreflect.Value
	var size int
	switch datatype {
	case "BOOL":
		n &= 1
		name, value, size = "bool_contents", protoreflect.ValueOfBool(n == 1), 1
	case "INT8":
		name, value, size = "int_contents", protoreflect.ValueOfInt32(int32(int8(n))), 1
	case "INT64":
		name, value, size = "int64_contents", protoreflect.ValueOfInt64(int64(n)), 8
	case "INT16":
		name, value, size = "int_contents", protoreflect.ValueOfInt32(int32(int16(n))), 2
	case "INT32":
		name, value, size = "int_contents", protoreflect.ValueOfInt32(int32(n)), 4
	case "UINT8":
		name, value, size = "uint_contents", protoreflect.ValueOfUint32(uint32(uint8(n))), 1
	case "UINT32":
		name, value, size = "uint_contents", protoreflect.ValueOfUint32(uint32(n)), 4
	case "UINT16":
		name, value, size = "uint_contents", protoreflect.ValueOfUint32(uint32(uint16(n))), 2
	case "UINT64":
		name, value, size = "uint64_contents", protoreflect.ValueOfUint64(n), 8
	case "FP32":
		name, value, size = "fp32_contents", protoreflect.ValueOfFloat32(float32(n)), 4
		n = uint64(math.Float32bits(float32(n)))
	case "FP64":
		name, value, size = "fp64_contents", protoreflect.ValueOfFloat64(float64(n)), 8
		n = math.Float64bits(float64(n))
	case "BYTES":
		name, value = "bytes_contents", protoreflect.ValueOfBytes(text)
	}
	switch {
	case f.contents != nil:
		m := f.contents[tensor]
		m.Mutable(m.Descriptor().Fields().ByName(protoreflect.Name(name))).List().Append(value)
	case datatype == "BYTES":
		f.raw[tensor] = append(binary.LittleEndian.AppendUint32(f.raw[tensor], uint32(len(text))), text...)
	default:
		f.raw[tensor] = append(f.raw[tensor], binary.LittleEndian.AppendUint64(nil, n)[:size]...)
	}
}

func (f *inference) message(name, tensors, raw, id string, rows, width int) *dynamicpb.Message {
	m := newMessage(name)
	set := func(m *dynamicpb.Message, field, text string) {
		m.Set(m.Descriptor().Fields().ByName(protoreflect.Name(field)), protoreflect.ValueOfString(text))
	}
	list := func(m *dynamicpb.Message, field string) protoreflect.List {
		return m.Mutable(m.Descriptor().Fields().ByName(protoreflect.Name(field))).List()
	}
	set(m, "model_name", "m")
	if id != "" {
		set(m, "id", id)
	}
	for i, datatype := range f.datatypes {
		t := newMessage("Tensor")
		set(t, "name", "t"+strconv.Itoa(i))
		set(t, "datatype", datatype)
		list(t, "shape").Append(protoreflect.ValueOfInt64(int64(rows)))
		list(t, "shape").Append(protoreflect.ValueOfInt64(int64(width)))
		if f.contents != nil {
			t.Set(t.Descriptor().Fields().ByName("contents"), protoreflect.ValueOfMessage(proto.Clone(f.contents[i]).ProtoReflect()))
		} else {
			list(m, raw).Append(protoreflect.ValueOfBytes(f.raw[i]))
		}
		list(m, tensors).Append(protoreflect.ValueOfMessage(t))
	}
	return m
}
