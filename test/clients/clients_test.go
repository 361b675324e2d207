// Package clients_test sends requests from published client libraries to gshare-model, on the simulated driver, through the gateway: OpenAI's
// own client, and gRPC with KServe's definitions of the Open Inference Protocol. It needs gcc, and the network to fetch KServe's definitions.
package clients_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/bufbuild/protocompile"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/gshare-dev/gshare/serving/gateway"
	"github.com/gshare-dev/gshare/test/native"
)

const kserve = "github.com/kserve/kserve@v0.20.0"

// startModel builds and starts gshare-model with a model named "m", and returns its address.
func startModel(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	if err := native.Build("../..", folder, native.Driver); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(folder, "gshare-model")
	build := exec.Command("go", "build", "-o", program, "./cmd/gshare-model")
	build.Dir = "../.."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	command := exec.Command(program, "--address", "127.0.0.1:0", "--name", "m", "--weights", "1Mi", "--batch", "8=1ms")
	command.Env = append(os.Environ(), "LD_LIBRARY_PATH="+folder)
	output, err := command.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	})
	for lines := bufio.NewScanner(output); lines.Scan(); {
		if m := regexp.MustCompile(`msg=listening .*address=(\S+)`).FindStringSubmatch(lines.Text()); m != nil {
			go func() { // keeps reading, so that the program never blocks on its output
				for lines.Scan() {
				}
			}()
			return m[1]
		}
	}
	t.Fatal("gshare-model has ended")
	return ""
}

// startGateway serves a function "m" with one replica, and returns the gateway and its address.
func startGateway(t *testing.T, f gateway.Function, replica string) (*gateway.Gateway, string) {
	t.Helper()
	g := gateway.New(gateway.Config{})
	f.FunctionName = gateway.FunctionName{Namespace: "default", Name: "m"}
	if err := g.SetFunction(f); err != nil {
		t.Fatal(err)
	}
	if err := g.SetReplicas(f.FunctionName, []gateway.Replica{{ID: "a", Address: replica, Credits: 4}}); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := g.Server()
	go server.Serve(listener)
	t.Cleanup(func() { _ = server.Close() })
	return g, listener.Addr().String()
}

// TestOpenAI uses OpenAI's own client, configured with nothing but the gateway's address.
func TestOpenAI(t *testing.T) {
	g, address := startGateway(t, gateway.Function{Protocol: gateway.OpenAI}, startModel(t))
	client := openai.NewClient(option.WithBaseURL("http://"+address+"/v1"), option.WithAPIKey("none"), option.WithMaxRetries(0))
	hi := openai.ChatCompletionNewParams{Model: "m", Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("hi")}, MaxTokens: openai.Int(3)}

	models, err := client.Models.List(t.Context())
	if err != nil || len(models.Data) != 1 || models.Data[0].ID != "m" || models.Data[0].Object != "model" {
		t.Errorf("models: %+v %v", models, err)
	}
	chat, err := client.Chat.Completions.New(t.Context(), hi)
	if err != nil || len(chat.Choices) != 1 || len(strings.Fields(chat.Choices[0].Message.Content)) != 3 || chat.Usage.CompletionTokens != 3 {
		t.Fatalf("chat: %+v %v", chat, err)
	}

	stream := client.Chat.Completions.NewStreaming(t.Context(), hi)
	var all openai.ChatCompletionAccumulator
	for stream.Next() {
		all.AddChunk(stream.Current())
	}
	if err := stream.Err(); err != nil || len(all.Choices) != 1 || all.Choices[0].Message.Content != chat.Choices[0].Message.Content ||
		all.Choices[0].FinishReason != "length" {
		t.Errorf("streamed chat: %+v %v", all, err)
	}

	completion, err := client.Completions.New(t.Context(), openai.CompletionNewParams{Model: "m", MaxTokens: openai.Int(3),
		Prompt: openai.CompletionNewParamsPromptUnion{OfString: openai.String("hi")}})
	if err != nil || len(completion.Choices) != 1 || completion.Choices[0].Text != chat.Choices[0].Message.Content {
		t.Errorf("completion: %+v %v", completion, err)
	}
	pieces := client.Completions.NewStreaming(t.Context(), openai.CompletionNewParams{Model: "m", MaxTokens: openai.Int(3),
		Prompt: openai.CompletionNewParamsPromptUnion{OfString: openai.String("hi")}})
	text := ""
	for pieces.Next() {
		for _, choice := range pieces.Current().Choices {
			text += choice.Text
		}
	}
	if err := pieces.Err(); err != nil || text != chat.Choices[0].Message.Content {
		t.Errorf("streamed completion: %q %v", text, err)
	}

	vectors, err := client.Embeddings.New(t.Context(), openai.EmbeddingNewParams{Model: "m",
		Input: openai.EmbeddingNewParamsInputUnion{OfArrayOfStrings: []string{"a", "b"}}})
	if err != nil || len(vectors.Data) != 2 || len(vectors.Data[1].Embedding) != 4 || vectors.Data[1].Index != 1 {
		t.Errorf("embeddings: %+v %v", vectors, err)
	}

	hi.Model = "other"
	_, err = client.Chat.Completions.New(t.Context(), hi)
	var refused *openai.Error
	if !errors.As(err, &refused) || refused.StatusCode != http.StatusNotFound {
		t.Errorf("another model: %v", err)
	}

	hi.Model, hi.MaxTokens = "m", openai.Int(1<<16)
	ctx, cancel := context.WithCancel(t.Context())
	stream = client.Chat.Completions.NewStreaming(ctx, hi)
	if !stream.Next() {
		t.Error(stream.Err())
	}
	cancel()
	for stream.Next() {
	}
	if !errors.Is(stream.Err(), context.Canceled) {
		t.Errorf("a chat that was given up: %v", stream.Err())
	}
	await(t, func() bool {
		l := g.Load(gateway.FunctionName{Namespace: "default", Name: "m"})
		return l.Gone == 1 && l.InFlight == 0
	})
}

