package oip_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gshare-dev/gshare/serving/oip"
)

// model writes random requests of one signature, and the responses of a model whose outputs are its inputs.
type model struct {
	random *rand.Rand
	inputs []input
}

type input struct {
	name, datatype string
	row            []int64 // shape without the first dimension
	binary, nested bool
	width          int // bytes of an element; 0 for BYTES
}

// request is a random request as the oracle knows it.
type request struct {
	id      string // JSON, or empty
	rows    int64
	tensors [][]string // by input: elements as JSON, or their bytes
}

func newModel(random *rand.Rand) *model {
	m := &model{random: random}
	kinds := []input{{datatype: "FP32", width: 4}, {datatype: "INT64", width: 8}, {datatype: "BOOL", width: 1}, {datatype: "BYTES"}}
	for i := range 1 + random.IntN(3) {
		in := kinds[random.IntN(len(kinds))]
		in.name = []string{"plain", `with \"quotes\"`, `\u00e9é`}[i]
		for range random.IntN(3) {
			in.row = append(in.row, []int64{1, 2, 3, 10}[random.IntN(4)])
		}
		in.binary, in.nested = random.IntN(2) == 0, random.IntN(2) == 0
		m.inputs = append(m.inputs, in)
	}
	return m
}

func (m *model) request() request {
	r := request{rows: 1 + m.random.Int64N(4)}
	if m.random.IntN(3) > 0 {
		r.id = strconv.Quote(fmt.Sprint("id", m.random.IntN(1000)))
	}
	for _, in := range m.inputs {
		n := r.rows
		for _, size := range in.row {
			n *= size
		}
		var elements []string
		for range n {
			elements = append(elements, m.element(in))
		}
		r.tensors = append(r.tensors, elements)
	}
	return r
}

func (m *model) element(in input) string {
	pick := func(from ...string) string { return from[m.random.IntN(len(from))] }
	switch {
	case in.binary && in.width > 0:
		return strings.Repeat(pick("a", "b", "\x00", ","), in.width)
	case in.binary:
		text := pick("", "one", strings.Repeat("x", 2000))
		return string([]byte{byte(len(text)), byte(len(text) >> 8), 0, 0}) + text
	case in.datatype == "BYTES":
		return pick(`""`, `"a"`, `","`, `"]["`, `"\""`, `"\\"`, `"\\\""`, `"\ud83d\ude00"`, `"\uffff"`, `"é"`, `"`+strings.Repeat("y", 1500)+`"`)
	case in.datatype == "BOOL":
		return pick("true", "false")
	case in.datatype == "FP32":
		return pick("0", "-0.5", "1e-7", "3.14159274", "12345678.25", "-1E+02", "0.123456789012345678")
	}
	return strconv.FormatInt(m.random.Int64()>>m.random.IntN(64)-5, 10)
}

// space returns white space, mostly none.
func (m *model) space() string { return []string{"", "", "", " ", "\n\t"}[m.random.IntN(5)] }

// tensors writes the tensors of a request or a response in JSON, and what of them is binary.
func (m *model) tensors(r request) (text, tail string) {
	var all []string
	for i, in := range m.inputs {
		shape := append([]int64{r.rows}, in.row...)
		fields := []string{`"name":"` + in.name + `"`, `"shape":` + strings.ReplaceAll(fmt.Sprint(shape), " ", ","), `"datatype":"` + in.datatype + `"`}
		elements := r.tensors[i]
		if in.binary {
			data := strings.Join(elements, "")
			tail += data
			fields = append(fields, `"parameters":{"keep":[1,{"a":null}],"binary_data_size":`+strconv.Itoa(len(data))+`}`)
		} else {
			dimensions := []int64{int64(len(elements))}
			if in.nested {
				dimensions = shape
			}
			fields = append(fields, `"data":`+m.array(dimensions, &elements))
		}
		m.random.Shuffle(len(fields), func(i, j int) { fields[i], fields[j] = fields[j], fields[i] })
		all = append(all, "{"+strings.Join(fields, m.space()+","+m.space())+"}")
	}
	return "[" + strings.Join(all, ",") + m.space() + "]", tail
}

func (m *model) array(shape []int64, elements *[]string) string {
	var values []string
	for range shape[0] {
		if len(shape) > 1 {
			values = append(values, m.array(shape[1:], elements))
			continue
		}
		values = append(values, (*elements)[0])
		*elements = (*elements)[1:]
	}
	return "[" + m.space() + strings.Join(values, m.space()+","+m.space()) + m.space() + "]"
}

func (m *model) write(r request, field, more string) (body []byte, jsonLength int) {
	text, tail := m.tensors(r)
	fields := []string{`"` + field + `":` + m.space() + text, more}
	if r.id != "" {
		fields = append(fields, `"id":`+r.id)
	}
	m.random.Shuffle(len(fields), func(i, j int) { fields[i], fields[j] = fields[j], fields[i] })
	head := m.space() + "{" + strings.Join(fields, ",") + "}" + m.space()
	return []byte(head + tail), len(head)
}

