// Package oip_test sends requests of the Open Inference Protocol through serving/oip to a server. Clients and server encode and decode them by
// KServe's published definitions: the protocol buffers for gRPC, the OpenAPI schema for REST.
//
// It is a separate module, which needs the network to download KServe's definitions. The messages seen on the wire are stored in
// serving/oip/testdata/kserve.json for the tests of serving/oip; "go test . -update" writes that file.
package oip_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/bufbuild/protocompile"
	"github.com/getkin/kin-openapi/openapi3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/gshare-dev/gshare/serving/oip"
	"github.com/gshare-dev/gshare/serving/oip/inference"
)

const (
	kserve   = "github.com/kserve/kserve@v0.20.0"
	recorded = "../../serving/oip/testdata/kserve.json"
)

var update = flag.Bool("update", false, "write what was seen on the wire to "+recorded)

// exchange records the messages on the wire: the clients' requests, the batch and its response, and what the clients received.
type exchange struct {
	Requests [][]byte `json:"requests"`
	Batch    []byte   `json:"batch"`
	Response []byte   `json:"response"`
	Parts    [][]byte `json:"parts"`
}

// definitions returns the folder with KServe's definitions of the protocol.
func definitions(t *testing.T) string {
	command := exec.Command("go", "mod", "download", "-json", kserve)
	command.Env = append(os.Environ(), "GOFLAGS=-mod=mod")
	command.Stderr = os.Stderr
	out, err := command.Output()
	if err != nil {
		t.Fatalf("%s: %v %s", kserve, err, out)
	}
	var module struct{ Dir string }
	if err := json.Unmarshal(out, &module); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(module.Dir, "docs/predict-api/v2")
}

