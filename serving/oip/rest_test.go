package oip_test

import (
	"bytes"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gshare-dev/gshare/serving/oip"
)

// one is a request for one row, to be varied.
const one = `{"id":"a","parameters":{"timeout":2500,"priority":2,"model":"x"},` +
	`"inputs":[{"name":"in","shape":[1,2],"datatype":"FP32","data":[1.5,2]}],"outputs":[{"name":"out"}]}`

func TestParseRequest(t *testing.T) {
	r, err := oip.ParseRequest([]byte(one), len(one))
	if err != nil {
		t.Fatal(err)
	}
	type facts struct {
		ID       string
		Timeout  time.Duration
		Priority uint64
		Rows     int64
	}
	got, want := facts{r.ID, r.Timeout, r.Priority, r.Rows}, facts{"a", 2500 * time.Microsecond, 2, 1}
	if got != want || r.Alone() != nil || r.Signature() == "" {
		t.Errorf("got %+v (alone: %v), want %+v", got, r.Alone(), want)
	}
}

// TestMalformed gives bodies that are refused, with the error that names the field.
func TestMalformed(t *testing.T) {
	input := func(fields string) string { return `{"inputs":[{` + fields + `}]}` }
	deep := strings.Repeat("[", 40) + strings.Repeat("]", 40)
	for name, test := range map[string]struct{ body, want string }{
		"empty":                {``, "message is not an object"},
		"array":                {`[]`, "message is not an object"},
		"half":                 {one[:len(one)-1], "message is not JSON: want '}' at byte 163"},
		"two":                  {one + one, "message is not JSON: want the end at byte 164"},
		"no inputs":            {`{"id":"a"}`, "inputs is missing"},
		"empty inputs":         {`{"inputs":[]}`, "inputs is empty"},
		"inputs, object":       {`{"inputs":{}}`, "inputs is not an array"},
		"many inputs":          {`{"inputs":[` + strings.Repeat(`{"name":"a","shape":[1],"datatype":"BOOL","data":[true]},`, 257), "inputs has more than 256 elements"},
		"id twice":             {`{"id":"a","id":"b"}`, "id is given twice"},
		"id twice, escaped":    {`{"id":"a","\u0069d":"b"}`, "id is given twice"},
		"id, number":           {`{"id":7}`, "id is not JSON: want a string at byte 6"},
		"many members":         {`{` + strings.Repeat(`"`, 2) + `:1` + many(`,"%":1`, 64) + `}`, "message has more than 64 members"},
		"timeout, text":        {`{"parameters":{"timeout":"1s"}}`, "parameters.timeout is not a number"},
		"timeout, negative":    {`{"parameters":{"timeout":-1}}`, "parameters.timeout is not a whole number of zero or more"},
		"timeout, fraction":    {`{"parameters":{"timeout":1.5}}`, "parameters.timeout is not a whole number of zero or more"},
		"timeout, too long":    {`{"parameters":{"timeout":9223372036854776}}`, "parameters.timeout is more than 9223372036854775"},
		"deep parameter":       {`{"parameters":{"a":` + deep + `}}`, "parameters.a is nested deeper than 32"},
		"no name":              {input(`"shape":[1],"datatype":"FP32","data":[1]`), "inputs[0].name is missing"},
		"no shape":             {input(`"name":"a","datatype":"FP32","data":[1]`), "inputs[0].shape is missing"},
		"no datatype":          {input(`"name":"a","shape":[1],"data":[1]`), "inputs[0].datatype is missing"},
		"no data":              {input(`"name":"a","shape":[1],"datatype":"FP32"`), "inputs[0].data is missing"},
		"unknown datatype":     {input(`"name":"a","shape":[1],"datatype":"FP8","data":[1]`), `inputs[0].datatype is not a datatype of the protocol: "FP8"`},
		"negative dimension":   {input(`"name":"a","shape":[-1],"datatype":"FP32","data":[1]`), "inputs[0].shape[0] is not a whole number of zero or more"},
		"huge dimension":       {input(`"name":"a","shape":[1,9223372036854775808]`), "inputs[0].shape[1] is more than 9223372036854775807"},
		"shape overflows":      {input(`"name":"a","shape":[4294967296,4294967296],"datatype":"FP32","data":[1]`), "inputs[0].shape has more elements than a number of 64 bits counts: [4294967296,4294967296]"},
		"many dimensions":      {input(`"name":"a","shape":[1` + strings.Repeat(",1", 16) + `],"datatype":"FP32","data":[1]`), "inputs[0].shape has more than 16 elements"},
		"data, number":         {input(`"name":"a","shape":[1],"datatype":"FP32","data":1`), "inputs[0].data is not an array"},
		"data, object":         {input(`"name":"a","shape":[1],"datatype":"FP32","data":[{}]`), "inputs[0].data is not JSON: want a value at byte 61"},
		"data too short":       {input(`"name":"a","shape":[2,2],"datatype":"FP32","data":[1,2,3]`), "inputs[0].data have 3 values, which is not a tensor of FP32 [2,2]"},
		"data too long":        {input(`"name":"a","data":[1,2,3],"shape":[2],"datatype":"FP32"`), "inputs[0].data have 3 values, which is not a tensor of FP32 [2]"},
		"ragged":               {input(`"name":"a","shape":[2,2],"datatype":"FP32","data":[[1,2,3],[4]]`), "inputs[0].data has arrays of different length at depth 2"},
		"ragged depth":         {input(`"name":"a","shape":[2],"datatype":"FP32","data":[[1],[[2]]]`), "inputs[0].data has arrays of different depth"},
		"mixed":                {input(`"name":"a","shape":[2],"datatype":"FP32","data":[1,[2]]`), "inputs[0].data has arrays and values side by side"},
		"mixed, array first":   {input(`"name":"a","shape":[2],"datatype":"FP32","data":[[1],2]`), "inputs[0].data has arrays and values side by side"},
		"deep data":            {input(`"name":"a","shape":[2],"datatype":"FP32","data":` + deep), "inputs[0].data is nested deeper than 16"},
		"leading zero":         {input(`"name":"a","shape":[1],"datatype":"FP32","data":[01]`), "inputs[0].data is not JSON: want a number at byte 61"},
		"NaN":                  {input(`"name":"a","shape":[1],"datatype":"FP32","data":[NaN]`), "inputs[0].data is not JSON: want a value at byte 61"},
		"no digit":             {input(`"name":"a","shape":[1],"datatype":"FP32","data":[1.]`), "inputs[0].data is not JSON: want a digit at byte 63"},
		"no exponent":          {input(`"name":"a","shape":[1],"datatype":"FP32","data":[1e+]`), "inputs[0].data is not JSON: want a digit at byte 64"},
		"trailing comma":       {input(`"name":"a","shape":[1],"datatype":"FP32","data":[1,]`), "inputs[0].data is not JSON: want a value at byte 63"},
		"control character":    {input(`"name":"a` + "\n" + `"`), "inputs[0].name is not JSON: want no control character in a string at byte 21"},
		"control, outside":     {"{\x01}", "message is not JSON: want a string at byte 1"},
		"bad escape":           {input(`"name":"\x"`), "inputs[0].name is not JSON: want an escape of JSON at byte 20"},
		"half a surrogate":     {input(`"name":"\ud800"`), "inputs[0].name is not JSON: want an escape of JSON at byte 20"},
		"other half":           {input(`"name":"\udc00"`), "inputs[0].name is not JSON: want an escape of JSON at byte 20"},
		"not UTF-8":            {input(`"name":"` + "\xff" + `"`), "inputs[0].name is not UTF-8"},
		"unfinished string":    {`{"inputs`, "message is not JSON: want the end of a string at byte 8"},
		"output without name":  {`{"outputs":[{}]}`, "outputs[0].name is missing"},
		"binary size, text":    {input(`"parameters":{"binary_data_size":"4"}`), "inputs[0].parameters.binary_data_size is not a number"},
		"binary and data":      {input(`"name":"a","shape":[1],"datatype":"FP32","data":[1],"parameters":{"binary_data_size":4}`), "inputs[0].data are given besides parameters.binary_data_size"},
		"no bytes":             {input(`"name":"a","shape":[1],"datatype":"FP32","parameters":{"binary_data_size":4}`), "inputs[0].parameters.binary_data_size is 4, the message has 0 bytes left"},
		"long name of a field": {`{"` + strings.Repeat("x", 100) + `":nil}`, strings.Repeat("x", 64) + "... is not JSON: want a value at byte 104"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := oip.ParseRequest([]byte(test.body), len(test.body))
			if err == nil || err.Error() != test.want {
				t.Errorf("error %v, want %q", err, test.want)
			}
		})
	}
}

