// Package server serves an engine over the protocols of inference servers: the Open Inference Protocol over REST and gRPC with the extensions
// for binary tensors, the model repository and shared memory, the completions and embeddings of OpenAI, and plain HTTP.
package server

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/gshare-dev/gshare/cmd/gshare-model/internal/model"
)

// serverName is the name of the server in its metadata.
const serverName = "gshare-model"

// outputName is the name of the model's only output: for each row a checksum of type UINT32.
const outputName = "checksum"

// maxBody is the largest request in bytes.
const maxBody = 1 << 30

// Config holds what a server serves.
type Config struct {
	Engine  *model.Engine
	Inputs  []Tensor // inputs of the model; their shapes lack the batch dimension
	Faults  Faults   // that clients may ask for; nil: none
	Version string   // of the program
}

// Server answers the requests of all protocols.
type Server struct {
	Config
	http.Handler
	stopping atomic.Bool
	regions  regions
	metrics  metrics
}

// New returns a server.
func New(c Config) *Server {
	s := &Server{Config: c, metrics: newMetrics(c.Engine)}
	mux := http.NewServeMux()
	handle := func(pattern string, h func(http.ResponseWriter, *http.Request) error) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			r.Body = http.MaxBytesReader(w, r.Body, maxBody)
			switch err := h(w, r); {
			case err != nil && strings.HasPrefix(r.URL.Path, "/v1/"):
				writeOpenAIError(w, err)
			case err != nil:
				writeError(w, err)
			}
		})
	}
	s.handleREST(handle)
	s.handleMemory(handle)
	s.handleOpenAI(handle)
	handle("POST /{$}", s.plain)
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.metrics.registry, promhttp.HandlerOpts{}))
	s.Handler = s.metrics.count(c.Faults.handler(grpcService{s}.withGRPC(mux)))
	return s
}

// Stop makes the server report that it is not ready, so that clients go elsewhere.
func (s *Server) Stop() { s.stopping.Store(true) }

// ready reports whether requests can be served.
func (s *Server) ready() bool { return !s.stopping.Load() && s.Engine.Loaded() }

// statusError is an error with the HTTP status of its answer.
type statusError struct {
	status int
	text   string
}

func (e *statusError) Error() string { return e.text }

func errorf(status int, format string, arguments ...any) error {
	return &statusError{status, fmt.Sprintf(format, arguments...)}
}

// statusOf returns the HTTP status for an error.
func statusOf(err error) int {
	var own *statusError
	var batch *model.BatchError
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &own):
		return own.status
	case errors.As(err, &batch):
		return http.StatusBadRequest
	case errors.As(err, &tooLarge):
		return http.StatusRequestEntityTooLarge
	case errors.Is(err, model.ErrNotLoaded):
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}

func writeError(w http.ResponseWriter, err error) {
	writeJSON(w, statusOf(err), map[string]string{"error": err.Error()})
}

func writeJSON(w http.ResponseWriter, status int, content any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(content) // fails only if the client has disconnected
}

// known returns an error unless the server has this model in this version. An empty version stands for any.
func (s *Server) known(name, version string) error {
	table := s.Engine.Table
	if name != table.Name || (version != "" && version != table.Version) {
		return errorf(http.StatusNotFound, "unknown model %q, version %q", name, version)
	}
	return nil
}

// wanted is an output that a request names, and the shared memory to write it to, if any.
type wanted struct {
	name   string
	memory *span
}

// infer runs a batch and returns its output.
func (s *Server) infer(ctx context.Context, inputs []*tensor, outputs []wanted) (*tensor, error) {
	rows, err := s.joinRows(inputs)
	if err != nil {
		return nil, err
	}
	for _, o := range outputs {
		if o.name != outputName {
			return nil, errorf(http.StatusBadRequest, "unknown output %q: the model has the output %q", o.name, outputName)
		}
	}
	sums, err := s.run(ctx, rows)
	if err != nil {
		return nil, err
	}
	result := &tensor{Tensor: Tensor{outputName, "UINT32", []int64{int64(len(sums)), 1}}}
	for _, sum := range sums {
		result.data = binary.LittleEndian.AppendUint32(result.data, sum)
	}
	for _, o := range outputs {
		if o.memory != nil {
			if err := s.regions.write(*o.memory, result.data); err != nil {
				return nil, err
			}
		}
	}
	return result, nil
}

// run runs a batch and counts it in the metrics.
func (s *Server) run(ctx context.Context, rows [][]byte) ([]uint32, error) {
	done := s.metrics.begin(len(rows))
	sums, err := s.Engine.Infer(ctx, rows)
	done(err)
	return sums, err
}

// joinRows checks the inputs and returns the bytes of each row: the row of every input, concatenated in the order of the model's inputs.
func (s *Server) joinRows(inputs []*tensor) ([][]byte, error) {
	if len(inputs) != len(s.Inputs) {
		return nil, errorf(http.StatusBadRequest, "the request has %d inputs, the model %d", len(inputs), len(s.Inputs))
	}
	var joined [][]byte
	for i, want := range s.Inputs {
		at := slices.IndexFunc(inputs, func(t *tensor) bool { return t.Name == want.Name })
		if at < 0 {
			return nil, errorf(http.StatusBadRequest, "the input %q is missing", want.Name)
		}
		in := inputs[at]
		if in.Datatype != want.Datatype || !fits(in.Shape, want.Shape) {
			return nil, errorf(http.StatusBadRequest, "input %q is %s %v, the model wants %s [-1 %s]", in.Name, in.Datatype, in.Shape,
				want.Datatype, strings.Trim(fmt.Sprint(want.Shape), "[]"))
		}
		if most := s.Engine.Table.MaxBatch(); in.Shape[0] > int64(most) {
			return nil, &model.BatchError{Size: int(in.Shape[0]), Max: most}
		}
		rows, err := in.rows()
		if err != nil {
			return nil, errorf(http.StatusBadRequest, "%v", err)
		}
		if i == 0 {
			joined = rows
			continue
		}
		if len(rows) != len(joined) {
			return nil, errorf(http.StatusBadRequest, "inputs of %d and %d rows", len(joined), len(rows))
		}
		for k := range rows {
			joined[k] = append(joined[k][:len(joined[k]):len(joined[k])], rows[k]...)
		}
	}
	return joined, nil
}

// fits reports whether a shape is the batch dimension followed by the wanted dimensions, of which -1 stands for any.
func fits(shape, want []int64) bool {
	if len(shape) != len(want)+1 {
		return false
	}
	for i, d := range want {
		if d != -1 && d != shape[i+1] {
			return false
		}
	}
	return true
}

// plain runs a batch of one row, which is the body of the request.
func (s *Server) plain(w http.ResponseWriter, r *http.Request) error {
	body, err := readAll(r)
	if err != nil {
		return err
	}
	sums, err := s.run(r.Context(), [][]byte{body})
	if err == nil {
		writeJSON(w, http.StatusOK, map[string]any{"model": s.Engine.Table.Name, outputName: sums[0]})
	}
	return err
}