// message is what encoding/json reads from a request or a response.
type message struct {
	ID         *string                    `json:"id"`
	Parameters map[string]json.RawMessage `json:"parameters"`
	ModelName  string                     `json:"model_name"`
	Inputs     []wire                     `json:"inputs"`
	Outputs    []wire                     `json:"outputs"`
}

type wire struct {
	Name       string                     `json:"name"`
	Datatype   string                     `json:"datatype"`
	Shape      []int64                    `json:"shape"`
	Parameters map[string]json.RawMessage `json:"parameters"`
	Data       json.RawMessage            `json:"data"`
}

// read decodes a message by encoding/json, each tensor into its elements.
func (m *model) read(t *testing.T, body string, jsonLength int) (message, [][]string) {
	t.Helper()
	var got message
	decoder := json.NewDecoder(strings.NewReader(body[:jsonLength]))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&got); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	tensors := slices.Concat(got.Inputs, got.Outputs)
	if len(tensors) != len(m.inputs) {
		t.Fatalf("%d tensors, want %d: %s", len(tensors), len(m.inputs), body)
	}
	var all [][]string
	tail := body[jsonLength:]
	for i, in := range m.inputs {
		var elements []string
		if in.binary {
			var size int
			if json.Unmarshal(tensors[i].Parameters["binary_data_size"], &size) != nil || size > len(tail) || string(tensors[i].Parameters["keep"]) != `[1,{"a":null}]` {
				t.Fatalf("parameters %s", tensors[i].Parameters)
			}
			data := tail[:size]
			tail = tail[size:]
			for len(data) > 0 {
				width := in.width
				if width == 0 {
					width = 4 + int(data[0]) + int(data[1])<<8
				}
				elements, data = append(elements, data[:width]), data[width:]
			}
		} else {
			elements = leaves(t, tensors[i].Data)
		}
		n := int64(1)
		for _, size := range tensors[i].Shape {
			n *= size
		}
		var name string
		if json.Unmarshal([]byte(`"`+in.name+`"`), &name); tensors[i].Name != name || tensors[i].Datatype != in.datatype ||
			int64(len(elements)) != n || !slices.Equal(tensors[i].Shape[1:], in.row) {
			t.Fatalf("%d elements in %+v, want %+v", len(elements), tensors[i], in)
		}
		all = append(all, elements)
	}
	if tail != "" {
		t.Fatalf("%q is left", tail)
	}
	return got, all
}

// leaves returns the values of an array of arrays, from left to right.
func leaves(t *testing.T, data []byte) []string {
	var values []json.RawMessage
	if err := json.Unmarshal(data, &values); err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, v := range values {
		if bytes.HasPrefix(v, []byte("[")) {
			found = append(found, leaves(t, v)...)
		} else {
			found = append(found, string(v))
		}
	}
	return found
}

// TestSplitRestoresWhatMergeJoined merges random requests, lets a model answer whose outputs are its inputs, and compares each part of the
// response with its request. encoding/json reads everything.
func TestSplitRestoresWhatMergeJoined(t *testing.T) {
	for seed := range uint64(1000) {
		m := newModel(rand.New(rand.NewPCG(seed, 1)))
		var requests []request
		var parsed []*oip.Request
		all := request{tensors: make([][]string, len(m.inputs))}
		for range 1 + m.random.IntN(6) {
			r := m.request()
			body, jsonLength := m.write(r, "inputs", `"parameters":{"timeout":`+strconv.Itoa(m.random.IntN(100))+`,"x":"y"}`)
			p, err := oip.ParseRequest(body, jsonLength)
			if err != nil {
				t.Fatalf("seed %d: %v: %s", seed, err, body)
			}
			if p.Alone() != nil || p.Rows != r.rows {
				t.Fatalf("seed %d: %d rows, want %d; alone: %v", seed, p.Rows, r.rows, p.Alone())
			}
			requests, parsed = append(requests, r), append(parsed, p)
			all.rows += r.rows
			for i, elements := range r.tensors {
				all.tensors[i] = append(all.tensors[i], elements...)
			}
		}
		batch, errs := oip.Merge(parsed)
		if errs != nil || batch.Rows != all.rows {
			t.Fatalf("seed %d: %d rows, want %d; %v", seed, batch.Rows, all.rows, errs)
		}
		got, tensors := m.read(t, text(&batch.Message), batch.JSONLength)
		if !slices.EqualFunc(tensors, all.tensors, slices.Equal) || len(requests) > 1 && (got.ID != nil || len(got.Parameters) != 1) {
			t.Fatalf("seed %d: the batch is %s, want %v", seed, text(&batch.Message), all.tensors)
		}
		all.id = `"server"`
		if len(requests) == 1 {
			all.id = requests[0].id
		}
		parts, err := batch.Split(m.write(all, "outputs", `"model_name":"m"`))
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		for i, r := range requests {
			got, tensors := m.read(t, text(parts[i]), parts[i].JSONLength)
			id := ""
			if got.ID != nil {
				id = strconv.Quote(*got.ID)
			}
			if id != r.id || got.ModelName != "m" || !slices.EqualFunc(tensors, r.tensors, slices.Equal) {
				t.Fatalf("seed %d: part %d is %s, want id %s and %v", seed, i, text(parts[i]), r.id, r.tensors)
			}
		}
	}
}
