package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/gshare-dev/gshare/cmd/gshare-model/internal/model"
	"github.com/gshare-dev/gshare/serving/oip/inference"
	fakegpu "github.com/gshare-dev/gshare/test/fake/gpu"
	"github.com/gshare-dev/gshare/test/native"
	"github.com/gshare-dev/gshare/vgpu/share"
	"github.com/gshare-dev/gshare/vgpu/store"
)

const asModel = "GSHARE_TEST_MAIN"

// TestMain lets the test binary be gshare-model itself.
func TestMain(m *testing.M) {
	if socket := os.Getenv(asStore); socket != "" {
		if err := serveStore(socket); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if os.Getenv(asModel) == "" {
		os.Exit(m.Run())
	}
	os.Unsetenv(asModel)
	main()
}

// process is a running gshare-model on the simulated driver.
type process struct {
	*exec.Cmd
	url    string
	stderr chan string // what it wrote, at its end
}

// driver builds the simulated driver and returns its folder.
func driver(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("gcc is not installed")
	}
	folder := t.TempDir()
	if err := native.Build("../..", folder, native.Driver); err != nil {
		t.Fatal(err)
	}
	return folder
}

// start starts gshare-model and waits until it listens. Environment and arguments are added to what it needs.
func start(t *testing.T, folder string, env []string, arguments ...string) *process {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{Cmd: exec.Command(exe, append([]string{"--address", "127.0.0.1:0"}, arguments...)...), stderr: make(chan string, 1)}
	p.Env = append(os.Environ(), append(env, asModel+"=1", "LD_LIBRARY_PATH="+folder)...)
	output, err := p.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Process.Kill() })
	listening := make(chan bool, 1)
	go func() {
		var all strings.Builder
		for s := bufio.NewScanner(output); s.Scan(); fmt.Fprintln(&all, s.Text()) {
			if m := regexp.MustCompile(`msg=listening .*address=(\S+)`).FindStringSubmatch(s.Text()); m != nil {
				p.url = "http://" + m[1]
				listening <- true
			}
		}
		close(listening)
		p.stderr <- all.String()
	}()
	if !<-listening {
		t.Fatalf("it ended: %s", <-p.stderr)
	}
	return p
}

// post sends a body and returns the answer.
func (p *process) post(t *testing.T, path, body string) (status int, answer string) {
	t.Helper()
	response, err := http.Post(p.url+path, "application/json", strings.NewReader(body))
	if err != nil {
		t.Error(err)
		return 0, ""
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Error(err)
	}
	return response.StatusCode, string(text)
}

// TestOnSimulatedGPU runs gshare-model on the simulated driver, with the machine's clock: weights take the device's memory, batches take their
// time, results are right, and SIGTERM lets the request in flight end.
func TestOnSimulatedGPU(t *testing.T) {
	folder := driver(t)
	simulation, err := fakegpu.New(fakegpu.Config{Socket: filepath.Join(folder, "gpu")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = simulation.Close() })
	p := start(t, folder, []string{"FAKE_CUDA_SOCKET=" + filepath.Join(folder, "gpu"), "FAKE_CUDA_MEMORY=67108864"},
		"--name", "resnet50", "--weights", "40Mi", "--batch", "1=20ms", "--batch", "2=150ms")
	begin := time.Now()
	const request = `{"inputs":[{"name":"input","datatype":"FP32","shape":[2,1],"data":[1,2]}]}`
	status, answer := p.post(t, "/v2/models/resnet50/infer", request)
	took := time.Since(begin)
	var response struct{ Outputs []struct{ Data []uint32 } }
	if err := json.Unmarshal([]byte(answer), &response); err != nil || status != 200 || len(response.Outputs) != 1 {
		t.Fatal(status, answer, err)
	}
	want := []uint32{model.Checksum("resnet50", []byte{0, 0, 0x80, 0x3f}), model.Checksum("resnet50", []byte{0, 0, 0, 0x40})}
	if !slices.Equal(response.Outputs[0].Data, want) {
		t.Errorf("%s, want %v", answer, want)
	}
	if took < 150*time.Millisecond { // no upper bound: the machine may be busy
		t.Errorf("the batch took %v", took)
	}
	answered, overGRPC := make(chan string, 1), make(chan error, 1)
	send := func() {
		go func() {
			_, answer := p.post(t, "/v2/models/resnet50/infer", request)
			answered <- answer
		}()
		go func() { overGRPC <- p.infer(t, 1, 2) }()
	}
	send()
	for !p.await(t, "gshare_model_batches 2\n", func() bool { return len(answered) == 1 && len(overGRPC) == 1 }) {
		<-answered // on a busy machine, one was answered before the other came
		if err := <-overGRPC; err != nil {
			t.Fatal(err)
		}
		send()
	}
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if again := <-answered; again != answer {
		t.Errorf("the request in flight got %q", again)
	}
	if err := <-overGRPC; err != nil {
		t.Errorf("the request in flight over gRPC: %v", err)
	}
	log := <-p.stderr
	if err := p.Wait(); err != nil {
		t.Errorf("%v: %s", err, log)
	}
	small := exec.Command(p.Path, "--address", "127.0.0.1:0", "--batch", "1=1ms", "--weights", "80Mi")
	small.Env = p.Env
	if out, err := small.CombinedOutput(); err == nil || !bytes.Contains(out, []byte("cuMemAlloc")) {
		t.Errorf("weights that do not fit: %v: %s", err, out)
	}
}