func TestKServe(t *testing.T) {
	folder := definitions(t)
	seen := map[string]exchange{}
	for name, requests := range map[string][]string{
		"gRPC, typed": {
			`{"modelName":"m","id":"a","parameters":{"timeout":{"int64Param":"5000"},"k":{"stringParam":"v"}},"inputs":[` +
				`{"name":"x","datatype":"FP32","shape":["1","2"],"contents":{"fp32Contents":[1.5,-2]}},{"name":"y","datatype":"INT64","shape":["1"],"contents":{"int64Contents":["-300"]}},` +
				`{"name":"z","datatype":"BYTES","shape":["1"],"contents":{"bytesContents":["b25l"]}}],"outputs":[{"name":"x"},{"name":"y"},{"name":"z"}]}`,
			`{"modelName":"m","id":"b","parameters":{"k":{"stringParam":"v"}},"inputs":[` +
				`{"name":"x","datatype":"FP32","shape":["2","2"],"contents":{"fp32Contents":[3,4,5,6]}},{"name":"y","datatype":"INT64","shape":["2"],"contents":{"int64Contents":["7","8"]}},` +
				`{"name":"z","datatype":"BYTES","shape":["2"],"contents":{"bytesContents":["","dHdv"]}}],"outputs":[{"name":"x"},{"name":"y"},{"name":"z"}]}`,
		},
		"gRPC, raw": {
			`{"modelName":"m","id":"a","inputs":[{"name":"x","datatype":"FP16","shape":["1","2"]},{"name":"z","datatype":"BYTES","shape":["1"]}],"rawInputContents":["AQIDBA==","AwAAAG9uZQ=="]}`,
			`{"modelName":"m","id":"b","inputs":[{"name":"x","datatype":"FP16","shape":["2","2"]},{"name":"z","datatype":"BYTES","shape":["2"]}],"rawInputContents":["BQYHCAkKCww=","AAAAAAEAAABh"]}`,
		},
	} {
		t.Run(name, func(t *testing.T) { seen[name] = overGRPC(t, folder, requests) })
	}
	t.Run("REST", func(t *testing.T) {
		seen["REST"] = overREST(t, folder, []string{
			`{"id":"a","parameters":{"timeout":5000,"k":"v"},"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[[1.5,-2]]},` +
				`{"name":"z","shape":[1],"datatype":"BYTES","parameters":{"content_type":"str"},"data":["o,\"[ne"]},{"name":"b","shape":[1],"datatype":"BOOL","data":[true]}],"outputs":[{"name":"x"}]}`,
			`{"id":"b","parameters":{"k":"v"},"inputs":[{"name":"x","shape":[2,2],"datatype":"FP32","data":[[3,4],[5,6e-3]]},` +
				`{"name":"z","shape":[2],"datatype":"BYTES","parameters":{"content_type":"str"},"data":["","two"]},{"name":"b","shape":[2],"datatype":"BOOL","data":[false,true]}],"outputs":[{"name":"x"}]}`,
		})
	})
	text, err := json.MarshalIndent(seen, "", "\t")
	if err != nil || t.Failed() {
		t.Fatal(err)
	}
	text = append(text, '\n')
	if *update {
		if err := os.WriteFile(recorded, text, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	stored, err := os.ReadFile(recorded)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(stored, text) {
		t.Errorf("%s differs from what is on the wire now; go test . -update writes it", recorded)
	}
}

// TestDefinitions compares the messages of serving/oip/inference with KServe's. The repository has Triton's definitions, which differ from
// KServe's.
func TestDefinitions(t *testing.T) {
	theirs := compile(t, definitions(t))
	compared := 0
	for _, ours := range messages(inference.File_serving_oip_inference_inference_proto.Messages()) {
		other := find(theirs.Messages(), ours.FullName())
		if other == nil || strings.HasPrefix(string(ours.Name()), "Repository") {
			continue
		}
		compared++
		for i := range ours.Fields().Len() {
			f := ours.Fields().Get(i)
			g := other.Fields().ByNumber(f.Number())
			if g == nil && ours.Name() == "InferParameter" { // has two more kinds in Triton's definitions
				continue
			}
			if g == nil || describe(g) != describe(f) {
				t.Errorf("%s has %q, KServe's definition %v", ours.FullName(), describe(f), g)
			}
		}
	}
	if compared < 15 {
		t.Errorf("only %d messages have the names of KServe's", compared)
	}
	methods := inference.File_serving_oip_inference_inference_proto.Services().Get(0).Methods()
	for i := range methods.Len() {
		m := methods.Get(i)
		other := theirs.Services().ByName("GRPCInferenceService").Methods().ByName(m.Name())
		if other != nil && (other.Input().FullName() != m.Input().FullName() || other.Output().FullName() != m.Output().FullName()) {
			t.Errorf("method %s takes %s and returns %s", m.Name(), m.Input().FullName(), m.Output().FullName())
		}
	}
}

// messages returns the messages and all messages nested in them.
func messages(list protoreflect.MessageDescriptors) (all []protoreflect.MessageDescriptor) {
	for i := range list.Len() {
		all = append(append(all, list.Get(i)), messages(list.Get(i).Messages())...)
	}
	return all
}

func find(list protoreflect.MessageDescriptors, name protoreflect.FullName) protoreflect.MessageDescriptor {
	at := slices.IndexFunc(messages(list), func(m protoreflect.MessageDescriptor) bool { return m.FullName() == name })
	if at < 0 {
		return nil
	}
	return messages(list)[at]
}

// describe returns everything about a field that affects its encoding on the wire or in JSON.
func describe(f protoreflect.FieldDescriptor) string {
	kind := f.Kind().String()
	if f.Message() != nil {
		kind = string(f.Message().FullName())
	}
	return fmt.Sprintf("%v %s %s = %d", f.Cardinality(), kind, f.Name(), f.Number())
}

// gateway waits for a number of requests, merges them in the order of their IDs, and gives each its part of the response.
type gateway struct {
	parse func(body []byte) (*oip.Request, error)
	send  func(batch []byte) ([]byte, error)
	wait  int

	mutex   sync.Mutex
	waiting []*waiter
	seen    exchange
}

type waiter struct {
	request *oip.Request
	body    []byte
	part    chan []byte
}

func (g *gateway) handle(body []byte) ([]byte, error) {
	r, err := g.parse(body)
	if err != nil {
		return nil, err
	}
	w := &waiter{r, body, make(chan []byte, 1)}
	g.mutex.Lock()
	if g.waiting = append(g.waiting, w); len(g.waiting) == g.wait {
		err = g.run()
	}
	g.mutex.Unlock()
	if err != nil {
		return nil, err
	}
	return <-w.part, nil
}

func (g *gateway) run() error {
	slices.SortFunc(g.waiting, func(a, b *waiter) int { return cmp.Compare(a.request.ID, b.request.ID) })
	var requests []*oip.Request
	for _, w := range g.waiting {
		requests = append(requests, w.request)
		g.seen.Requests = append(g.seen.Requests, w.body)
	}
	batch, errs := oip.Merge(requests)
	if errs != nil {
		return errs[1]
	}
	g.seen.Batch = written(&batch.Message)
	response, err := g.send(g.seen.Batch)
	if err != nil {
		return err
	}
	g.seen.Response = response
	length := len(response)
	if batch.JSONLength == 0 {
		length = 0
	}
	parts, err := batch.Split(response, length)
	if err != nil {
		return err
	}
	for i, part := range parts {
		g.seen.Parts = append(g.seen.Parts, written(part))
		g.waiting[i].part <- g.seen.Parts[i]
	}
	return nil
}

func written(m *oip.Message) []byte {
	body, err := io.ReadAll(m.Reader())
	if err != nil {
		panic(err)
	}
	return body
}

// wire is a gRPC codec that passes bytes through, and encodes messages deterministically.
type wire struct{}

func (wire) Name() string { return "proto" }

func (wire) Marshal(v any) ([]byte, error) {
	if body, ok := v.(*[]byte); ok {
		return *body, nil
	}
	return proto.MarshalOptions{Deterministic: true}.Marshal(v.(proto.Message))
}

func (wire) Unmarshal(data []byte, v any) error {
	if body, ok := v.(*[]byte); ok {
		*body = bytes.Clone(data)
		return nil
	}
	return proto.Unmarshal(data, v.(proto.Message))
}

const modelInfer = "/inference.GRPCInferenceService/ModelInfer"

// serve starts a gRPC server that answers ModelInfer, and returns a connection to it.
func serve(t *testing.T, answer func(stream grpc.ServerStream) error) *grpc.ClientConn {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.ForceServerCodec(wire{}), grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error { return answer(stream) }))
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	connection, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.ForceCodec(wire{})))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	return connection
}