// await waits until a condition holds.
func await(t *testing.T, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !condition(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it does not happen")
		}
	}
}

// TestKServe uses gRPC with the messages that KServe defines.
func TestKServe(t *testing.T) {
	_, address := startGateway(t, gateway.Function{Protocol: gateway.OIP, MaxBatch: 8}, startModel(t))
	service := definitions(t)
	connection, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithAuthority("m"))
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	const input = `"inputs": [{"name": "input", "datatype": "FP32", "shape": ["1", "1"], "contents": {"fp32Contents": [1]}}]`
	for name, test := range map[string]struct {
		method, request string
		code            codes.Code
		want            string
	}{
		"live":          {"ServerLive", `{}`, codes.OK, `"live":true`},
		"ready":         {"ServerReady", `{}`, codes.OK, `"ready":true`},
		"model ready":   {"ModelReady", `{"name": "m"}`, codes.OK, `"ready":true`},
		"metadata":      {"ModelMetadata", `{"name": "m"}`, codes.OK, `"inputs":[{"name":"input"`},
		"infer":         {"ModelInfer", `{"modelName": "m", "id": "7", ` + input + `}`, codes.OK, `"id":"7","outputs":[{"name":"checksum","datatype":"UINT32"`},
		"other model":   {"ModelInfer", `{"modelName": "n", ` + input + `}`, codes.NotFound, "unknown model"},
		"no input":      {"ModelInfer", `{"modelName": "m"}`, codes.InvalidArgument, "inputs is missing"},
		"unknown model": {"ModelReady", `{"name": "n"}`, codes.NotFound, "unknown model"},
	} {
		t.Run(name, func(t *testing.T) {
			method := service.Methods().ByName(protoreflect.Name(test.method))
			request, response := dynamicpb.NewMessage(method.Input()), dynamicpb.NewMessage(method.Output())
			if err := protojson.Unmarshal([]byte(test.request), request); err != nil {
				t.Fatal(err)
			}
			err := connection.Invoke(t.Context(), "/"+string(service.FullName())+"/"+test.method, request, response)
			text, _ := protojson.Marshal(response)
			got := strings.ReplaceAll(string(text), " ", "")
			if err != nil {
				got = status.Convert(err).Message()
			}
			if status.Code(err) != test.code || !strings.Contains(got, test.want) {
				t.Errorf("%v %s, want %v %s", status.Code(err), got, test.code, test.want)
			}
		})
	}
}

// definitions returns KServe's definition of the service.
func definitions(t *testing.T) protoreflect.ServiceDescriptor {
	t.Helper()
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
	compiler := protocompile.Compiler{Resolver: &protocompile.SourceResolver{ImportPaths: []string{filepath.Join(module.Dir, "docs/predict-api/v2")}}}
	files, err := compiler.Compile(t.Context(), "grpc_predict_v2.proto")
	if err != nil {
		t.Fatal(err)
	}
	return files[0].Services().ByName("GRPCInferenceService")
}