// TestListensOnceLoaded: a server that accepts a connection is ready. Many probes check no more than that.
func TestListensOnceLoaded(t *testing.T) {
	folder := driver(t)                        // compiles, which takes time in which the port could be taken
	l, err := net.Listen("tcp", "127.0.0.2:0") // no outgoing connection takes its port until it is used: those come from 127.0.0.1
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	first := make(chan string, 1)
	go func() {
		for t.Context().Err() == nil {
			if r, err := http.Get("http://" + address + "/v2/health/ready"); err == nil {
				r.Body.Close()
				first <- r.Status
				return
			}
			time.Sleep(time.Millisecond)
		}
	}()
	start(t, folder, nil, "--address", address, "--name", "m", "--batch", "1=1ms", "--load", "300ms")
	if status := <-first; status != "200 OK" {
		t.Errorf("the first request is answered with %s", status)
	}
}

// infer sends a batch of values over gRPC.
func (p *process) infer(t *testing.T, values ...float32) error {
	connection, err := grpc.NewClient(strings.TrimPrefix(p.url, "http://"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer connection.Close()
	request := &inference.ModelInferRequest{ModelName: "resnet50", Inputs: []*inference.ModelInferRequest_InferInputTensor{{
		Name: "input", Datatype: "FP32", Shape: []int64{int64(len(values)), 1}, Contents: &inference.InferTensorContents{Fp32Contents: values},
	}}}
	return connection.Invoke(t.Context(), "/"+inference.Service+"/ModelInfer", request, &inference.ModelInferResponse{})
}

// await polls the metrics until they contain a line, or until it is too late. It reports whether they do.
func (p *process) await(t *testing.T, line string, late func() bool) bool {
	t.Helper()
	for !late() {
		response, err := http.Get(p.url + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil || strings.Contains(string(text), line) {
			return true
		}
	}
	return false
}

// TestDeclare: the declaration has the digest of the weights' bytes, and their size in the units of the store.
func TestDeclare(t *testing.T) {
	var out bytes.Buffer
	cmd := command()
	cmd.SetOut(&out)
	cmd.SetArgs([]string{"--name", "resnet50", "--weights", "5000Ki", "--batch", "1=5ms", "--declare"})
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	declared, err := share.ParseWeights(strings.TrimSpace(out.String()))
	if err != nil || len(declared) != 1 {
		t.Fatalf("%q: %v", out.String(), err)
	}
	digest := store.Digest(model.Table{Name: "resnet50", Weights: 5000 << 10}.Digest()).String()
	if got := declared[0]; string(got.Digest) != digest || got.Memory != 6*share.MiB {
		t.Errorf("declared %+v, want %s of 6 MiB", got, digest)
	}
}

// TestUsage checks the flags that are refused, without a driver.
func TestUsage(t *testing.T) {
	points := filepath.Join(t.TempDir(), "points.json")
	if err := os.WriteFile(points, []byte(`[{"model":"m","resource":{"cpu":1000},"batch":1,"Mean":5}]`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, arguments := range [][]string{
		{}, {"--batch", "8"}, {"--batch", "a=1ms"}, {"--batch", "8=1"}, {"--batch", "1=1ms", "--weights", "many"}, {"--batch", "1=1ms", "--workspace", "-1"}, {"--batch", "1=1ms", "--load", "-1s"}, {"--batch", "1=1ms", "--sm", "0"},
		{"--batch", "1=1ms", "--concurrency", "0"}, {"--batch", "1=1ms", "--input", "x"}, {"--batch", "1=1ms", "--input", "x:FP31:1"},
		{"--batch", "1=1ms", "--input", "x:FP32:0"}, {"--batch", "1=1ms", "--input", "x:FP32:1", "--input", "x:FP32:1"}, {"--points", points},
		{"--points", "none.json"}, {"--batch", "1=1ms", "--declared", "sha256:0=1Mi"}, {"--batch", "1=1ms", "--declared", declaration(model.Table{Weights: 1}) + "," + declaration(model.Table{Weights: 2})},
		{"--batch", "1=1ms", "--weights", "5Mi", "--declared", declaration(model.Table{Weights: 1})},
	} {
		cmd := command()
		cmd.SetArgs(arguments)
		if err := cmd.ExecuteContext(t.Context()); err == nil || strings.Contains(err.Error(), "libcuda") {
			t.Errorf("%q: %v", arguments, err)
		}
	}
}
