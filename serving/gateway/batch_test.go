package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gshare-dev/gshare/serving/oip"
)

const inferPath = "/v2/models/resnet/infer"

// tensors is the JSON of a request or response with one FP32 tensor.
type tensors struct {
	ID      string   `json:"id,omitempty"`
	Inputs  []tensor `json:"inputs,omitempty"`
	Outputs []tensor `json:"outputs,omitempty"`
}

type tensor struct {
	Name     string    `json:"name"`
	Shape    []int     `json:"shape"`
	Datatype string    `json:"datatype"`
	Data     []float64 `json:"data"`
}

// input returns a request whose rows have one value each.
func input(id string, values ...float64) string {
	text, err := json.Marshal(tensors{ID: id, Inputs: []tensor{{"x", []int{len(values), 1}, "FP32", values}}})
	if err != nil {
		panic(err)
	}
	return string(text)
}

// model is a server that returns its inputs as outputs.
type model struct {
	mu      sync.Mutex
	batches [][]float64 // rows of each request
	took    func(rows int) time.Duration
	fails   func(rows []float64) int // returns a status; 0: success
	headers []http.Header
}

func (m *model) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	var request tensors
	if err := json.Unmarshal(body, &request); err != nil || len(request.Inputs) != 1 {
		http.Error(w, string(body), http.StatusBadRequest)
		return
	}
	rows := request.Inputs[0].Data
	m.mu.Lock()
	m.batches = append(m.batches, rows)
	m.headers = append(m.headers, r.Header)
	m.mu.Unlock()
	if m.took != nil {
		select {
		case <-time.After(m.took(len(rows))):
		case <-r.Context().Done():
			return
		}
	}
	if m.fails != nil {
		if status := m.fails(rows); status != 0 {
			http.Error(w, `{"error":"no"}`, status)
			return
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(tensors{ID: request.ID, Outputs: request.Inputs})
}

// sizes returns the number of rows of each request that the model has received.
func (m *model) sizes() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []string
	for _, b := range m.batches {
		all = append(all, strconv.Itoa(len(b)))
	}
	return strings.Join(all, " ")
}

// infer sends an inference request.
func (w *world) infer(ctx context.Context, body string, headers ...string) answer {
	return w.ask(ctx, body, append(headers, "Path", inferPath)...)
}

// right reports whether a response has the ID and the values.
func right(a answer, id string, values ...float64) bool {
	var got tensors
	return a.status == 200 && json.Unmarshal([]byte(a.body), &got) == nil && got.ID == id && len(got.Outputs) == 1 &&
		fmt.Sprint(got.Outputs[0].Data) == fmt.Sprint(values) && fmt.Sprint(got.Outputs[0].Shape) == fmt.Sprint([]int{len(values), 1})
}

func constant(d time.Duration) func(int) time.Duration { return func(int) time.Duration { return d } }

var batched = Function{Protocol: OIP, MaxBatch: 8, SLO: 10 * time.Second}

// TestBatches checks that requests that wait while a replica is busy are sent together, that each gets its own rows and ID, and that no batch has more
// rows than allowed.
func TestBatches(t *testing.T) {
	start(t, batched, func(w *world) {
		m := &model{took: constant(10 * ms)}
		w.replicas(m, 1, 0, "a")
		var wait sync.WaitGroup
		for i := range 20 {
			wait.Go(func() {
				values := []float64{float64(i)}
				if i == 5 {
					values = []float64{5, 50, 500}
				}
				if a := w.infer(w.Context(), input(fmt.Sprint("id", i), values...)); !right(a, fmt.Sprint("id", i), values...) {
					w.Errorf("request %d: %+v", i, a)
				}
			})
			synctest.Wait()
		}
		wait.Wait()
		if got := m.sizes(); got != "1 8 8 5" {
			w.Errorf("batches of %s rows, want 1 8 8 5", got)
		}
		if l := w.gateway.Load(resnet); l.Answered != 20 || l.InTime != 20 || l.Waiting+l.InFlight > 0 {
			w.Errorf("%+v", l)
		}
		if f := w.gateway.function(resnet); f.bodies.bytes != 0 {
			w.Errorf("%d bytes are never released", f.bodies.bytes)
		}
		if got := histogram(w.T, w.registry, "gshare_gateway_batch_requests"); got != 4 {
			w.Errorf("%d batches are counted", got)
		}
	})
}