// many repeats a text with a letter or two of its own for each repetition in place of "%".
func many(text string, n int) string {
	var all strings.Builder
	for i := range n {
		all.WriteString(strings.ReplaceAll(text, "%", string(rune('A'+i/26))+string(rune('a'+i%26))))
	}
	return all.String()
}

func TestMalformedBinary(t *testing.T) {
	for name, test := range map[string]struct{ head, tail, want string }{
		"not of the shape": {`{"inputs":[{"name":"a","shape":[1,3],"datatype":"FP32","parameters":{"binary_data_size":8}}]}`, "12345678",
			"inputs[0].parameters.binary_data_size has 8 bytes, which is not a tensor of FP32 [1,3]"},
		"too short": {`{"inputs":[{"name":"a","shape":[1,3],"datatype":"FP32","parameters":{"binary_data_size":12}}]}`, "12345678",
			"inputs[0].parameters.binary_data_size is 12, the message has 8 bytes left"},
		"too long": {`{"inputs":[{"name":"a","shape":[1],"datatype":"FP32","parameters":{"binary_data_size":4}}]}`, "12345678",
			"message has 4 bytes after the last tensor"},
		"no binary tensor": {one, "1234", "message has 4 bytes after the last tensor"},
		"text past the end": {`{"inputs":[{"name":"a","shape":[1],"datatype":"BYTES","parameters":{"binary_data_size":5}}]}`, "\x02\x00\x00\x00a",
			"inputs[0].parameters.binary_data_size ends within element 0 of a tensor of BYTES [1]"},
		"many texts": {`{"inputs":[{"name":"a","shape":[4611686018427387904],"datatype":"BYTES","parameters":{"binary_data_size":5}}]}`, "\x01\x00\x00\x00a",
			"inputs[0].parameters.binary_data_size ends within element 1 of a tensor of BYTES [4611686018427387904]"},
		"text left over": {`{"inputs":[{"name":"a","shape":[1],"datatype":"BYTES","parameters":{"binary_data_size":6}}]}`, "\x01\x00\x00\x00ab",
			"inputs[0].parameters.binary_data_size has 1 bytes after the last element of a tensor of BYTES [1]"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := oip.ParseRequest([]byte(test.head+test.tail), len(test.head))
			if err == nil || err.Error() != test.want {
				t.Errorf("error %v, want %q", err, test.want)
			}
		})
	}
	for _, length := range []int{-1, len(one) + 1} {
		if _, err := oip.ParseRequest([]byte(one), length); err == nil {
			t.Errorf("JSON of %d bytes was read from %d", length, len(one))
		}
	}
}