// compile compiles KServe's gRPC definition.
func compile(t *testing.T, folder string) protoreflect.FileDescriptor {
	compiler := protocompile.Compiler{Resolver: &protocompile.SourceResolver{ImportPaths: []string{folder}}}
	files, err := compiler.Compile(t.Context(), "grpc_predict_v2.proto")
	if err != nil {
		t.Fatal(err)
	}
	return files[0]
}

func overGRPC(t *testing.T, folder string, requests []string) exchange {
	method := compile(t, folder).Services().ByName("GRPCInferenceService").Methods().ByName("ModelInfer")
	// The model returns its inputs as outputs.
	answer := func(request *dynamicpb.Message) *dynamicpb.Message {
		response := dynamicpb.NewMessage(method.Output())
		field := func(m protoreflect.Message, name protoreflect.Name) protoreflect.FieldDescriptor {
			return m.Descriptor().Fields().ByName(name)
		}
		for _, name := range []protoreflect.Name{"model_name", "id"} {
			response.Set(field(response, name), request.Get(field(request, name)))
		}
		inputs, outputs := request.Get(field(request, "inputs")).List(), response.Mutable(field(response, "outputs")).List()
		for i := range inputs.Len() {
			in, out := inputs.Get(i).Message(), outputs.AppendMutable().Message()
			in.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
				if f.IsList() {
					list := out.Mutable(field(out, f.Name())).List()
					for j := range v.List().Len() {
						list.Append(v.List().Get(j))
					}
				} else {
					out.Set(field(out, f.Name()), v)
				}
				return true
			})
		}
		raw := request.Get(field(request, "raw_input_contents")).List()
		for i := range raw.Len() {
			response.Mutable(field(response, "raw_output_contents")).List().Append(raw.Get(i))
		}
		return response
	}
	server := serve(t, func(stream grpc.ServerStream) error {
		request := dynamicpb.NewMessage(method.Input())
		if err := stream.RecvMsg(request); err != nil {
			return err
		}
		if unknown := request.GetUnknown(); len(unknown) > 0 {
			t.Errorf("the server does not know %q", unknown)
		}
		return stream.SendMsg(answer(request))
	})
	g := &gateway{wait: len(requests), parse: oip.ParseModelInfer, send: func(batch []byte) ([]byte, error) {
		var response []byte
		err := server.Invoke(context.Background(), modelInfer, &batch, &response)
		return response, err
	}}
	front := serve(t, func(stream grpc.ServerStream) error {
		var body []byte
		if err := stream.RecvMsg(&body); err != nil {
			return err
		}
		part, err := g.handle(body)
		if err != nil {
			return err
		}
		return stream.SendMsg(&part)
	})
	var clients sync.WaitGroup
	for _, text := range requests {
		clients.Go(func() {
			request, got := dynamicpb.NewMessage(method.Input()), dynamicpb.NewMessage(method.Output())
			if err := protojson.Unmarshal([]byte(text), request); err != nil {
				t.Error(err)
				return
			}
			if err := front.Invoke(context.Background(), modelInfer, request, got); err != nil {
				t.Error(err)
			} else if want := answer(request); !proto.Equal(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
		})
	}
	clients.Wait()
	return g.seen
}