// histogram returns the number of observations of a histogram.
func histogram(t *testing.T, g prometheus.Gatherer, name string) uint64 {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetHistogram().GetSampleCount()
		}
	}
	return 0
}

// TestOnlyEqualRequestsAreMerged checks that a batch contains only requests with the same path and form, and that requests that cannot be in a batch are
// passed on unchanged.
func TestOnlyEqualRequestsAreMerged(t *testing.T) {
	start(t, batched, func(w *world) {
		m := &model{took: constant(10 * ms)}
		w.replicas(m, 1, 0, "a")
		var wait sync.WaitGroup
		for i, headers := range [][]string{
			{}, // alone, since nothing is waiting yet
			{}, {"Query", "v=2"}, {"Accept", "application/json"}, {"Authorization", "Bearer 1"}, {"Content-Encoding", "identity"}, {},
		} {
			wait.Go(func() {
				if a := w.infer(w.Context(), input("", float64(i)), headers...); !right(a, "", float64(i)) {
					w.Errorf("%q: %+v", headers, a)
				}
			})
			synctest.Wait()
		}
		wait.Wait()
		if got := m.sizes(); got != "1 2 1 1 1 1" {
			w.Errorf("batches of %s rows, want 1 2 1 1 1 1", got)
		}
		if got := m.headers[4].Get("Authorization") + m.headers[3].Get("Authorization"); got != "Bearer 1" {
			w.Errorf("the token of a request became %q", got)
		}
	})
}

// TestMalformed checks that only the malformed request is refused, before it waits.
func TestMalformed(t *testing.T) {
	start(t, batched, func(w *world) {
		m := &model{took: constant(10 * ms)}
		w.replicas(m, 1, 0, "a")
		var wait sync.WaitGroup
		for i := range 4 {
			wait.Go(func() {
				if a := w.infer(w.Context(), input("", float64(i))); !right(a, "", float64(i)) {
					w.Errorf("%+v", a)
				}
			})
			synctest.Wait()
			for _, bad := range []struct{ body, length, want string }{
				{`{"inputs":[{"name":"x","shape":[2,1],"datatype":"FP32","data":[1]}]}`, "", "inputs[0]"},
				{`{"inputs":[{"name":"x","shape":[1,1],"datatype":"FP32","data":[1]}`, "", ""},
				{input("", 1), "100000", "the body has"},
				{"", "", ""},
			} {
				headers := []string{}
				if bad.length != "" {
					headers = []string{oip.HeaderName, bad.length}
				}
				if a := w.infer(w.Context(), bad.body, headers...); a.status != 400 || a.reason != reasonBadRequest || !strings.Contains(a.body, bad.want) {
					w.Errorf("%q: %+v", bad.body, a)
				}
			}
		}
		wait.Wait()
		if got := m.sizes(); got != "1 3" {
			w.Errorf("batches of %s rows, want 1 3", got)
		}
	})
}