func TestJSONLength(t *testing.T) {
	for name, test := range map[string]struct {
		values []string
		want   int
		error  string
	}{
		"missing":  {nil, 100, ""},
		"given":    {[]string{"7"}, 7, ""},
		"all":      {[]string{"100"}, 100, ""},
		"twice":    {[]string{"7", "7"}, 0, "is given more than once"},
		"too long": {[]string{"101"}, 0, "is 101, the body has 100 bytes"},
		"signed":   {[]string{"+7"}, 0, "is not a number of bytes"},
		"negative": {[]string{"-7"}, 0, "is not a number of bytes"},
		"huge":     {[]string{"99999999999999999999"}, 0, "is not a number of bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := oip.JSONLength(http.Header{oip.HeaderName: test.values}, 100)
			if got != test.want || (test.error == "") != (err == nil) || err != nil && err.Error() != oip.HeaderName+" "+test.error {
				t.Errorf("got %d, %v; want %d, %q", got, err, test.want, test.error)
			}
		})
	}
}

// TestAlone gives requests that are well-formed and must have no company.
func TestAlone(t *testing.T) {
	input := func(fields string) string { return `{"inputs":[{` + fields + `}]}` }
	for name, test := range map[string]struct{ body, want string }{
		"sequence":          {`{"parameters":{"sequence_id":1},` + one[strings.Index(one, `"inputs`):], "parameters.sequence_id makes the request one of a sequence"},
		"unknown field":     {`{"more":{"a":[1,{}]},` + one[1:], "more is not a field of the protocol"},
		"unknown, input":    {input(`"name":"a","shape":[1],"datatype":"FP32","data":[1],"more":null`), "inputs[0].more is not a field of the protocol"},
		"unknown, output":   {`{"outputs":[{"name":"a","more":1}],` + one[strings.Index(one, `"inputs`):len(one)-len(`,"outputs":[{"name":"out"}]}`)] + "}", "outputs[0].more is not a field of the protocol"},
		"scalar":            {input(`"name":"a","shape":[],"datatype":"FP32","data":[1]`), "inputs[0].shape has no rows: []"},
		"no rows":           {input(`"name":"a","shape":[0,3],"datatype":"FP32","data":[]`), "inputs[0].shape has no rows: [0,3]"},
		"no elements":       {input(`"name":"a","shape":[3,0],"datatype":"FP32","data":[[],[],[]]`), "inputs[0].shape has no elements: [3,0]"},
		"no bytes":          {input(`"name":"a","shape":[0],"datatype":"FP32","parameters":{"binary_data_size":0}`), "inputs[0].shape has no rows: [0]"},
		"rows differ":       {`{"inputs":[{"name":"a","shape":[1],"datatype":"FP32","data":[1]},{"name":"b","shape":[2],"datatype":"FP32","data":[1,2]}]}`, "inputs[1].shape has a first dimension other than that of inputs[0]: [2]"},
		"nested in part":    {input(`"name":"a","shape":[1,2,2],"datatype":"FP32","data":[[1,2,3,4]]`), "inputs[0].data are nested neither flat nor as the shape"},
		"nested askew":      {input(`"name":"a","shape":[2,3],"datatype":"FP32","data":[[1,2],[3,4],[5,6]]`), "inputs[0].data are nested neither flat nor as the shape"},
		"fraction":          {input(`"name":"a","shape":[1],"datatype":"INT32","data":[1.5]`), "inputs[0].data have values that not every server takes for INT32"},
		"fractions":         {input(`"name":"a","shape":[8],"datatype":"INT32","data":[0.5,1.5,-2.5,3.5,4.5,5.5,6.5,7]`), "inputs[0].data have values that not every server takes for INT32"},
		"beyond 8 bits":     {input(`"name":"a","shape":[1],"datatype":"UINT8","data":[256]`), "inputs[0].data have values that not every server takes for UINT8"},
		"below 8 bits":      {input(`"name":"a","shape":[1],"datatype":"INT8","data":[-129]`), "inputs[0].data have values that not every server takes for INT8"},
		"below zero":        {input(`"name":"a","shape":[1],"datatype":"UINT64","data":[-1]`), "inputs[0].data have values that not every server takes for UINT64"},
		"twenty digits":     {input(`"name":"a","shape":[1],"datatype":"FP64","data":[12345678901234567890]`), "inputs[0].data have values that not every server takes for FP64"},
		"beyond FP64":       {input(`"name":"a","shape":[1],"datatype":"FP64","data":[1e999]`), "inputs[0].data have values that not every server takes for FP64"},
		"null":              {input(`"name":"a","shape":[1],"datatype":"FP64","data":[null]`), "inputs[0].data have values that not every server takes for FP64"},
		"number for BOOL":   {input(`"name":"a","shape":[1],"datatype":"BOOL","data":[1]`), "inputs[0].data have values that not every server takes for BOOL"},
		"text for FP32":     {input(`"name":"a","shape":[1],"datatype":"FP32","data":["1"]`), "inputs[0].data have values that not every server takes for FP32"},
		"shared memory":     {input(`"name":"a","shape":[1],"datatype":"FP32","parameters":{"shared_memory_region":"r"}`), "inputs[0].parameters refer to shared memory"},
		"shared memory out": {`{"outputs":[{"name":"o","parameters":{"shared_memory_region":"r"}}],` + one[strings.Index(one, `"inputs`):strings.Index(one, `,"outputs`)] + "}", "outputs[0] goes to shared memory"},
	} {
		t.Run(name, func(t *testing.T) {
			r := parse(t, test.body)
			if r.Alone() == nil || r.Alone().Error() != test.want || r.Rows != 0 || r.Signature() != "" {
				t.Fatalf("alone: %v (%d rows), want %q", r.Alone(), r.Rows, test.want)
			}
			batch, errs := oip.Merge([]*oip.Request{r, parse(t, one)})
			if got := text(&batch.Message); errs == nil || errs[0] != nil || errs[1] == nil || got != test.body || batch.JSONLength != len(test.body) {
				t.Errorf("batch %s with errors %v, want the request as it is", got, errs)
			}
			if _, errs := oip.Merge([]*oip.Request{parse(t, one), r}); errs == nil || errs[0] != nil || errs[1].Error() != test.want {
				t.Errorf("errors %v, want the second to be %q", errs, test.want)
			}
		})
	}
	raw, err := oip.ParseRequest([]byte("raw"), 0)
	if err != nil || raw.Alone() == nil || raw.Alone().Error() != "message is binary data without JSON" {
		t.Errorf("alone: %v, %v", raw.Alone(), err)
	}
}

