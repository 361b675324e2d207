package oip_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/gshare-dev/gshare/serving/oip"
)

// pixels is the number of elements of the tensor of the benchmarks, an image of 3 x 224 x 224: 602,112 bytes in FP32.
const pixels = 3 * 224 * 224

// processorTime reports the processor time of an operation: on a busy machine it says more than the clock. The caller calls the result at the end.
func processorTime(b *testing.B) func() {
	spent := func() time.Duration {
		var usage syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
			b.Fatal(err)
		}
		return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
	}
	before := spent()
	return func() { b.ReportMetric(float64(spent()-before)/float64(b.N), "cpu-ns/op") }
}

// jsonImage writes single precision as Python does, with the digits of double precision.
func jsonImage(b *testing.B) []byte {
	random := rand.New(rand.NewPCG(1, 2))
	body := []byte(`{"id":"a","inputs":[{"name":"in","shape":[1,3,224,224],"datatype":"FP32","data":[`)
	for i := range pixels {
		if i > 0 {
			body = append(body, ',')
		}
		body = strconv.AppendFloat(body, float64(random.Float32()), 'g', -1, 64)
	}
	body = append(body, "]}]}"...)
	return body
}

func binaryImage() (body []byte, jsonLength int) {
	head := fmt.Sprintf(`{"id":"a","inputs":[{"name":"in","shape":[1,3,224,224],"datatype":"FP32","parameters":{"binary_data_size":%d}}]}`, 4*pixels)
	return append([]byte(head), make([]byte, 4*pixels)...), len(head)
}

func grpcImage(b *testing.B) []byte {
	head := encode(b, "ModelInferRequest", `{"modelName":"m","id":"a","inputs":[{"name":"in","datatype":"FP32","shape":["1","3","224","224"]}]}`)
	return protowire.AppendBytes(protowire.AppendTag(head, 7, protowire.BytesType), make([]byte, 4*pixels))
}

// BenchmarkMerge locates the tensors of eight requests, merges them and copies the batch once, as a socket does. All but the small ones are
// images. One operation is one request.
func BenchmarkMerge(b *testing.B) {
	binaryBody, binaryLength := binaryImage()
	jsonBody := jsonImage(b)
	rest := func(body []byte, jsonLength int) func() (*oip.Request, error) {
		return func() (*oip.Request, error) { return oip.ParseRequest(body, jsonLength) }
	}
	message := grpcImage(b)
	for name, parse := range map[string]func() (*oip.Request, error){
		"binary": rest(binaryBody, binaryLength),
		"json":   rest(jsonBody, len(jsonBody)),
		"small":  rest([]byte(one), len(one)),
		"grpc":   func() (*oip.Request, error) { return oip.ParseModelInfer(message) },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			defer processorTime(b)()
			var socket bytes.Buffer
			for i := 0; i < b.N; i += 8 {
				var requests []*oip.Request
				for range 8 {
					r, err := parse()
					if err != nil {
						b.Fatal(err)
					}
					requests = append(requests, r)
				}
				batch, errs := oip.Merge(requests)
				if errs != nil {
					b.Fatal(errs)
				}
				socket.Reset()
				if _, err := batch.WriteTo(&socket); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkMergeOnly merges eight images of JSON that are located already, which each connection does for itself.
func BenchmarkMergeOnly(b *testing.B) {
	body := jsonImage(b)
	var requests []*oip.Request
	for range 8 {
		r, err := oip.ParseRequest(body, len(body))
		if err != nil {
			b.Fatal(err)
		}
		requests = append(requests, r)
	}
	var socket bytes.Buffer
	b.ResetTimer()
	defer processorTime(b)()
	for i := 0; i < b.N; i += 8 {
		batch, _ := oip.Merge(requests)
		socket.Reset()
		_, _ = batch.WriteTo(&socket)
	}
}

// BenchmarkSplit cuts the response to eight images, of 1000 classes each.
func BenchmarkSplit(b *testing.B) {
	jsonBody := []byte(`{"outputs":[{"name":"out","shape":[8,1000],"datatype":"FP32","data":[0.001`)
	for range 7999 {
		jsonBody = append(jsonBody, ",0.12345678"...)
	}
	jsonBody = append(jsonBody, "]}]}"...)
	head := `{"outputs":[{"name":"out","shape":[8,1000],"datatype":"FP32","parameters":{"binary_data_size":32000}}]}`
	binaryBody := append([]byte(head), make([]byte, 32000)...)
	image, length := binaryImage()
	var requests []*oip.Request
	for range 8 {
		r, _ := oip.ParseRequest(image, length)
		requests = append(requests, r)
	}
	batch, _ := oip.Merge(requests)
	for name, response := range map[string]struct {
		body       []byte
		jsonLength int
	}{"json": {jsonBody, len(jsonBody)}, "binary": {binaryBody, len(head)}} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			defer processorTime(b)()
			for i := 0; i < b.N; i += 8 {
				parts, err := batch.Split(response.body, response.jsonLength)
				if err != nil {
					b.Fatal(err)
				}
				for _, part := range parts {
					_, _ = part.WriteTo(io.Discard)
				}
			}
		})
	}
}

// BenchmarkDecode is what BenchmarkMerge would do with encoding/json: read eight images into numbers and write them again.
func BenchmarkDecode(b *testing.B) {
	type tensor struct {
		Name     string    `json:"name"`
		Shape    []int64   `json:"shape"`
		Datatype string    `json:"datatype"`
		Data     []float32 `json:"data"`
	}
	type message struct {
		ID     string   `json:"id,omitempty"`
		Inputs []tensor `json:"inputs"`
	}
	body := jsonImage(b)
	b.ReportAllocs()
	defer processorTime(b)()
	for i := 0; i < b.N; i += 8 {
		var all message
		for j := range 8 {
			var one message
			if err := json.Unmarshal(body, &one); err != nil {
				b.Fatal(err)
			}
			if j == 0 {
				all = one
			} else {
				all.Inputs[0].Data = append(all.Inputs[0].Data, one.Inputs[0].Data...)
			}
		}
		if _, err := json.Marshal(all); err != nil {
			b.Fatal(err)
		}
	}
}