// TestFailedBatchIsHalved checks that a request that its model refuses fails alone.
func TestFailedBatchIsHalved(t *testing.T) {
	start(t, batched, func(w *world) {
		m := &model{took: constant(10 * ms), fails: func(rows []float64) int {
			for _, v := range rows {
				if v == 6 {
					return http.StatusBadRequest
				}
			}
			return 0
		}}
		w.replicas(m, 1, 0, "a")
		var wait sync.WaitGroup
		for i := range 9 {
			wait.Go(func() {
				a := w.infer(w.Context(), input("", float64(i)))
				if i == 6 && (a.status != 400 || !strings.Contains(a.body, "no")) || i != 6 && !right(a, "", float64(i)) {
					w.Errorf("request %d: %+v", i, a)
				}
			})
			synctest.Wait()
		}
		wait.Wait()
		if got := m.sizes(); got != "1 8 4 4 2 2 1 1" && got != "1 8 4 4 2 1 1 2" {
			w.Errorf("batches of %s rows", got)
		}
	})
}

// TestLargeAnswerIsHalved checks that requests whose answers are together more than the gateway takes are sent in smaller batches, though they may not be
// sent again after a failure: it is no failure of the replica.
func TestLargeAnswerIsHalved(t *testing.T) {
	f := batched
	f.MaxBytes, f.MaxBody = 10<<10, 10<<10
	start(t, f, func(w *world) {
		m := &model{took: constant(10 * ms)}
		w.replicas(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			m.ServeHTTP(rw, r)
			m.mu.Lock()
			rows := len(m.batches[len(m.batches)-1])
			m.mu.Unlock()
			_, _ = rw.Write(bytes.Repeat([]byte(" "), rows*2<<10))
		}), 1, 0, "a")
		var wait sync.WaitGroup
		for i := range 9 {
			wait.Go(func() {
				if a := w.infer(w.Context(), input("", float64(i))); !right(a, "", float64(i)) {
					w.Errorf("request %d: %+v", i, a)
				}
			})
			synctest.Wait()
		}
		wait.Wait()
		if got := m.sizes(); got != "1 8 4 4" {
			w.Errorf("batches of %s rows", got)
		}
	})
}

// TestBatchWithoutBudget checks that a failing batch is not retried endlessly.
func TestBatchWithoutBudget(t *testing.T) {
	start(t, batched, func(w *world) {
		m := &model{took: constant(10 * ms), fails: func([]float64) int { return http.StatusServiceUnavailable }}
		w.replicas(m, 1, 0, "a")
		var wait sync.WaitGroup
		var statuses sync.Map
		for i := range 41 {
			wait.Go(func() {
				a := w.infer(w.Context(), input("", float64(i)))
				n, _ := statuses.LoadOrStore(a.status, new(atomic.Int32))
				n.(*atomic.Int32).Add(1)
			})
			synctest.Wait()
		}
		wait.Wait()
		count := 0
		statuses.Range(func(status, n any) bool {
			if s := status.(int); s != http.StatusBadGateway && s != http.StatusServiceUnavailable {
				w.Errorf("status %d", s)
			}
			count += int(n.(*atomic.Int32).Load())
			return true
		})
		if count != 41 || len(m.batches) > 40 {
			w.Errorf("%d answers after %d batches", count, len(m.batches))
		}
		if l := w.gateway.Load(resnet); l.Waiting+l.InFlight > 0 {
			w.Errorf("%+v", l)
		}
	})
}

// TestBatchOfDeadReplica checks that the requests of a batch are sent to another replica if theirs dies.
func TestBatchOfDeadReplica(t *testing.T) {
	start(t, idempotent(batched), func(w *world) {
		m := &model{took: constant(10 * ms)}
		var dead atomic.Bool
		die := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if dead.Load() {
				panic(http.ErrAbortHandler)
			}
			m.ServeHTTP(rw, r)
		})
		w.replicas(die, 1, 0, "a")
		var wait sync.WaitGroup
		for i := range 9 {
			wait.Go(func() {
				if a := w.infer(w.Context(), input("", float64(i))); !right(a, "", float64(i)) {
					w.Errorf("%+v", a)
				}
			})
			synctest.Wait()
		}
		w.network.serve(w.T, "b:80", m)
		dead.Store(true)
		if err := w.gateway.SetReplicas(resnet, []Replica{{ID: "a", Address: "a:80"}, {ID: "b", Address: "b:80"}}); err != nil {
			w.Fatal(err)
		}
		wait.Wait()
		if got := m.sizes(); !strings.HasPrefix(got, "1 ") || w.gateway.Load(resnet).Failed > 0 {
			w.Errorf("batches of %s rows, %+v", got, w.gateway.Load(resnet))
		}
	})
}