func parse(t testing.TB, body string) *oip.Request {
	t.Helper()
	r, err := oip.ParseRequest([]byte(body), len(body))
	if err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	return r
}

func text(m *oip.Message) string {
	var all bytes.Buffer
	if n, err := m.WriteTo(&all); err != nil || n != int64(m.Len()) {
		panic("wrote less")
	}
	return all.String()
}

// TestMismatch gives requests that differ from the first and stay out of its batch, whose others are merged all the same.
func TestMismatch(t *testing.T) {
	for name, test := range map[string]struct{ old, new, want string }{
		"name":                {`"in"`, `"on"`, `inputs[0].name is "on", the batch has "in"`},
		"datatype":            {`FP32`, `FP64`, `inputs[0].datatype is FP64, the batch has FP32`},
		"shape":               {`[1,2]`, `[2,1]`, `inputs[0].shape is [2,1], the batch has [1,2], of which only the first dimension may differ`},
		"dimensions":          {`[1,2]`, `[1,2,1]`, `inputs[0].shape is [1,2,1], the batch has [1,2], of which only the first dimension may differ`},
		"nested":              {`[1.5,2]`, `[[1.5,2]]`, `inputs[0].data is nested arrays, the batch has a flat array`},
		"inputs":              {`"inputs":[`, `"inputs":[{"name":"x","shape":[1],"datatype":"BOOL","data":[true]},`, `inputs is 2 tensors, the batch has 1`},
		"parameter":           {`"model":"x"`, `"model":"y"`, `parameters differ from those of the batch`},
		"parameters":          {`"model":"x"`, `"model":"x","a":1`, `parameters differ from those of the batch`},
		"parameter, input":    {`"name":"in"`, `"name":"in","parameters":{"a":1}`, `inputs[0].parameters differ from those of the batch`},
		"output":              {`"out"`, `"oot"`, `outputs differ from those of the batch`},
		"output's parameters": {`"out"`, `"out","parameters":{"binary_data":true}`, `outputs differ from those of the batch`},
		"no outputs":          {`[{"name":"out"}]`, `[]`, `outputs differ from those of the batch`},
	} {
		t.Run(name, func(t *testing.T) {
			first, other, last := parse(t, one), parse(t, strings.Replace(one, test.old, test.new, 1)), parse(t, one)
			if first.Signature() == other.Signature() {
				t.Error("the signatures are equal")
			}
			batch, errs := oip.Merge([]*oip.Request{first, other, last})
			if len(errs) != 3 || errs[0] != nil || errs[2] != nil || errs[1] == nil || errs[1].Error() != test.want {
				t.Fatalf("errors %v, want the second to be %q", errs, test.want)
			}
			if !strings.Contains(text(&batch.Message), `"shape":[2,2]`) || batch.Rows != 2 {
				t.Errorf("the batch is %s", text(&batch.Message))
			}
			response := `{"outputs":[{"name":"out","shape":[2],"datatype":"BOOL","data":[true,false]}]}`
			parts, err := batch.Split([]byte(response), len(response))
			if err != nil || len(parts) != 3 || parts[0] == nil || parts[1] != nil || parts[2] == nil {
				t.Errorf("parts %v, %v", parts, err)
			}
		})
	}
}

