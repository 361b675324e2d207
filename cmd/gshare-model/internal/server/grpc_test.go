package server

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	pb "github.com/gshare-dev/gshare/serving/oip/inference"
)

// dial serves a server without TLS and returns a connection to it.
func dial(t *testing.T, s http.Handler) *grpc.ClientConn {
	t.Helper()
	front := httptest.NewUnstartedServer(s)
	front.Config.Protocols = new(http.Protocols)
	front.Config.Protocols.SetHTTP1(true)
	front.Config.Protocols.SetUnencryptedHTTP2(true)
	front.Start()
	t.Cleanup(front.Close)
	connection, err := grpc.NewClient(front.Listener.Addr().(*net.TCPAddr).String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	return connection
}

// text returns a message that is written as text.
func text[M any](t *testing.T, written string) *M {
	t.Helper()
	m := new(M)
	if err := prototext.Unmarshal([]byte(written), any(m).(proto.Message)); err != nil {
		t.Fatal(err)
	}
	return m
}

// TestGRPC checks the answer to each method, and those to wrong requests.
func TestGRPC(t *testing.T) {
	s := server(t)
	connection := dial(t, s)
	const oneInput = `inputs {name: "x" datatype: "FP32" shape: [1, 2] `
	request := func(rest string) *pb.ModelInferRequest {
		return text[pb.ModelInferRequest](t, `model_name: "m" id: "7" `+rest)
	}
	for _, test := range []struct {
		name, method      string
		request, response proto.Message
		want              string // as text, or what is in the error
		code              codes.Code
	}{
		{"live", "ServerLive", &pb.ServerLiveRequest{}, &pb.ServerLiveResponse{}, `live: true`, 0},
		{"ready", "ServerReady", &pb.ServerReadyRequest{}, &pb.ServerReadyResponse{}, `ready: true`, 0},
		{"model ready", "ModelReady", &pb.ModelReadyRequest{Name: "m"}, &pb.ModelReadyResponse{}, `ready: true`, 0},
		{"unknown model", "ModelReady", &pb.ModelReadyRequest{Name: "n"}, &pb.ModelReadyResponse{}, `unknown model "n"`, codes.NotFound},
		{"unknown version", "ModelReady", &pb.ModelReadyRequest{Name: "m", Version: "2"}, &pb.ModelReadyResponse{}, `version "2"`, codes.NotFound},
		{"server", "ServerMetadata", &pb.ServerMetadataRequest{}, &pb.ServerMetadataResponse{},
			`name: "gshare-model" version: "v0" extensions: ["binary_tensor_data", "model_repository", "system_shared_memory"]`, 0},
		{"model", "ModelMetadata", &pb.ModelMetadataRequest{Name: "m"}, &pb.ModelMetadataResponse{}, `name: "m" versions: "1" platform: "gshare_model"
			inputs {name: "x" datatype: "FP32" shape: [-1, 2]} outputs {name: "checksum" datatype: "UINT32" shape: [-1, 1]}`, 0},
		{"no such model", "ModelMetadata", &pb.ModelMetadataRequest{Name: "n"}, &pb.ModelMetadataResponse{}, "unknown model", codes.NotFound},
		{"unknown method", "ModelStreamInfer", &pb.ServerLiveRequest{}, &pb.ServerLiveResponse{}, "unknown method", codes.Unimplemented},

		{"numbers", "ModelInfer", request(oneInput + `contents {fp32_contents: [1, 2]}}`), &pb.ModelInferResponse{}, `model_name: "m" model_version: "1" id: "7"
			outputs {name: "checksum" datatype: "UINT32" shape: [1, 1] contents {uint_contents: ` + fmt.Sprint(sum(1, 2)) + `}}`, 0},
		{"no contents", "ModelInfer", request(oneInput + `}`), &pb.ModelInferResponse{}, "too few", codes.InvalidArgument},
		{"too many", "ModelInfer", request(oneInput + `contents {fp32_contents: [1, 2, 3]}}`), &pb.ModelInferResponse{}, "too many", codes.InvalidArgument},
		{"other field", "ModelInfer", request(oneInput + `contents {fp64_contents: [1, 2]}}`), &pb.ModelInferResponse{}, "too few", codes.InvalidArgument},
		{"two contents", "ModelInfer", request(oneInput + `contents {fp32_contents: [1, 2]}} raw_input_contents: "12345678"`), &pb.ModelInferResponse{}, "raw contents",
			codes.InvalidArgument},
		{"raw without input", "ModelInfer", request(oneInput + `} raw_input_contents: ["12345678", "1"]`), &pb.ModelInferResponse{}, "1 raw contents have no input",
			codes.InvalidArgument},
		{"input without raw", "ModelInfer", request(oneInput + `} ` + oneInput + `} raw_input_contents: "12345678"`), &pb.ModelInferResponse{}, "has no contents",
			codes.InvalidArgument},
		{"no region", "ModelInfer", request(oneInput + `parameters {key: "shared_memory_region" value {string_param: "r"}}}`), &pb.ModelInferResponse{}, `no region "r"`,
			codes.InvalidArgument},
		{"unknown output", "ModelInfer", request(oneInput + `contents {fp32_contents: [1, 2]}} outputs {name: "y"}`), &pb.ModelInferResponse{}, "unknown output",
			codes.InvalidArgument},
		{"too large", "SystemSharedMemoryRegister", &pb.SystemSharedMemoryRegisterRequest{Name: "r", Key: "k", ByteSize: math.MaxUint64},
			&pb.SystemSharedMemoryRegisterResponse{}, "no memory is that large", codes.InvalidArgument},
		{"no file", "SystemSharedMemoryRegister", &pb.SystemSharedMemoryRegisterRequest{Name: "r", Key: "../etc/passwd", ByteSize: 1},
			&pb.SystemSharedMemoryRegisterResponse{}, "no key of shared memory", codes.InvalidArgument},

		{"index", "RepositoryIndex", &pb.RepositoryIndexRequest{}, &pb.RepositoryIndexResponse{}, `models {name: "m" version: "1" state: "READY"}`, 0},
		{"unload another", "RepositoryModelUnload", &pb.RepositoryModelUnloadRequest{ModelName: "n"}, &pb.RepositoryModelUnloadResponse{}, "unknown model", codes.NotFound},
		{"unload", "RepositoryModelUnload", &pb.RepositoryModelUnloadRequest{ModelName: "m"}, &pb.RepositoryModelUnloadResponse{}, "", 0},
		{"unloaded", "RepositoryIndex", &pb.RepositoryIndexRequest{}, &pb.RepositoryIndexResponse{},
			`models {name: "m" version: "1" state: "UNAVAILABLE" reason: "unloaded"}`, 0},
		{"only ready", "RepositoryIndex", &pb.RepositoryIndexRequest{Ready: true}, &pb.RepositoryIndexResponse{}, "", 0},
		{"not ready", "ServerReady", &pb.ServerReadyRequest{}, &pb.ServerReadyResponse{}, "", 0},
		{"infer unloaded", "ModelInfer", request(oneInput + `contents {fp32_contents: [1, 2]}}`), &pb.ModelInferResponse{}, "not loaded", codes.Unavailable},
		{"load", "RepositoryModelLoad", &pb.RepositoryModelLoadRequest{ModelName: "m"}, &pb.RepositoryModelLoadResponse{}, "", 0},
		{"ready again", "ServerReady", &pb.ServerReadyRequest{}, &pb.ServerReadyResponse{}, `ready: true`, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := connection.Invoke(t.Context(), "/"+pb.Service+"/"+test.method, test.request, test.response)
			if status.Code(err) != test.code {
				t.Fatalf("code %v, want %v: %v", status.Code(err), test.code, err)
			}
			if err != nil {
				if !strings.Contains(err.Error(), test.want) {
					t.Errorf("%v, want %q in it", err, test.want)
				}
				return
			}
			want := test.response.ProtoReflect().New().Interface()
			if err := prototext.Unmarshal([]byte(test.want), want); err != nil {
				t.Fatal(err)
			}
			if !proto.Equal(test.response, want) {
				t.Errorf("got %v, want %v", test.response, want)
			}
		})
	}
}