// TestClientsOfBatchLeave checks that a client that disconnects does not end the batch for the others, and that a batch without clients is given up.
func TestClientsOfBatchLeave(t *testing.T) {
	start(t, batched, func(w *world) {
		m := &model{took: constant(time.Second)}
		w.replicas(m, 1, 0, "a")
		var wait sync.WaitGroup
		leaving, leave := context.WithCancel(w.Context())
		for i := range 4 {
			ctx := w.Context()
			if i == 1 {
				ctx = leaving
			}
			wait.Go(func() {
				if a := w.infer(ctx, input("", float64(i))); i != 1 && !right(a, "", float64(i)) {
					w.Errorf("%+v", a)
				}
			})
			synctest.Wait()
		}
		time.Sleep(1500 * ms) // while the batch of three is executing
		leave()
		wait.Wait()
		if got := m.sizes(); got != "1 3" {
			w.Errorf("batches of %s rows, want 1 3", got)
		}
		leaving, leave = context.WithCancel(w.Context())
		for range 3 {
			wait.Go(func() { w.infer(leaving, input("", 1)) })
			synctest.Wait()
		}
		time.Sleep(1500 * ms)
		leave()
		synctest.Wait()
		if l := w.gateway.Load(resnet); l.InFlight+l.Waiting > 0 || l.Gone != 3 {
			w.Errorf("%+v", l)
		}
		wait.Wait()
	})
}

// TestBinaryBatch checks tensors of the binary extension.
func TestBinaryBatch(t *testing.T) {
	start(t, batched, func(w *world) {
		busy := make(chan bool, 1)
		w.replicas(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { // returns its inputs as outputs
			body, _ := io.ReadAll(r.Body)
			length, _ := strconv.Atoi(r.Header.Get(oip.HeaderName))
			if len(busy) == 0 {
				busy <- true
				time.Sleep(10 * ms)
			}
			head := bytes.Replace(body[:length], []byte("inputs"), []byte("outputs"), 1)
			rw.Header().Set("Content-Type", "application/octet-stream")
			rw.Header().Set(oip.HeaderName, strconv.Itoa(len(head)))
			_, _ = rw.Write(append(head, body[length:]...))
		}), 1, 0, "a")
		var wait sync.WaitGroup
		for i := range 4 {
			wait.Go(func() {
				head := fmt.Sprintf(`{"id":"%d","inputs":[{"name":"x","shape":[1,4],"datatype":"UINT8","parameters":{"binary_data_size":4}}]}`, i)
				data := fmt.Sprintf("%d%d%d%d", i, i, i, i)
				a := w.infer(w.Context(), head+data, oip.HeaderName, strconv.Itoa(len(head)))
				if n, _ := strconv.Atoi(a.header.Get(oip.HeaderName)); a.status != 200 || n == 0 || a.body[n:] != data || !strings.Contains(a.body, fmt.Sprintf(`"id":"%d"`, i)) {
					w.Errorf("request %d: %+v", i, a)
				}
			})
			synctest.Wait()
		}
		wait.Wait()
	})
}

// TestDeadlineInMessage checks that the timeout in a message, in microseconds, is the deadline of a request without a header for it.
func TestDeadlineInMessage(t *testing.T) {
	start(t, batched, func(w *world) {
		w.replicas(&model{took: constant(time.Second)}, 1, time.Second, "a")
		var wait sync.WaitGroup
		wait.Go(func() { w.infer(w.Context(), input("", 1)) })
		synctest.Wait()
		late := strings.Replace(input("", 2), "{", `{"parameters":{"timeout":500000},`, 1)
		if a := w.infer(w.Context(), late); a.status != 429 || a.reason != reasonLate || a.took > ms {
			w.Errorf("%+v", a)
		}
		wait.Wait()
	})
}

