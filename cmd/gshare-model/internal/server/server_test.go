package server

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gshare-dev/gshare/cmd/gshare-model/internal/cuda"
	"github.com/gshare-dev/gshare/cmd/gshare-model/internal/model"
)

// memory is a device with two allocations whose kernels take no time.
type memory struct{ blocks [][]byte }

func (m *memory) Allocate(n int) (cuda.Address, error) {
	m.blocks = append(m.blocks, make([]byte, n))
	return cuda.Address(len(m.blocks)) << 32, nil
}
func (m *memory) Free(cuda.Address) error       { return nil }
func (m *memory) Spin(time.Duration, int) error { return nil }
func (m *memory) Wait() error                   { return nil }
func (m *memory) at(a cuda.Address) []byte      { return m.blocks[a>>32-1][a&(1<<32-1):] }
func (m *memory) Upload(to cuda.Address, from []byte) error {
	copy(m.at(to), from)
	return nil
}
func (m *memory) Download(to []byte, from cuda.Address) error {
	copy(to, m.at(from))
	return nil
}

// server returns a server of the model "m", which takes batches of up to 4 rows of two FP32.
func server(t *testing.T) *Server {
	t.Helper()
	table := model.Table{Name: "m", Version: "1", Weights: 100, Batches: []model.Batch{{Size: 4, Time: time.Millisecond, SM: 1000}}}
	e, err := model.Open(table, 1, func() (model.Queue, error) { return &memory{}, nil })
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	return New(Config{Engine: e, Inputs: []Tensor{{"x", "FP32", []int64{2}}}, Faults: true, Version: "v0"})
}

// ask sends a request and returns its answer; headers are pairs.
func ask(s http.Handler, method, path, body string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}

// sum returns the checksum of a row.
func sum(row ...float32) uint32 {
	data, _ := binary.Append(nil, binary.LittleEndian, row)
	return model.Checksum("m", data)
}

const (
	infer       = "/v2/models/m/infer"
	completions = "/v1/completions"
	embeddings  = "/v1/embeddings"
)

// vector returns the embedding of a text as JSON.
func vector(text string) string {
	sum := model.Checksum("m", []byte(text))
	all := []float32{}
	for i := range 4 {
		all = append(all, float32(sum>>(8*i)&255)/256)
	}
	encoded, _ := json.Marshal(all)
	return string(encoded)
}

