package main

import (
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// serving is a running gshare serve.
type serving struct {
	*instance
	url string
}

// served is a function whose replicas are gshare-model.
type served struct {
	name    string
	share   string // fields of resources.share
	batches string // how long batches take, as flags of gshare-model
	scaling string // more fields of scaling
}

func (f served) checksum() string { return fmt.Sprint(crc32.ChecksumIEEE([]byte(f.name + "hello"))) }

// text returns the object of the function.
func (b *bench) text(f served) string {
	return fmt.Sprintf(`apiVersion: serving.gshare.dev/v1alpha1
kind: GPUFunction
metadata: {name: %[1]s}
spec:
  slo: {latency: 60s}
  idempotent: true
  protocol: OIP
  batching: {maxBatch: 8}
  template:
    spec:
      containers:
      - name: server
        command: [%[2]s, --name, %[1]s, --weights, 40Mi, %[3]s, --input, 'input:UINT8:1', --faults]
        readinessProbe: {httpGet: {path: /v2/health/ready}}
  resources: {share: {%[4]s}}
  scaling: {requestsPerSecond: 40, %[5]s}
`, f.name, b.program("gshare-model"), f.batches, f.share, f.scaling)
}

// resnet50 is the function of most tests.
func resnet50(scaling string) served {
	return served{"resnet50", "sm: 40, quota: 50, quotaLimit: 100, memory: 1Gi", "--batch, 1=20ms, --batch, 8=40ms", scaling}
}

// serve starts gshare serve with functions on the simulated driver.
func (b *bench) serve(t *testing.T, functions ...served) *serving {
	t.Helper()
	return b.serveWith(t, nil, functions...)
}

// serveWith is serve with more flags.
func (b *bench) serveWith(t *testing.T, flags []string, functions ...served) *serving {
	t.Helper()
	var texts []string
	for _, f := range functions {
		texts = append(texts, b.text(f))
	}
	file := write(t, filepath.Join(b.dir, "functions.yaml"), strings.Join(texts, "---\n"))
	flags = append([]string{"serve", file, "--socket", b.socket(), "--address", "127.0.0.1:0", "--metrics-address", "127.0.0.1:0"}, flags...)
	cmd := exec.Command(b.program("gshare"), flags...)
	cmd.Env = append(os.Environ(), fmt.Sprintf("FAKE_CUDA_DEVICES=%d", max(1, b.devices)), "LD_LIBRARY_PATH="+b.folder, "FAKE_CUDA_SOCKET="+filepath.Join(b.dir, "gpu"))
	s := &serving{instance: startInstance(t, cmd, "msg=serving ")}
	s.url = "http://" + s.find(t, `msg=serving address=(\S+)`)
	return s
}

// find returns what the first group of the expression matches in the log.
func (s *serving) find(t *testing.T, expression string) string {
	t.Helper()
	m := regexp.MustCompile(expression).FindStringSubmatch(s.text())
	if m == nil {
		t.Fatalf("no %s in %s", expression, s.text())
	}
	return m[1]
}

// ask sends a request to resnet50, on a connection of its own, and returns the status and the body of the answer.
func (s *serving) ask(fault string) (status int, body string, err error) {
	return s.askOver(&http.Transport{DisableKeepAlives: true, DialContext: (&net.Dialer{}).DialContext}, "resnet50", fault)
}

// askOver sends a request to a function over connections of a transport.
func (s *serving) askOver(connections http.RoundTripper, function, fault string) (status int, body string, err error) {
	r, err := http.NewRequest(http.MethodPost, s.url+"/", strings.NewReader("hello"))
	if err != nil {
		return 0, "", err
	}
	r.Host = function
	if fault != "" {
		r.Header.Set("X-Gshare-Fault", fault)
	}
	response, err := connections.RoundTrip(r)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return response.StatusCode, string(text), err
}

func (s *serving) mustAnswer(t *testing.T) {
	t.Helper()
	if status, body, err := s.ask(""); status != 200 || !strings.Contains(body, resnet50("").checksum()) || err != nil {
		t.Fatalf("status %d, %q, %v: %s", status, body, err, s.text())
	}
}

// TestServe lets a function go from zero to one replica and back with real processes: gshare serve, agent, hook and a model server on the
// simulated driver. Requests are joined into batches. A replica that is killed is replaced. At SIGTERM under load all requests that were accepted are answered.
func TestServe(t *testing.T) {
	b := newBench(t)
	b.start(t)
	s := b.serve(t, resnet50("maxReplicas: 1, window: 2s, keepShared: 1s"))
	if runs := b.mustStatus(t).Runs; len(runs) > 0 {
		t.Fatalf("before the first request: %+v", runs)
	}
	s.mustAnswer(t)
	eventually(t, "no replica is left without load", func() bool { return len(b.mustStatus(t).Runs) == 0 })
	if code := s.end(syscall.SIGTERM); code != 0 || strings.Contains(s.text(), "replica failed") {
		t.Errorf("it was not ended in order: code %d, %s", code, s.text())
	}

	s = b.serve(t, resnet50("maxReplicas: 1, window: 2m")) // so long that no replica ends for want of load
	s.batches(t)                                           // most of them wait for the replica
	runs := b.mustStatus(t).Runs
	if len(runs) != 1 || runs[0].Name != "resnet50-1" || runs[0].Priority != string(share.SLO) {
		t.Fatalf("%+v", runs)
	}
	if v := runs[0].VGPUs[0]; v.SM != 400 || v.Quota != 500 || v.QuotaLimit != 1000 || v.Memory != 1024*share.MiB || v.UsedMemory < 40*share.MiB {
		t.Errorf("its share is %+v", v)
	}
	killed := runs[0].PID
	if err := syscall.Kill(killed, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	const failed = `gshare_fleet_failures_total{function="resnet50",namespace="default"} 1` + "\n"
	eventually(t, "its end is noticed", func() bool { return strings.Contains(s.metrics(t), failed) })
	s.mustAnswer(t)
	if runs := b.mustStatus(t).Runs; len(runs) != 1 || runs[0].PID == killed {
		t.Errorf("%+v", runs)
	}
	for _, line := range []string{`gshare_fleet_starts_total{function="resnet50",namespace="default"} 2`, `gshare_fleet_failures_total{function="resnet50",namespace="default"} 1`,
		`gshare_fleet_replicas{function="resnet50",namespace="default",phase="ready"} 1`, `gshare_gateway_requests_total{code="200",function="resnet50",namespace="default"} 17`} {
		eventually(t, line, func() bool { return strings.Contains(s.metrics(t), line+"\n") }) // after the client has the answer
	}
	s.stopUnderLoad(t, 17, 50)
	eventually(t, "its share is back", func() bool { return len(b.mustStatus(t).Runs) == 0 })
}

// batches sends 16 inference requests at once, and holds that some of them were joined and that each got its own result.
func (s *serving) batches(t *testing.T) {
	t.Helper()
	var clients sync.WaitGroup
	for i := range 16 {
		clients.Go(func() {
			// a byte each, whose result is the CRC-32 of the model's name and the byte
			body := fmt.Sprintf(`{"inputs": [{"name": "input", "datatype": "UINT8", "shape": [1, 1], "data": [%d]}]}`, i)
			r, err := http.NewRequest(http.MethodPost, s.url+"/v2/models/resnet50/infer", strings.NewReader(body))
			if err != nil {
				t.Error(err)
				return
			}
			r.Host = "resnet50"
			response, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Error(err)
				return
			}
			defer response.Body.Close()
			text, err := io.ReadAll(response.Body)
			want := fmt.Sprintf(`"data":[%d]`, crc32.ChecksumIEEE(append([]byte("resnet50"), byte(i))))
			if err != nil || response.StatusCode != 200 || !strings.Contains(string(text), want) {
				t.Errorf("status %d, %s, %v, want %s", response.StatusCode, text, err, want)
			}
		})
	}
	clients.Wait()
	m := regexp.MustCompile(`gshare_gateway_batch_requests_count{.*} (\d+)`).FindStringSubmatch(s.metrics(t))
	if m == nil {
		t.Fatalf("no batches in %s", s.metrics(t))
	}
	if n, err := strconv.Atoi(m[1]); err != nil || n > 12 {
		t.Errorf("16 requests in %d batches", n)
	}
}

// stopUnderLoad sends requests without pause, ends gshare serve by SIGTERM once more of them are answered, and holds that each request that it
// counted was answered and that each answer has reached its client. answered requests were answered before. It returns how many have been.
func (s *serving) stopUnderLoad(t *testing.T, answered, more uint64) uint64 {
	t.Helper()
	var got atomic.Uint64
	got.Store(answered)
	connections := &http.Transport{MaxIdleConnsPerHost: 16}
	defer connections.CloseIdleConnections()
	var clients sync.WaitGroup
	for range 16 {
		clients.Go(func() {
			for {
				status, body, err := s.askOver(connections, "resnet50", "")
				if err != nil { // not accepted, or lost: then the counts differ
					return
				}
				if status != 200 {
					t.Errorf("status %d, %q", status, body)
				}
				got.Add(1)
			}
		})
	}
	eventually(t, "requests are answered", func() bool { return got.Load() > answered+more })
	if code := s.end(syscall.SIGTERM); code != 0 {
		t.Errorf("code %d: %s", code, s.text())
	}
	clients.Wait()
	want := fmt.Sprintf("requests=%d answered=%d ", got.Load(), got.Load())
	if !strings.Contains(s.text(), want) || !strings.Contains(s.text(), "refused=0 failed=0") {
		t.Errorf("clients got %d answers: %s", got.Load(), s.text())
	}
	return got.Load() - answered
}

// TestServeEndsAtOnce ends gshare serve by a second signal and by SIGKILL, while a replica does not answer: nothing of it is left.
func TestServeEndsAtOnce(t *testing.T) {
	b := newBench(t)
	b.start(t)
	for _, again := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		s := b.serve(t, resnet50("minReplicas: 1"))
		s.mustAnswer(t)
		hangs := make(chan int, 1)
		go func() { status, _, _ := s.ask("hang"); hangs <- status }()
		eventually(t, "the request hangs", func() bool {
			return strings.Contains(s.metrics(t), `gshare_fleet_requests{function="resnet50",namespace="default",state="in_flight"} 1`)
		})
		if err := s.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		eventually(t, "it stops", func() bool { return strings.Contains(s.text(), "interrupt again") })
		if code := s.end(again); code != map[syscall.Signal]int{syscall.SIGTERM: 130, syscall.SIGKILL: -1}[again] {
			t.Errorf("%v: code %d: %s", again, code, s.text())
		}
		if status := <-hangs; status == 200 {
			t.Error("the request that hangs was answered")
		}
		eventually(t, "its share is back", func() bool { return len(b.mustStatus(t).Runs) == 0 })
	}
}

// metrics returns the metrics of gshare serve.
func (s *serving) metrics(t *testing.T) string {
	t.Helper()
	response, err := http.Get("http://" + s.find(t, `msg="serving metrics" address=(\S+)`) + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
