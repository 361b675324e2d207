// Package server serves an engine over the protocols of inference servers: the Open Inference Protocol over REST and gRPC with the extensions
// for binary tensors, the model repository and shared memory, the completions and embeddings of OpenAI, and plain HTTP.
package server

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

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
	Faults  bool     // clients may ask for faults
	Version string   // of the program
}

// Server answers the requests of all protocols.
type Server struct {
	Config
	http.Handler
	stopping  atomic.Bool
	deadUntil atomic.Pointer[time.Time] // see checkAlive
	regions   regions
	metrics   metrics
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
	s.Handler = grpcService{s}.withGRPC(mux)
	if c.Faults {
		s.Handler = s.faults().handler(s.Handler)
	}
	s.Handler = s.metrics.count(s.Handler)
	return s
}

// Stop makes the server report that it is not ready, so that clients go elsewhere.
func (s *Server) Stop() { s.stopping.Store(true) }

// ready reports whether requests can be served.
func (s *Server) ready() bool {
	return !s.stopping.Load() && s.Engine.Loaded() && s.checkAlive() == nil
}

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
	if err := s.checkAlive(); err != nil {
		return nil, err
	}
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

// region is a region of the host's shared memory that a client has registered.
type region struct {
	Name   string `json:"name"`
	Key    string `json:"key"` // name given to shm_open
	Offset int    `json:"offset"`
	Size   int    `json:"byte_size"`
}

// span is a part of a region.
type span struct {
	region       string
	offset, size int
}

// regions are the registered regions by name.
type regions struct {
	mu     sync.Mutex
	byName map[string]region
}

// sharedMemory is the directory in which shm_open creates its files.
const sharedMemory = "/dev/shm"

// handleMemory registers the handlers of the protocol's extension for shared memory of the host.
func (s *Server) handleMemory(handle handlers) {
	const all, one = "/v2/systemsharedmemory", "/v2/systemsharedmemory/region/{region}"
	status := func(w http.ResponseWriter, r *http.Request) error {
		list, err := s.regions.list(r.PathValue("region"))
		if err == nil {
			writeJSON(w, http.StatusOK, list)
		}
		return err
	}
	unregister := func(_ http.ResponseWriter, r *http.Request) error {
		s.regions.unregister(r.PathValue("region"))
		return nil
	}
	handle("GET "+all+"/status", status)
	handle("GET "+one+"/status", status)
	handle("POST "+all+"/unregister", unregister)
	handle("POST "+one+"/unregister", unregister)
	handle("POST "+one+"/register", func(w http.ResponseWriter, r *http.Request) error {
		var request region
		if err := decode(r, &request); err != nil {
			return err
		}
		request.Name = r.PathValue("region")
		return s.regions.register(request)
	})
}

// register adds a region.
func (r *regions) register(added region) error {
	file, err := added.open(os.O_RDWR)
	if err != nil {
		return err
	}
	defer file.Close()
	status, err := file.Stat()
	if err != nil {
		return err
	}
	if added.Offset < 0 || added.Size < 1 || int64(added.Offset) > status.Size()-int64(added.Size) {
		return errorf(http.StatusBadRequest, "region %q: %d bytes from %d on are not in %s", added.Name, added.Size, added.Offset, added.Key)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, taken := r.byName[added.Name]; taken {
		return errorf(http.StatusBadRequest, "the region %q is already registered", added.Name)
	}
	if r.byName == nil {
		r.byName = map[string]region{}
	}
	r.byName[added.Name] = added
	return nil
}

// unregister removes a region, or all if the name is empty.
func (r *regions) unregister(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.byName, func(n string, _ region) bool { return name == "" || n == name })
}

// list returns a region, or all if the name is empty.
func (r *regions) list(name string) ([]region, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	found := []region{}
	for n, one := range r.byName {
		if name == "" || n == name {
			found = append(found, one)
		}
	}
	if name != "" && len(found) == 0 {
		return nil, errorf(http.StatusBadRequest, "no region %q is registered", name)
	}
	slices.SortFunc(found, func(a, b region) int { return cmp.Compare(a.Name, b.Name) })
	return found, nil
}

// find opens the file of a span's region, and returns the offset of the span in it.
func (r *regions) find(s span, flags int) (*os.File, int64, error) {
	r.mu.Lock()
	found, ok := r.byName[s.region]
	r.mu.Unlock()
	if !ok {
		return nil, 0, errorf(http.StatusBadRequest, "no region %q is registered", s.region)
	}
	if s.offset < 0 || s.size < 0 || s.offset > found.Size-s.size {
		return nil, 0, errorf(http.StatusBadRequest, "%d bytes from %d on are not in the region %q", s.size, s.offset, s.region)
	}
	file, err := found.open(flags)
	return file, int64(found.Offset) + int64(s.offset), err
}

// read returns the bytes of a span.
func (r *regions) read(s span) ([]byte, error) {
	file, at, err := r.find(s, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data := make([]byte, s.size)
	_, err = file.ReadAt(data, at)
	return data, err
}

// write writes bytes at the beginning of a span, which must have room for them.
func (r *regions) write(s span, data []byte) error {
	if len(data) > s.size {
		return errorf(http.StatusBadRequest, "%d bytes of output do not fit into %d bytes of the region %q", len(data), s.size, s.region)
	}
	file, at, err := r.find(s, os.O_RDWR)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = file.WriteAt(data, at)
	return err
}

// open opens the file of a region.
func (r region) open(flags int) (*os.File, error) {
	name := strings.TrimPrefix(r.Key, "/")
	if name == "" || strings.Contains(name, "/") || name == "." || name == ".." {
		return nil, errorf(http.StatusBadRequest, "region %q: %q is no key of shared memory", r.Name, r.Key)
	}
	file, err := os.OpenFile(filepath.Join(sharedMemory, name), flags, 0)
	if err != nil {
		return nil, errorf(http.StatusBadRequest, "region %q: %v", r.Name, err)
	}
	return file, nil
}