// TestAnswers checks requests in text and their answers.
func TestAnswers(t *testing.T) {
	s := server(t)
	input := func(rest string) string { return `{"id":"7","inputs":[{"name":"x",` + rest + `}]}` }
	two := fmt.Sprintf(`{"model_name":"m","model_version":"1","id":"7","outputs":[{"name":"checksum","datatype":"UINT32","shape":[2,1],"data":[%d,%d]}]}`,
		sum(1, 2), sum(3, -4.5))
	for _, test := range []struct {
		method, path, body string
		status             int
		want               string // in the answer
	}{
		{"GET", "/v2/health/live", "", 200, ""},
		{"GET", "/v2/health/ready", "", 200, ""},
		{"GET", "/v2/models/m/ready", "", 200, ""},
		{"GET", "/v2/models/n/ready", "", 404, "unknown model"},
		{"GET", "/v2/models/m/versions/2", "", 404, "unknown model"},
		{"GET", "/v2", "", 200, `"binary_tensor_data"`},
		{"GET", "/v2/models/m", "", 200, `"inputs":[{"name":"x","datatype":"FP32","shape":[-1,2]}]`},
		{"POST", infer, input(`"datatype":"FP32","shape":[2,2],"data":[1,2,3,-4.5]`), 200, two},
		{"POST", infer, input(`"datatype":"FP32","shape":[2,2],"data":[[1,2],[3,-4.5]]`), 200, two},
		{"POST", "/v2/models/m/versions/1/infer", input(`"datatype":"FP32","shape":[2,2],"data":[[1,2],[3,-4.5]]`), 200, two},
		{"POST", infer, input(`"datatype":"FP32","shape":[2,2],"data":[1,2,3]`), 400, "too few"},
		{"POST", infer, input(`"datatype":"FP32","shape":[1,2],"data":[1,2,3]`), 400, "too many"},
		{"POST", infer, input(`"datatype":"FP32","shape":[1,3],"data":[1,2,3]`), 400, "the model wants FP32 [-1 2]"},
		{"POST", infer, input(`"datatype":"FP32","shape":[-1,2],"data":[]`), 400, "-1"},
		{"POST", infer, input(`"datatype":"FP32","shape":[0,2],"data":[]`), 400, "no rows"},
		{"POST", infer, input(`"datatype":"FP32","shape":[4000000000,2],"data":[]`), 400, "1 to 4 rows"},
		{"POST", infer, input(`"datatype":"FP64","shape":[1,2],"data":[1,2]`), 400, "FP64"},
		{"POST", infer, input(`"datatype":"FP32","shape":[1,2],"data":[1,"2"]`), 400, "no element"},
		{"POST", infer, `{"inputs":[]}`, 400, "0 inputs"},
		{"POST", infer, `{"inputs":[{"name":"y","datatype":"FP32","shape":[1,2],"data":[1,2]}]}`, 400, "missing"},
		{"POST", infer, `{"inputs":[{"name":"x","datatype":"FP32","shape":[1,2],"data":[1,2]}],"outputs":[{"name":"y"}]}`, 400, "unknown output"},
		{"POST", infer, "{", 400, "unexpected end"},
		{"POST", "/v2/models/n/infer", "{}", 404, "unknown model"},
		{"POST", "/", "hello", 200, fmt.Sprint(model.Checksum("m", []byte("hello")))},
		{"POST", "/v1/chat/completions", `{"messages":[{"role":"user","content":"hi"}],"max_tokens":1}`, 200, model.Token("m", []byte("hi"), 0)},
		{"POST", "/v1/chat/completions", `{"model":"n","messages":[{"role":"user","content":"hi"}]}`, 404, "unknown model"},
		{"POST", "/v1/chat/completions", `{}`, 400, "messages"},
		{"POST", completions, `{"model":"m","prompt":"hi there","max_tokens":1}`, 200, `"choices":[{"index":0,"text":"` + model.Token("m", []byte("hi there"), 0) +
			` ","logprobs":null,"finish_reason":"length"}],"usage":{"prompt_tokens":2,"completion_tokens":1,"total_tokens":3}}`},
		{"POST", completions, `{"prompt":["a","b"],"max_tokens":1}`, 200, `{"index":1,"text":"` + model.Token("m", []byte("b"), 0)},
		{"POST", completions, `{"prompt":[7,8],"max_tokens":1}`, 200, `"text":"` + model.Token("m", []byte("[7,8]"), 0)},
		{"POST", completions, `{"model":"n","prompt":"hi"}`, 404, `{"error":{"code":null,"message":"unknown model`},
		{"POST", completions, `{"prompt":[]}`, 400, "1 to 4 prompts"},
		{"POST", completions, `{"prompt":["a","b","c","d","e"]}`, 400, "1 to 4 prompts"},
		{"POST", completions, `{"prompt":["a","b"],"stream":true}`, 400, "one prompt"},
		{"POST", completions, `{"prompt":"a","max_tokens":65537}`, 400, "at most 65536 tokens"},
		{"POST", embeddings, `{"input":["a","b c"]}`, 200, `[{"object":"embedding","index":0,"embedding":` + vector("a") + `},{"object":"embedding","index":1,"embedding":` + vector("b c") +
			`}],"model":"m","object":"list","usage":{"prompt_tokens":3,"total_tokens":3}}`},
		{"POST", embeddings, `{"input":"a","encoding_format":"base64"}`, 200, `"embedding":"`},
		{"POST", embeddings, `{"input":"a","encoding_format":"other"}`, 400, "neither float nor base64"},
		{"POST", embeddings, `{"input":"a","model":"n"}`, 404, "unknown model"},
		{"POST", embeddings, `{}`, 400, "an input"},
		{"POST", embeddings, `{"input":["a","b","c","d","e"]}`, 400, "5"},
		{"GET", "/v1/models", "", 200, `"id":"m"`},
		{"POST", "/v2/repository/index", "", 200, `[{"name":"m","version":"1","state":"READY","reason":""}]`},
		{"POST", "/v2/repository/models/n/unload", "", 404, "unknown model"},
		{"POST", "/v2/repository/models/m/unload", "{}", 200, ""},
		{"POST", "/v2/repository/index", "{}", 200, `"UNAVAILABLE"`},
		{"POST", "/v2/repository/index", `{"ready":true}`, 200, "[]"},
		{"GET", "/v2/health/ready", "", 503, "not ready"},
		{"GET", "/metrics", "", 200, "gshare_model_loaded_bytes 0"},
		{"POST", "/", "hello", 503, "not loaded"},
		{"POST", "/v2/repository/models/m/load", "", 200, ""},
		{"GET", "/v2/health/ready", "", 200, ""},
		{"GET", "/metrics", "", 200, "gshare_model_loaded_bytes 100"},
	} {
		if w := ask(s, test.method, test.path, test.body); w.Code != test.status || !strings.Contains(w.Body.String(), test.want) {
			t.Errorf("%s %s %s: %d %s, want %d %s", test.method, test.path, test.body, w.Code, w.Body, test.status, test.want)
		}
	}
	if s.Stop(); ask(s, "GET", "/v2/health/ready", "").Code != 503 || ask(s, "POST", "/", "hello").Code != 200 {
		t.Error("a server that stops is ready, or refuses requests")
	}
}

