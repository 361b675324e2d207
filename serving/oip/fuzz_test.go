package oip_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/gshare-dev/gshare/serving/oip"
)

// rectangular returns the values of an array of JSON, if encoding/json reads it, all its arrays of the same depth have the same length, and
// numbers and arrays lie side by side nowhere.
func rectangular(text []byte) (values []any, ok bool) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var all any
	if decoder.Decode(&all) != nil || !json.Valid(text) {
		return nil, false
	}
	sizes := map[int]int{}
	var leaf, depth int
	var walk func(v any, level int) bool
	walk = func(v any, level int) bool {
		elements, isArray := v.([]any)
		if _, isObject := v.(map[string]any); isObject {
			return false
		}
		if !isArray {
			values = append(values, v)
			same := leaf == 0 || leaf == level
			leaf = level
			return same && level > 0
		}
		depth = max(depth, level+1)
		if size, known := sizes[level]; known && size != len(elements) || depth > 16 {
			return false
		}
		sizes[level] = len(elements)
		for _, element := range elements {
			_, first := elements[0].([]any)
			if _, other := element.([]any); other != first || !walk(element, level+1) {
				return false
			}
		}
		return true
	}
	return values, walk(all, 0)
}

// checkData compares what the package says of data with what encoding/json says.
func checkData(t *testing.T, data string) {
	t.Helper()
	if !utf8.ValidString(data) || strings.Contains(strings.ToLower(data), `\ud`) {
		return // encoding/json takes these
	}
	values, want := rectangular([]byte(data))
	body := fmt.Sprintf(`{"inputs":[{"name":"a","shape":[%d],"datatype":"FP32","data":%s}]}`, len(values), data)
	if !json.Valid([]byte(data)) && json.Valid([]byte(body)) {
		return // more than the data: a member behind them
	}
	_, err := oip.ParseRequest([]byte(body), len(body))
	if (err == nil) != want {
		t.Errorf("%s: error %v, encoding/json takes it: %t", data, err, want)
	}
}

// TestAllShortData compares the package with encoding/json for every text up to a length.
func TestAllShortData(t *testing.T) {
	const alphabet = `[],-01.e" \n`
	var add func(text string, more int)
	add = func(text string, more int) {
		checkData(t, "["+text+"]")
		if more > 0 {
			for _, c := range alphabet {
				add(text+string(c), more-1)
			}
		}
	}
	add("", 4)
	for _, text := range []string{`[[1,2]`, `[1,[2]]`, `[[1],[2,3]]`, `[[1],[[2]]]`, `[[[1]],[2]]`, `[[],[]]`, `[[],[1]]`, `[[],1]`, `1`, `"a"`, `null`, `[{}]`} {
		checkData(t, text)
	}
}

func FuzzData(f *testing.F) {
	for _, seed := range []string{`[]`, `[1,-0.5,1e9]`, `[[1],[2]]`, `["a\u00e9","\"]["]`, `[true,false,null]`, "[ 1 ,\t2\n]", `[0.12345678901234567890,1]`, `[-1.5,0.25,-3.75,12]`, `[],"":0`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, data string) { checkData(t, data) })
}

// FuzzParseRequest merges what it accepts with itself, and splits the result as if it were a response.
func FuzzParseRequest(f *testing.F) {
	f.Add([]byte(one), "")
	f.Add([]byte(`{"inputs":[{"name":"x","shape":[1,2],"datatype":"UINT8","parameters":{"binary_data_size":2}},`+
		`{"name":"y","shape":[1],"datatype":"BYTES","parameters":{"binary_data_size":7}}]}`), "12\x03\x00\x00\x00one")
	f.Add([]byte(`{"id":null,"inputs":[{"data":[["a","b,]"]],"name":"\u00e9","shape":[1,2],"datatype":"BYTES","parameters":null}],"outputs":[],"x":{}}`), "")
	f.Fuzz(func(t *testing.T, head []byte, tail string) {
		body := append(bytes.Clone(head), tail...)
		r, err := oip.ParseRequest(body, len(head))
		if err != nil {
			if _, is := err.(*oip.Error); !is || err.Error() == "" {
				t.Errorf("error %v is no *Error", err)
			}
			return
		}
		if len(head) == 0 {
			return
		}
		if !json.Valid(head) {
			t.Fatalf("accepted %q", head)
		}
		batch, errs := oip.Merge([]*oip.Request{r, r, r})
		if r.Alone() != nil {
			if errs == nil || text(&batch.Message) != string(body) || r.Rows != 0 {
				t.Fatalf("a request that must be sent alone has become %q", text(&batch.Message))
			}
			return
		}
		if errs != nil || batch.Rows != 3*r.Rows || r.Rows < 1 {
			t.Fatalf("batch of %d rows, want 3 of %d: %v", batch.Rows, r.Rows, errs)
		}
		merged := []byte(text(&batch.Message))
		again, err := oip.ParseRequest(merged, batch.JSONLength)
		if err != nil || again.Alone() != nil || again.Rows != batch.Rows || again.Signature() != r.Signature() || again.ID != "" {
			t.Fatalf("%v: the batch is %q", err, merged)
		}
		response, jsonLength := asResponse(t, merged, batch.JSONLength)
		parts, err := batch.Split(response, jsonLength)
		if err != nil {
			t.Fatalf("%v: %q", err, response)
		}
		for _, part := range parts {
			sameTensors(t, body, len(head), []byte(text(part)), part.JSONLength)
		}
	})
}