// schema returns a schema from KServe's OpenAPI definition.
func schema(t *testing.T, folder, name string) *openapi3.Schema {
	document, err := openapi3.NewLoader().LoadFromFile(filepath.Join(folder, "rest_predict_v2.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return document.Components.Schemas[name].Value
}

// check validates a message against a schema, and decodes it.
func check(t *testing.T, schema *openapi3.Schema, body []byte) map[string]any {
	var v map[string]any
	if err := json.Unmarshal(body, &v); err != nil {
		t.Errorf("%v: %s", err, body)
	} else if err := schema.VisitJSON(v); err != nil {
		t.Errorf("%v: %s", err, body)
	}
	return v
}

func overREST(t *testing.T, folder string, requests []string) exchange {
	in, out := schema(t, folder, "inference_request"), schema(t, folder, "inference_response")
	if in.VisitJSON(map[string]any{"inputs": []any{map[string]any{"name": "x"}}}) == nil {
		t.Error("the schema takes an input without data")
	}
	post := func(url string, body []byte) ([]byte, error) {
		response, err := http.Post(url+"/v2/models/m/infer", "application/json", bytes.NewReader(body))
		if err != nil {
			return nil, err
		}
		defer response.Body.Close()
		return io.ReadAll(response.Body)
	}
	// The model returns its inputs as outputs.
	answer := func(request map[string]any) map[string]any {
		response := map[string]any{"model_name": "m", "outputs": request["inputs"]}
		if id, ok := request["id"]; ok {
			response["id"] = id
		}
		return response
	}
	serve := func(answer func(body []byte) ([]byte, error)) string {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			if err == nil {
				body, err = answer(body)
			}
			if err != nil {
				t.Error(err)
			}
			_, _ = w.Write(body)
		}))
		t.Cleanup(server.Close)
		return server.URL
	}
	server := serve(func(body []byte) ([]byte, error) { return json.Marshal(answer(check(t, in, body))) })
	g := &gateway{
		wait:  len(requests),
		parse: func(body []byte) (*oip.Request, error) { return oip.ParseRequest(body, len(body)) },
		send:  func(batch []byte) ([]byte, error) { return post(server, batch) },
	}
	front := serve(g.handle)
	var clients sync.WaitGroup
	for _, text := range requests {
		clients.Go(func() {
			body, err := post(front, []byte(text))
			if err != nil {
				t.Error(err)
				return
			}
			if got, want := check(t, out, body), answer(check(t, in, []byte(text))); !reflect.DeepEqual(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
		})
	}
	clients.Wait()
	if !strings.Contains(string(g.seen.Batch), `"shape":[3,2]`) {
		t.Errorf("the batch is %s", g.seen.Batch)
	}
	return g.seen
}