// TestBinary checks the extension for binary tensors.
func TestBinary(t *testing.T) {
	s := server(t)
	data, _ := binary.Append(nil, binary.LittleEndian, []float32{1, 2, 3, 4})
	text := `{"inputs":[{"name":"x","datatype":"FP32","shape":[2,2],"parameters":{"binary_data_size":16}}],"parameters":{"binary_data_output":true}}`
	w := ask(s, "POST", infer, text+string(data), jsonLengthHeader, strconv.Itoa(len(text)))
	length, err := strconv.Atoi(w.Header().Get(jsonLengthHeader))
	if err != nil || w.Code != 200 {
		t.Fatal(w.Code, w.Body, err)
	}
	want, _ := binary.Append(nil, binary.LittleEndian, []uint32{sum(1, 2), sum(3, 4)})
	head, tail := w.Body.Bytes()[:length], w.Body.Bytes()[length:]
	if !bytes.Equal(tail, want) || !strings.Contains(string(head), `"shape":[2,1],"parameters":{"binary_data_size":8}`) {
		t.Errorf("%s %v, want %v", head, tail, want)
	}
	for _, wrong := range []string{"-1", "1000", "x", strconv.Itoa(len(text) - 1)} {
		if w := ask(s, "POST", infer, text+string(data), jsonLengthHeader, wrong); w.Code != 400 {
			t.Errorf("%s %s: %d", jsonLengthHeader, wrong, w.Code)
		}
	}
	for _, body := range []string{text + string(data[1:]), text + string(data) + "x"} {
		if w := ask(s, "POST", infer, body, jsonLengthHeader, strconv.Itoa(len(text))); w.Code != 400 {
			t.Errorf("%d bytes for 16: %d", len(body)-len(text), w.Code)
		}
	}
}

// TestSharedMemory checks tensors in shared memory of the host.
func TestSharedMemory(t *testing.T) {
	s := server(t)
	key := fmt.Sprintf("gshare-model-test-%d", os.Getpid())
	path := filepath.Join(sharedMemory, key)
	data, _ := binary.Append(make([]byte, 16), binary.LittleEndian, []float32{1, 2})
	if err := os.WriteFile(path, append(data, make([]byte, 16)...), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(path) })
	const region = "/v2/systemsharedmemory/region/r/"
	for body, want := range map[string]int{
		`{"key":"../etc/passwd","byte_size":8}`: 400, `{"key":"/","byte_size":8}`: 400, `{"key":"/` + key + `","byte_size":41}`: 400,
		`{"key":"/` + key + `","offset":8,"byte_size":33}`: 400, `{"key":"/no-such-key","byte_size":8}`: 400,
	} {
		if w := ask(s, "POST", region+"register", body); w.Code != want {
			t.Errorf("register %s: %d %s", body, w.Code, w.Body)
		}
	}
	for _, want := range []int{200, 400} { // the second time the name is taken
		if w := ask(s, "POST", region+"register", `{"key":"/`+key+`","offset":8,"byte_size":32}`); w.Code != want {
			t.Errorf("register: %d %s", w.Code, w.Body)
		}
	}
	if w := ask(s, "GET", region+"status", ""); !strings.Contains(w.Body.String(), `"name":"r","key":"/`+key+`","offset":8,"byte_size":32`) {
		t.Errorf("status: %s", w.Body)
	}
	request := func(in, out int) string {
		return fmt.Sprintf(`{"inputs":[{"name":"x","datatype":"FP32","shape":[1,2],"parameters":{"shared_memory_region":"r","shared_memory_offset":%d,`+
			`"shared_memory_byte_size":8}}],"outputs":[{"name":"checksum","parameters":{"shared_memory_region":"r","shared_memory_offset":%d,`+
			`"shared_memory_byte_size":4}}]}`, in, out)
	}
	w := ask(s, "POST", infer, request(8, 20))
	content, err := os.ReadFile(path)
	if err != nil || w.Code != 200 || !strings.Contains(w.Body.String(), `"shared_memory_region":"r"`) {
		t.Fatal(w.Code, w.Body, err)
	}
	if got := binary.LittleEndian.Uint32(content[28:]); got != sum(1, 2) {
		t.Errorf("the output is %d, want %d", got, sum(1, 2))
	}
	for _, body := range []string{request(25, 20), request(8, 29), request(-8, 20)} {
		if w := ask(s, "POST", infer, body); w.Code != 400 {
			t.Errorf("%s: %d %s", body, w.Code, w.Body)
		}
	}
	if w := ask(s, "POST", region+"unregister", ""); w.Code != 200 || ask(s, "POST", infer, request(8, 20)).Code != 400 {
		t.Error("the region remains")
	}
}