// asResponse gives the inputs of a request as the outputs of a response.
func asResponse(t *testing.T, request []byte, jsonLength int) ([]byte, int) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(request[:jsonLength], &fields); err != nil {
		t.Fatal(err)
	}
	head := slices.Concat([]byte(`{"id":"server","outputs":`), fields["inputs"], []byte("}"))
	return append(head, request[jsonLength:]...), len(head)
}

// sameTensors compares a request with a response whose outputs should be its inputs, ids included. encoding/json reads both.
func sameTensors(t *testing.T, request []byte, requestLength int, response []byte, responseLength int) {
	t.Helper()
	decode := func(body []byte, field string) (id any, tensors []any) {
		var fields map[string]any
		if err := json.Unmarshal(body, &fields); err != nil {
			t.Fatalf("%v: %q", err, body)
		}
		tensors, _ = fields[field].([]any)
		for _, tensor := range tensors {
			fields, _ := tensor.(map[string]any)
			if parameters, _ := fields["parameters"].(map[string]any); len(parameters) == 0 {
				delete(fields, "parameters") // none are as good as an empty object
			}
		}
		return fields["id"], tensors
	}
	id, want := decode(request[:requestLength], "inputs")
	gotID, got := decode(response[:responseLength], "outputs")
	if !reflect.DeepEqual(id, gotID) || !reflect.DeepEqual(got, want) || !bytes.Equal(request[requestLength:], response[responseLength:]) {
		t.Fatalf("got %q, want the tensors of %q", response, request)
	}
}

// FuzzSplitREST gives a batch of three rows any response.
func FuzzSplitREST(f *testing.F) {
	f.Add([]byte(`{"model_name":"m","outputs":[{"name":"o","shape":[3,2],"datatype":"FP32","data":[1,2,3,4,5,6]}]}`), "")
	f.Add([]byte(`{"outputs":[{"name":"o","shape":[3],"datatype":"BYTES","data":["a\"","b,","]"]},{"name":"p","shape":[3,1],"datatype":"BOOL","data":[[true],[false],[true]]}]}`), "")
	f.Add([]byte(`{"outputs":[{"name":"o","shape":[3,0],"datatype":"FP32","data":[[],[],[]]}]}`), "")
	f.Add([]byte(`{"outputs":[{"name":"o","shape":[3],"datatype":"BYTES","parameters":{"binary_data_size":13}}]}`), "\x01\x00\x00\x00a\x00\x00\x00\x00\x00\x00\x00\x00")
	r, err := oip.ParseRequest([]byte(one), len(one))
	if err != nil {
		f.Fatal(err)
	}
	batch, _ := oip.Merge([]*oip.Request{r, r, r})
	f.Fuzz(func(t *testing.T, head []byte, tail string) {
		parts, err := batch.Split(append(bytes.Clone(head), tail...), len(head))
		if err != nil {
			return
		}
		var binary int
		for _, part := range parts {
			body := text(part)
			if !json.Valid([]byte(body[:part.JSONLength])) {
				t.Fatalf("%q has the part %q", head, body)
			}
			binary += len(body) - part.JSONLength
		}
		if binary != len(tail) {
			t.Fatalf("%d bytes of binary data have become %d", len(tail), binary)
		}
	})
}