// TestGRPCContents checks that each datatype's numbers are the bytes that raw contents have.
func TestGRPCContents(t *testing.T) {
	for _, test := range []struct {
		datatype, contents string
		want               any // the values as they are in memory; nil: refused
	}{
		{"BOOL", "bool_contents: [true, false]", []byte{1, 0}},
		{"INT8", "int_contents: [-128, 127]", []int8{-128, 127}},
		{"INT8", "int_contents: 128", nil},
		{"INT16", "int_contents: [-32768, 32767]", []int16{-32768, 32767}},
		{"INT16", "int_contents: -32769", nil},
		{"INT32", "int_contents: [-2147483648, 7]", []int32{-2147483648, 7}},
		{"INT64", "int64_contents: -9", []int64{-9}},
		{"UINT8", "uint_contents: [0, 255]", []uint8{0, 255}},
		{"UINT8", "uint_contents: 256", nil},
		{"UINT16", "uint_contents: 65535", []uint16{65535}},
		{"UINT16", "uint_contents: 65536", nil},
		{"UINT32", "uint_contents: 4294967295", []uint32{4294967295}},
		{"UINT64", "uint64_contents: 18446744073709551615", []uint64{18446744073709551615}},
		{"FP32", "fp32_contents: 1.5", []float32{1.5}},
		{"FP64", "fp64_contents: -0.25", []float64{-0.25}},
		{"BYTES", `bytes_contents: ["", "ab"]`, []byte("\x00\x00\x00\x00\x02\x00\x00\x00ab")},
		{"FP16", "fp32_contents: 1", nil},
		{"TEXT", "", nil},
	} {
		t.Run(test.datatype+" "+test.contents, func(t *testing.T) {
			got, err := fromContents(test.datatype, text[pb.InferTensorContents](t, test.contents))
			if test.want == nil {
				if err == nil {
					t.Errorf("got %v, want an error", got)
				}
				return
			}
			want, _ := binary.Append(nil, binary.LittleEndian, test.want)
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("got %v, %v, want %v", got, err, want)
			}
		})
	}
}