// TestSameSignature gives requests that differ from the first in what a batch leaves out, or only in how they are written.
func TestSameSignature(t *testing.T) {
	for name, change := range map[string][2]string{
		"id":              {`"id":"a"`, `"id":"b"`},
		"no id":           {`"id":"a",`, ``},
		"id null":         {`"id":"a"`, `"id":null`},
		"timeout":         {`2500`, `1`},
		"no priority":     {`"priority":2,`, ``},
		"rows":            {`[1,2],"datatype":"FP32","data":[1.5,2]`, `[2,2],"datatype":"FP32","data":[1.5,2,3,4e9]`},
		"white space":     {`[1.5,2]`, " [ 1.5 ,\r\n\t2 ] "},
		"data before":     {`"shape":[1,2],"datatype":"FP32","data":[1.5,2]`, `"data":[1.5,2],"shape":[1,2],"datatype":"FP32"`},
		"escaped":         {`"in"`, `"\u0069n"`},
		"no parameters":   {`"name":"in"`, `"name":"in","parameters":{}`},
		"parameters null": {`"name":"in"`, `"name":"in","parameters":null`},
	} {
		t.Run(name, func(t *testing.T) {
			body := strings.Replace(one, change[0], change[1], 1)
			if body == one || parse(t, body).Signature() != parse(t, one).Signature() {
				t.Errorf("another signature: %s", body)
			}
		})
	}
}