// TestBatchOverload sends twice as many requests as a replica can serve in full batches. Accepted requests are answered in time, and nearly as many as
// can be served are accepted.
func TestBatchOverload(t *testing.T) {
	latency := func(n int) time.Duration { return 10*ms + time.Duration(n)*5*ms } // a batch of 8 takes 50 ms: 160 per second
	start(t, Function{Protocol: OIP, MaxBatch: 8, SLO: 200 * ms}, func(w *world) {
		w.network.serve(w.T, "a:80", &model{took: latency})
		if err := w.gateway.SetReplicas(resnet, []Replica{{ID: "a", Address: "a:80", BatchLatency: latency}}); err != nil {
			w.Fatal(err)
		}
		var wait sync.WaitGroup
		var inTime, late atomic.Int32
		for i := range 3200 { // 320 per second
			wait.Go(func() {
				switch a := w.infer(w.Context(), input("", float64(i))); {
				case a.status == 200 && a.took <= 200*ms:
					inTime.Add(1)
				case a.status == 200:
					late.Add(1)
				}
			})
			time.Sleep(3125 * time.Microsecond)
		}
		wait.Wait()
		if inTime.Load() < 1520 || late.Load() > 0 {
			w.Errorf("%d in time, %d late; want at least 95 %% of 1,600 that can be served", inTime.Load(), late.Load())
		}
	})
}

// TestFirstByteCounts checks that with the protocol OpenAI the deadline applies to the first byte.
func TestFirstByteCounts(t *testing.T) {
	start(t, Function{Protocol: OpenAI, SLO: 200 * ms}, func(w *world) {
		first := atomic.Int64{}
		w.replicas(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body) // otherwise the server does not notice that the client disconnects
			select {
			case <-time.After(time.Duration(first.Load())):
			case <-r.Context().Done():
				return
			}
			for range 10 {
				_, _ = io.WriteString(rw, "data: x\n\n")
				_ = http.NewResponseController(rw).Flush()
				time.Sleep(100 * ms)
			}
		}), 2, 0, "a")
		first.Store(int64(50 * ms))
		for range 3 {
			a := w.ask(w.Context(), "prompt", "X-Slo-Ttft-Ms", "100")
			if a.status != 200 || a.took != 1050*ms || strings.Count(a.body, "data") != 10 || a.err != nil {
				w.Errorf("%+v", a)
			}
		}
		if l := w.gateway.Load(resnet); l.InTime != 3 || l.P99 > 51*ms {
			w.Errorf("%+v", l)
		}
		first.Store(int64(300 * ms))
		if a := w.ask(w.Context(), "prompt", "X-Slo-Ttft-Ms", "100"); a.status != 504 || a.took != 100*ms {
			w.Errorf("%+v", a)
		}
	})
}

// TestQueueTime checks that Server-Timing contains the time for which a request waited for a replica, without the time of the replica that answered its
// batch, or of one that failed before.
func TestQueueTime(t *testing.T) {
	start(t, idempotent(batched), func(w *world) {
		w.replicas(&model{took: constant(100 * ms)}, 1, 0, "a")
		var wait sync.WaitGroup
		for i := range 3 { // one alone, and then two as a batch
			wait.Go(func() {
				a := w.ask(w.Context(), input(fmt.Sprint(i), 1), "Path", inferPath)
				if want := fmt.Sprintf("queue;dur=%d.0", (a.took - 100*ms).Milliseconds()); a.status != 200 || a.header.Get("Server-Timing") != want {
					w.Errorf("want %s: %+v", want, a)
				}
			})
			synctest.Wait()
		}
		wait.Wait()
	})
	start(t, Function{Idempotent: true}, func(w *world) {
		dead := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			time.Sleep(100 * ms)
			panic(http.ErrAbortHandler)
		})
		w.network.serve(w.T, "a:80", dead)
		w.network.serve(w.T, "b:80", echo(0))
		if err := w.gateway.SetReplicas(resnet, []Replica{{ID: "a", Address: "a:80"}, {ID: "b", Address: "b:80"}}); err != nil {
			w.Fatal(err)
		}
		if a := w.ask(w.Context(), "input"); a.status != 200 || a.took != 100*ms || a.header.Get("Server-Timing") != "queue;dur=0.0" {
			w.Errorf("%+v", a)
		}
	})
}