// FuzzParseModelInfer merges what it accepts with itself, and splits the result as if it were a response.
func FuzzParseModelInfer(f *testing.F) {
	f.Add(encode(f, "ModelInferRequest", infer))
	f.Add(encode(f, "ModelInferRequest", `{"inputs":[{"name":"x","datatype":"BYTES","shape":["1"]},{"name":"y","datatype":"INT8","shape":["1","2"]}],"rawInputContents":["AQAAAGE=","AAA="]}`))
	f.Add(encode(f, "ModelInferRequest", `{"inputs":[{"name":"x","datatype":"BYTES","shape":["2"],"contents":{"bytesContents":["YQ==",""]}},{"name":"y","datatype":"INT64","shape":["2"],"contents":{"int64Contents":["-1","300"]}}]}`))
	f.Fuzz(func(t *testing.T, message []byte) {
		r, err := oip.ParseModelInfer(message)
		if err != nil {
			if _, is := err.(*oip.Error); !is || err.Error() == "" {
				t.Errorf("error %v is no *Error", err)
			}
			return
		}
		whole := newMessage("ModelInferRequest")
		if err := proto.Unmarshal(message, whole); err != nil {
			t.Fatalf("%v: accepted %q", err, message)
		}
		batch, errs := oip.Merge([]*oip.Request{r, r, r})
		if r.Alone() != nil {
			if errs == nil || text(&batch.Message) != string(message) {
				t.Fatalf("a request that must be sent alone has become %q", text(&batch.Message))
			}
			return
		}
		if errs != nil || batch.Rows != 3*r.Rows || r.Rows < 1 {
			t.Fatalf("batch of %d rows, want 3 of %d: %v", batch.Rows, r.Rows, errs)
		}
		merged := []byte(text(&batch.Message))
		again, err := oip.ParseModelInfer(merged)
		if err != nil || again.Alone() != nil || again.Rows != batch.Rows || again.Signature() != r.Signature() || again.ID != "" {
			t.Fatalf("%v: the batch is %q", err, merged)
		}
		response, err := proto.Marshal(answer(decoded(t, "ModelInferRequest", merged)))
		if err != nil {
			t.Fatal(err)
		}
		parts, err := batch.Split(response, 0)
		if err != nil {
			t.Fatalf("%v: %q", err, response)
		}
		for _, part := range parts {
			got, want := decoded(t, "ModelInferResponse", []byte(text(part))), answer(whole)
			if !sameMessage(got, want) {
				t.Fatalf("got %v, want %v", got, want)
			}
		}
	})
}

// answer gives the inputs of a request as the outputs of a response without parameters.
func answer(request *dynamicpb.Message) *dynamicpb.Message {
	response := newMessage("ModelInferResponse")
	field := func(m *dynamicpb.Message, name protoreflect.Name) protoreflect.FieldDescriptor {
		return m.Descriptor().Fields().ByName(name)
	}
	for _, name := range []protoreflect.Name{"model_name", "model_version", "id"} {
		response.Set(field(response, name), request.Get(field(request, name)))
	}
	for from, to := range map[protoreflect.Name]protoreflect.Name{"inputs": "outputs", "raw_input_contents": "raw_output_contents"} {
		list := request.Get(field(request, from)).List()
		for i := range list.Len() {
			response.Mutable(field(response, to)).List().Append(list.Get(i))
		}
	}
	return response
}

// sameMessage compares messages as they are written: proto.Equal takes one NaN for another.
func sameMessage(a, b *dynamicpb.Message) bool {
	write := proto.MarshalOptions{Deterministic: true}
	first, err := write.Marshal(a)
	second, err2 := write.Marshal(b)
	return err == nil && err2 == nil && bytes.Equal(first, second)
}

// FuzzSplitGRPC gives a batch of three rows any response.
func FuzzSplitGRPC(f *testing.F) {
	f.Add(encode(f, "ModelInferResponse", `{"id":"x","outputs":[{"name":"o","datatype":"FP64","shape":["3","1"],"parameters":{"z":{"int64Param":"1"}},"contents":{"fp64Contents":[1,2,3]}}]}`))
	f.Add(encode(f, "ModelInferResponse", `{"outputs":[{"name":"o","datatype":"BYTES","shape":["3"],"contents":{"bytesContents":["YQ==","",""]}}]}`))
	f.Add(encode(f, "ModelInferResponse", `{"outputs":[{"name":"o","datatype":"INT8","shape":["3"]}],"rawOutputContents":["AAAA"]}`))
	f.Add([]byte("\"\x18000000000000000000001000")) // parameters that are none
	f.Add([]byte("\x80\xff\xff\xff00"))             // the number of a field is too large
	r, err := oip.ParseModelInfer(encode(f, "ModelInferRequest", infer))
	if err != nil {
		f.Fatal(err)
	}
	batch, _ := oip.Merge([]*oip.Request{r, r, r})
	f.Fuzz(func(t *testing.T, message []byte) {
		parts, err := batch.Split(message, 0)
		if err != nil {
			return
		}
		if err := proto.Unmarshal(message, newMessage("ModelInferResponse")); err != nil {
			t.Fatalf("%v: accepted %q", err, message)
		}
		for _, part := range parts {
			decoded(t, "ModelInferResponse", []byte(text(part)))
		}
	})
}