// TestOrderOfParameters gives parameters in two orders.
func TestOrderOfParameters(t *testing.T) {
	for _, order := range []string{`"a":1,"b":2,"c":3`, `"b":2,"a":1,"c":3`, `"c":3,"b":2,"a":1`} {
		with := func(parameters string) string {
			return parse(t, strings.Replace(one, `"model":"x"`, parameters, 1)).Signature()
		}
		if with(order) != with(`"a":1,"b":2,"c":3`) || with(order) == with(`"a":1,"b":3,"c":2`) {
			t.Errorf("signature of %s", order)
		}
	}
}

// TestCutOff gives every beginning of a request, and nothing behind it.
func TestCutOff(t *testing.T) {
	request := strings.Replace(one, "[1.5,2]", "[0.123456789,-12e-7]", 1)
	for n := range request {
		if _, err := oip.ParseRequest(slices.Clip([]byte(request[:n])), n); err == nil {
			t.Errorf("accepted %s", request[:n])
		}
	}
	message := encode(t, "ModelInferRequest", infer)
	for n := range message {
		if _, err := oip.ParseModelInfer(slices.Clip(message[:n])); err == nil {
			decoded(t, "ModelInferRequest", message[:n]) // cut off between two fields
		}
	}
}

// TestNoOutputs splits a response without outputs.
func TestNoOutputs(t *testing.T) {
	batch, _ := oip.Merge([]*oip.Request{parse(t, one), parse(t, one)})
	parts, err := batch.Split([]byte(`{"outputs":[]}`), 14)
	if err != nil || text(parts[0]) != `{"id":"a","outputs":[]}` {
		t.Errorf("%v, %v", parts, err)
	}
}