// TestLengthOfBatchedCall checks that a client does not get the Content-Length of the response to its batch.
func TestLengthOfBatchedCall(t *testing.T) {
	r := httptest.NewRecorder()
	e := &exchange{writer: r, request: httptest.NewRequest(http.MethodPost, inferMethod, nil), grpc: true}
	header := http.Header{"Content-Length": {"100"}, "X-Mine": {"1"}}
	e.pass(&item{}, &answered{status: 200, header: header, message: &oip.Message{Segments: [][]byte{{1, 2}}}})
	if got := r.Result(); got.Header.Get("Content-Length") != "" || got.Header.Get("X-Mine") != "1" || r.Body.Len() != grpcPrefix+2 {
		t.Errorf("%v, %d bytes", got.Header, r.Body.Len())
	}
	if header.Get("Content-Length") == "" {
		t.Error("the header of the other clients has changed")
	}
}

// TestPoison checks that a request that always fails its batch does not cost the others their answers, however many such requests come. Where the failure
// may be the replica's, so that the retries have a budget, it is one request of 320.
func TestPoison(t *testing.T) {
	const rounds, size, poison = 400, 8, -1
	for name, c := range map[string]struct {
		every  int // rounds
		fails  func(w http.ResponseWriter)
		status int // that the client of the poison gets
	}{
		"error":      {1, func(w http.ResponseWriter) { http.Error(w, "no", http.StatusInternalServerError) }, http.StatusInternalServerError},
		"refusal":    {40, func(w http.ResponseWriter) { http.Error(w, "no", http.StatusServiceUnavailable) }, http.StatusServiceUnavailable},
		"broken off": {40, func(http.ResponseWriter) { panic(http.ErrAbortHandler) }, http.StatusBadGateway},
	} {
		t.Run(name, func(t *testing.T) {
			start(t, idempotent(batched), func(w *world) {
				m := &model{took: constant(ms)}
				w.replicas(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
					body, _ := io.ReadAll(r.Body)
					r.Body = io.NopCloser(bytes.NewReader(body))
					if strings.Contains(string(body), fmt.Sprint(poison)) {
						time.Sleep(ms)
						c.fails(rw)
						return
					}
					m.ServeHTTP(rw, r)
				}), 1, 0, "a", "b")
				var innocent int
				var lost, wrong atomic.Int32
				for round := range rounds {
					var wait sync.WaitGroup
					for i := range size {
						if i == round%size && round%c.every == 0 {
							wait.Go(func() {
								if a := w.infer(w.Context(), input("", poison)); a.status != c.status {
									wrong.Add(1)
								}
							})
							continue
						}
						innocent++
						wait.Go(func() {
							if value := float64(size*round + i); !right(w.infer(w.Context(), input("", value)), "", value) {
								lost.Add(1)
							}
						})
					}
					wait.Wait()
					time.Sleep(100 * ms)
				}
				t.Logf("%d batches for %d rounds", len(m.batches), rounds)
				if int(lost.Load())*1000 > innocent || wrong.Load() > 0 {
					w.Errorf("%d of %d innocent requests were not answered; %d poisonous ones got another status", lost.Load(), innocent, wrong.Load())
				}
			})
		})
	}
}