// TestStream checks that a text comes token by token and that its end is marked.
func TestStream(t *testing.T) {
	w := ask(server(t), "POST", "/v1/chat/completions",
		`{"messages":[{"role":"user","content":"hi"}],"max_tokens":3,"stream":true,"stream_options":{"include_usage":true}}`)
	events := strings.Split(strings.TrimSpace(w.Body.String()), "\n\n")
	if len(events) != 6 || events[5] != "data: [DONE]" || !strings.Contains(events[4], `"completion_tokens":3`) || !strings.Contains(events[3], `"length"`) {
		t.Fatalf("%q", events)
	}
	for i, event := range events[:3] {
		if !strings.Contains(event, model.Token("m", []byte("hi"), i)) || strings.Contains(event, `"role"`) != (i == 0) {
			t.Errorf("event %d: %s", i, event)
		}
	}
	if !w.Flushed {
		t.Error("the tokens are not flushed")
	}
}

// TestStreamCompletion checks that the answer to a prompt comes token by token and that its end is marked.
func TestStreamCompletion(t *testing.T) {
	w := ask(server(t), "POST", completions, `{"prompt":"hi","max_tokens":3,"stream":true,"stream_options":{"include_usage":true}}`)
	events := strings.Split(strings.TrimSpace(w.Body.String()), "\n\n")
	if len(events) != 6 || events[5] != "data: [DONE]" || !strings.Contains(events[4], `"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":3`) ||
		!strings.Contains(events[3], `"length"`) {
		t.Fatalf("%q", events)
	}
	for i, event := range events[:3] {
		if !strings.Contains(event, `"text":"`+model.Token("m", []byte("hi"), i)+` "`) {
			t.Errorf("event %d: %s", i, event)
		}
	}
	if !w.Flushed {
		t.Error("the tokens are not flushed")
	}
}

// TestHeaderBeforeTokens checks that a stream's header is sent when the request is accepted, before the first token, and that a refusal is still one.
func TestHeaderBeforeTokens(t *testing.T) {
	for path, body := range map[string]string{
		"/v1/chat/completions": `{"messages":[{"role":"user","content":"hi"}],"stream":true}`, completions: `{"prompt":"hi","stream":true}`,
	} {
		s := server(t)
		headers := make(chan http.Header, 1)
		w := &headerFirst{ResponseRecorder: httptest.NewRecorder(), flushed: func(w *headerFirst) { headers <- w.Header().Clone(); s.Engine.Unload(t.Context()) }}
		func() {
			defer func() { _ = recover() }() // the connection is broken off
			s.ServeHTTP(w, httptest.NewRequest("POST", path, strings.NewReader(body)))
		}()
		if h := <-headers; w.Code != 200 || h.Get("Content-Type") != "text/event-stream" || w.Body.Len() > 0 {
			t.Errorf("%s: %d %v %s", path, w.Code, h, w.Body)
		}
		if w := ask(s, "POST", path, body); w.Code != 503 {
			t.Errorf("%s: %d %s, want a refusal while the model is not loaded", path, w.Code, w.Body)
		}
	}
}

// headerFirst calls flushed at the first flush.
type headerFirst struct {
	*httptest.ResponseRecorder
	flushed func(*headerFirst)
}

func (w *headerFirst) Flush() {
	if f := w.flushed; f != nil {
		w.flushed = nil
		f(w)
	}
}