func TestMerge(t *testing.T) {
	two := `{"inputs":[{"data":[[3,4],[5,6]],"parameters":{"scale":"x"},"name":"in","shape":[2,2],"datatype":"INT8"}],"id":"b"}`
	three := `{"id":"","inputs":[{"data":[[ 7 , 8 ]],"parameters":{"scale":"x"},"name":"in","shape":[1,2],"datatype":"INT8"}]}`
	batch, errs := oip.Merge([]*oip.Request{parse(t, two), parse(t, three)})
	if errs != nil {
		t.Fatal(errs)
	}
	want := `{"inputs":[{"name":"in","shape":[3,2],"datatype":"INT8","parameters":{"scale":"x"},"data":[[3,4],[5,6],[ 7 , 8 ]]}]}`
	if got := text(&batch.Message); got != want || batch.JSONLength != len(want) || batch.Rows != 3 {
		t.Errorf("got %s, want %s", got, want)
	}
	response := `{"model_name":"m","id":"server's","outputs":[{"name":"o","shape":[3],"datatype":"BYTES","data":["a,\"","]",","],"x":1},` +
		`{"name":"p","shape":[3,2,1],"datatype":"FP32","data":[[[1],[2]],[[3],[4]], [[5],[6]]]}],"parameters":{"t":1}}`
	parts, err := batch.Split([]byte(response), len(response))
	if err != nil {
		t.Fatal(err)
	}
	got := []string{text(parts[0]), text(parts[1])}
	if diff := cmp.Diff([]string{
		`{"model_name":"m","parameters":{"t":1},"id":"b","outputs":[{"name":"o","shape":[2],"datatype":"BYTES","x":1,"data":["a,\"","]"]},` +
			`{"name":"p","shape":[2,2,1],"datatype":"FP32","data":[[[1],[2]],[[3],[4]]]}]}`,
		`{"model_name":"m","parameters":{"t":1},"id":"","outputs":[{"name":"o","shape":[1],"datatype":"BYTES","x":1,"data":[","]},` +
			`{"name":"p","shape":[1,2,1],"datatype":"FP32","data":[ [[5],[6]]]}]}`,
	}, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestMergeBinary(t *testing.T) {
	request := func(head, tail string) *oip.Request {
		r, err := oip.ParseRequest([]byte(head+tail), len(head))
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	a := request(`{"id":"a","inputs":[{"name":"x","shape":[1,2],"datatype":"UINT8","parameters":{"binary_data_size":2}},`+
		`{"name":"y","shape":[1],"datatype":"BYTES","parameters":{"binary_data_size":7}}]}`, "12\x03\x00\x00\x00one")
	b := request(`{"id":"b","inputs":[{"name":"x","shape":[2,2],"datatype":"UINT8","parameters":{"binary_data_size":4}},`+
		`{"name":"y","shape":[2],"datatype":"BYTES","parameters":{"binary_data_size":11}}]}`, "3456\x00\x00\x00\x00\x03\x00\x00\x00two")
	batch, errs := oip.Merge([]*oip.Request{a, b})
	if errs != nil {
		t.Fatal(errs)
	}
	head := `{"inputs":[{"name":"x","shape":[3,2],"datatype":"UINT8","parameters":{"binary_data_size":6}},` +
		`{"name":"y","shape":[3],"datatype":"BYTES","parameters":{"binary_data_size":18}}]}`
	want := head + "123456\x03\x00\x00\x00one\x00\x00\x00\x00\x03\x00\x00\x00two"
	if got := text(&batch.Message); got != want || batch.JSONLength != len(head) {
		t.Errorf("got %q, want %q", got, want)
	}
	response := `{"outputs":[{"name":"x","shape":[3,2],"datatype":"UINT8","parameters":{"binary_data_size":6}},` +
		`{"name":"n","shape":[3],"datatype":"INT32","data":[1,2,3]},` +
		`{"name":"y","shape":[3],"datatype":"BYTES","parameters":{"a":1,"binary_data_size":18}}]}`
	parts, err := batch.Split([]byte(response+want[len(head):]), len(response))
	if err != nil {
		t.Fatal(err)
	}
	head = `{"id":"b","outputs":[{"name":"x","shape":[2,2],"datatype":"UINT8","parameters":{"binary_data_size":4}},` +
		`{"name":"n","shape":[2],"datatype":"INT32","data":[2,3]},` +
		`{"name":"y","shape":[2],"datatype":"BYTES","parameters":{"binary_data_size":11,"a":1}}]}`
	if got, want := text(parts[1]), head+"3456\x00\x00\x00\x00\x03\x00\x00\x00two"; got != want || parts[1].JSONLength != len(head) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestBadResponse gives responses to a batch of two rows that cannot be split.
func TestBadResponse(t *testing.T) {
	batch, _ := oip.Merge([]*oip.Request{parse(t, one), parse(t, one)})
	output := func(fields string) string { return `{"outputs":[{"name":"o",` + fields + `}]}` }
	for name, test := range map[string]struct{ body, want string }{
		"error":           {`{"error":"no"}`, "outputs is missing"},
		"not JSON":        {`<html>`, "message is not an object"},
		"other rows":      {output(`"shape":[1,2],"datatype":"FP32","data":[1,2]`), "outputs[0].shape is [1,2], the batch has 2 rows"},
		"scalar":          {output(`"shape":[],"datatype":"FP32","data":[1]`), "outputs[0].shape is [], the batch has 2 rows"},
		"data too short":  {output(`"shape":[2,2],"datatype":"FP32","data":[1,2]`), "outputs[0].data have 2 values, which is not a tensor of FP32 [2,2]"},
		"nested in part":  {output(`"shape":[2,2,1],"datatype":"FP32","data":[[1,2],[3,4]]`), "outputs[0].data are nested neither flat nor as the shape"},
		"no data":         {output(`"shape":[2],"datatype":"FP32"`), "outputs[0].data is missing"},
		"shared memory":   {output(`"shape":[2],"datatype":"FP32","parameters":{"shared_memory_region":"r"}`), "outputs[0].data is missing"},
		"binary, missing": {output(`"shape":[2],"datatype":"FP32","parameters":{"binary_data_size":8}`), "outputs[0].parameters.binary_data_size is 8, the message has 0 bytes left"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := batch.Split([]byte(test.body), len(test.body)); err == nil || err.Error() != test.want {
				t.Errorf("error %v, want %q", err, test.want)
			}
		})
	}
	if _, err := batch.Split(nil, 1); err == nil {
		t.Error("JSON of one byte was read from none")
	}
	alone, _ := oip.Merge([]*oip.Request{parse(t, one)})
	if parts, err := alone.Split([]byte("anything"), 3); err != nil || text(parts[0]) != "anything" || parts[0].JSONLength != 3 {
		t.Errorf("the response to a single request has become %v, %v", parts, err)
	}
}

// TestEmptyOutput splits outputs that have no elements, as a detector that found nothing gives them.
func TestEmptyOutput(t *testing.T) {
	batch, _ := oip.Merge([]*oip.Request{parse(t, one), parse(t, one)})
	body := `{"outputs":[{"name":"o","shape":[2,0],"datatype":"FP32","data":[]},{"name":"p","shape":[2,0],"datatype":"FP32","data":[[],[]]}]}`
	parts, err := batch.Split([]byte(body), len(body))
	if err != nil {
		t.Fatal(err)
	}
	want := `{"id":"a","outputs":[{"name":"o","shape":[1,0],"datatype":"FP32","data":[]},{"name":"p","shape":[1,0],"datatype":"FP32","data":[[]]}]}`
	for _, part := range parts {
		if got := text(part); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