// TestGRPCRaw checks a request with bytes, whose response has bytes.
func TestGRPCRaw(t *testing.T) {
	connection := dial(t, server(t))
	row, _ := binary.Append(nil, binary.LittleEndian, []float32{1, 2})
	request := text[pb.ModelInferRequest](t, `model_name: "m" inputs {name: "x" datatype: "FP32" shape: [1, 2]}`)
	request.RawInputContents = [][]byte{row}
	response := &pb.ModelInferResponse{}
	if err := connection.Invoke(t.Context(), "/"+pb.Service+"/ModelInfer", request, response); err != nil {
		t.Fatal(err)
	}
	want := binary.LittleEndian.AppendUint32(nil, sum(1, 2))
	if len(response.RawOutputContents) != 1 || !bytes.Equal(response.RawOutputContents[0], want) || response.Outputs[0].Contents != nil {
		t.Errorf("got %v, want the bytes %v", response, want)
	}
}

// TestGRPCMemory checks tensors in shared memory.
func TestGRPCMemory(t *testing.T) {
	key := filepath.Base(t.TempDir()) + "-" + filepath.Base(filepath.Dir(t.TempDir()))
	file := filepath.Join(sharedMemory, key)
	row, _ := binary.Append(nil, binary.LittleEndian, []float32{1, 2})
	if err := os.WriteFile(file, append(row, make([]byte, 8)...), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(file) })
	connection := dial(t, server(t))
	invoke := func(method string, request, response proto.Message) {
		t.Helper()
		if err := connection.Invoke(t.Context(), "/"+pb.Service+"/"+method, request, response); err != nil {
			t.Fatal(err)
		}
	}
	invoke("SystemSharedMemoryRegister", &pb.SystemSharedMemoryRegisterRequest{Name: "r", Key: "/" + key, ByteSize: 16}, &pb.SystemSharedMemoryRegisterResponse{})
	list := &pb.SystemSharedMemoryStatusResponse{}
	invoke("SystemSharedMemoryStatus", &pb.SystemSharedMemoryStatusRequest{}, list)
	if r := list.Regions["r"]; len(list.Regions) != 1 || r.GetKey() != "/"+key || r.GetByteSize() != 16 {
		t.Errorf("regions %v", list.Regions)
	}
	request := text[pb.ModelInferRequest](t, `model_name: "m" inputs {name: "x" datatype: "FP32" shape: [1, 2]} outputs {name: "checksum"}`)
	request.Inputs[0].Parameters = spanParameters(span{"r", 0, 8})
	request.Outputs[0].Parameters = spanParameters(span{"r", 8, 8})
	response := &pb.ModelInferResponse{}
	invoke("ModelInfer", request, response)
	if got := spanOf(response.Outputs[0].Parameters); got == nil || *got != (span{"r", 8, 4}) || response.Outputs[0].Contents != nil {
		t.Errorf("got %v, want the output in shared memory", response)
	}
	content, err := os.ReadFile(file)
	if want := binary.LittleEndian.AppendUint32(nil, sum(1, 2)); err != nil || !bytes.Equal(content[8:12], want) {
		t.Errorf("shared memory has %v, %v, want %v from 8 on", content, err, want)
	}
	invoke("SystemSharedMemoryUnregister", &pb.SystemSharedMemoryUnregisterRequest{}, &pb.SystemSharedMemoryUnregisterResponse{})
	list = &pb.SystemSharedMemoryStatusResponse{}
	if invoke("SystemSharedMemoryStatus", &pb.SystemSharedMemoryStatusRequest{}, list); len(list.Regions) != 0 {
		t.Errorf("regions %v, want none", list.Regions)
	}
}

// TestGRPCFaults checks that a client can ask for faults by metadata.
func TestGRPCFaults(t *testing.T) {
	connection := dial(t, server(t))
	ctx := metadata.AppendToOutgoingContext(t.Context(), FaultHeader, "error=503")
	err := connection.Invoke(ctx, "/"+pb.Service+"/ServerLive", &pb.ServerLiveRequest{}, &pb.ServerLiveResponse{})
	if status.Code(err) != codes.Unavailable {
		t.Errorf("got %v, want the code for 503", err)
	}
}