// TestFaults checks faults on request, and that a server without the flag has none.
func TestFaults(t *testing.T) {
	s := server(t)
	for fault, want := range map[string]int{"error=500": 500, "delay=1ms": 200, "delay=1ms,error=418": 418, "error": 400, "delay=x": 400, "dead": 400, "no": 400} {
		if w := ask(s, "POST", "/", "hello", FaultHeader, fault); w.Code != want {
			t.Errorf("%s: %d, want %d", fault, w.Code, want)
		}
	}
	without := New(Config{Engine: s.Engine, Inputs: s.Inputs})
	if w := ask(without, "POST", "/", "hello", FaultHeader, "error=500"); w.Code != 200 {
		t.Errorf("without faults: %d", w.Code)
	}
	web := httptest.NewServer(s)
	defer web.Close()
	send := func(ctx context.Context, fault string) error {
		r, _ := http.NewRequestWithContext(ctx, "POST", web.URL, strings.NewReader("hello"))
		r.Header.Set(FaultHeader, fault)
		response, err := http.DefaultClient.Do(r)
		if err == nil {
			_, _ = io.Copy(io.Discard, response.Body)
			response.Body.Close()
		}
		return err
	}
	if err := send(t.Context(), "drop"); err == nil {
		t.Error("the connection was not dropped")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := send(ctx, "hang"); err == nil || ctx.Err() == nil {
		t.Errorf("it did not hang: %v", err)
	}
}

// TestDeadEngine: while the engine is dead, all that needs it gets an error, and the server says that it is not ready.
func TestDeadEngine(t *testing.T) {
	s := server(t)
	const prompt, stream = `{"messages":[{"role":"user","content":"x"}]}`, `{"messages":[{"role":"user","content":"x"}],"stream":true}`
	check := func(when string, result, ready int) {
		t.Helper()
		for _, r := range []struct {
			method, path, body string
			want               int
		}{
			{"POST", "/", "hello", result}, {"POST", "/v1/chat/completions", prompt, result}, {"POST", "/v1/chat/completions", stream, result},
			{"POST", completions, `{"prompt":"x"}`, result}, {"POST", embeddings, `{"input":"x"}`, result},
			{"POST", infer, `{"inputs":[{"name":"x","datatype":"FP32","shape":[1,2],"data":[1,2]}]}`, result},
			{"GET", "/health", "", ready}, {"GET", "/v2/health/ready", "", ready}, {"GET", "/v2/models/m/ready", "", ready},
			{"GET", "/v2/health/live", "", 200}, {"GET", "/v1/models", "", 200},
		} {
			if w := ask(s, r.method, r.path, r.body); w.Code != r.want {
				t.Errorf("%s: %s %s %s: %d, want %d", when, r.method, r.path, r.body, w.Code, r.want)
			}
		}
	}
	check("before", 200, 200)
	for _, step := range []struct {
		fault         string
		result, ready int
	}{{"dead=1h", 500, 503}, {"dead=0s", 200, 200}} {
		if w := ask(s, "POST", "/", "hello", FaultHeader, step.fault); w.Code != step.result {
			t.Errorf("the request with %s: %d", step.fault, w.Code)
		}
		check("after "+step.fault, step.result, step.ready)
	}
}

// TestElements checks the conversion of JSON to bytes for each datatype.
func TestElements(t *testing.T) {
	for _, test := range []struct {
		datatype, text string
		want           []byte
	}{
		{"BOOL", "[true,[false]]", []byte{1, 0}}, {"INT8", "[-1]", []byte{255}}, {"UINT16", "[258]", []byte{2, 1}}, {"INT64", "[-2]", []byte{254, 255, 255, 255, 255, 255, 255, 255}},
		{"FP64", "[1]", []byte{0, 0, 0, 0, 0, 0, 0xf0, 0x3f}}, {"BYTES", `["ab",""]`, []byte{2, 0, 0, 0, 'a', 'b', 0, 0, 0, 0}},
		{"INT8", "[128]", nil}, {"UINT8", "[-1]", nil}, {"FP16", "[1]", nil}, {"BOOL", "[1]", nil}, {"INT32", "[1.5]", nil}, {"FP32", "[null]", nil}, {"FP32", `[{}]`, nil},
	} {
		got, err := fromJSON(test.datatype, []byte(test.text))
		if (err == nil) != (test.want != nil) || !bytes.Equal(got, test.want) {
			t.Errorf("%s %s: %v, %v, want %v", test.datatype, test.text, got, err, test.want)
		}
	}
	strung := tensor{Tensor{"s", "BYTES", []int64{2, 1}}, []byte{1, 0, 0, 0, 'a', 0, 0, 0, 0}}
	if rows, err := strung.rows(); err != nil || len(rows) != 2 || len(rows[0]) != 5 || len(rows[1]) != 4 {
		t.Errorf("%v, %v", rows, err)
	}
	strung.data = strung.data[:8]
	if _, err := strung.rows(); err == nil {
		t.Error("half an element is one")
	}
}
