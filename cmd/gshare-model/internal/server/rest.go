package server

import (
	"encoding/binary"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
)

// jsonLengthHeader is the header with the length of the JSON part of a body. The binary tensors follow it.
const jsonLengthHeader = "Inference-Header-Content-Length"

// extensions lists the protocol's extensions that the server supports.
var extensions = []string{"binary_tensor_data", "model_repository", "system_shared_memory"}

type handlers func(pattern string, h func(http.ResponseWriter, *http.Request) error)

// handleREST registers the handlers of the Open Inference Protocol over REST.
func (s *Server) handleREST(handle handlers) {
	handle("GET /v2/health/live", func(w http.ResponseWriter, _ *http.Request) error { return nil })
	for _, path := range []string{"/v2/health/ready", "/health"} { // the second one is vLLM's
		handle("GET "+path, func(http.ResponseWriter, *http.Request) error { return s.checkReady() })
	}
	handle("GET /v2", func(w http.ResponseWriter, _ *http.Request) error {
		writeJSON(w, http.StatusOK, map[string]any{"name": serverName, "version": s.Version, "extensions": extensions})
		return nil
	})
	for _, path := range []string{"/v2/models/{model}", "/v2/models/{model}/versions/{version}"} {
		handle("GET "+path, func(w http.ResponseWriter, r *http.Request) error {
			if err := s.known(r.PathValue("model"), r.PathValue("version")); err != nil {
				return err
			}
			writeJSON(w, http.StatusOK, s.metadata())
			return nil
		})
		handle("GET "+path+"/ready", func(w http.ResponseWriter, r *http.Request) error {
			if err := s.known(r.PathValue("model"), r.PathValue("version")); err != nil {
				return err
			}
			return s.checkReady()
		})
		handle("POST "+path+"/infer", s.inferREST)
	}
	handle("POST /v2/repository/index", func(w http.ResponseWriter, r *http.Request) error {
		var request struct {
			Ready bool `json:"ready"`
		}
		if err := decode(r, &request); err != nil {
			return err
		}
		writeJSON(w, http.StatusOK, s.index(request.Ready))
		return nil
	})
	handle("POST /v2/repository/models/{model}/load", func(w http.ResponseWriter, r *http.Request) error {
		if err := s.known(r.PathValue("model"), ""); err != nil {
			return err
		}
		return s.Engine.Load(r.Context())
	})
	handle("POST /v2/repository/models/{model}/unload", func(w http.ResponseWriter, r *http.Request) error {
		if err := s.known(r.PathValue("model"), ""); err != nil {
			return err
		}
		return s.Engine.Unload(r.Context())
	})
}

func (s *Server) checkReady() error {
	if !s.ready() {
		return errorf(http.StatusServiceUnavailable, "not ready")
	}
	return nil
}

// modelMetadata describes a model.
type modelMetadata struct {
	Name     string   `json:"name"`
	Versions []string `json:"versions"`
	Platform string   `json:"platform"`
	Inputs   []Tensor `json:"inputs"`
	Outputs  []Tensor `json:"outputs"`
}

func (s *Server) metadata() modelMetadata {
	m := modelMetadata{
		s.Engine.Table.Name, []string{s.Engine.Table.Version}, "gshare_model", nil, []Tensor{{outputName, "UINT32", []int64{-1, 1}}},
	}
	for _, in := range s.Inputs {
		m.Inputs = append(m.Inputs, Tensor{in.Name, in.Datatype, append([]int64{-1}, in.Shape...)})
	}
	return m
}

// modelState is an entry of the repository.
type modelState struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	State   string `json:"state"`
	Reason  string `json:"reason"`
}

// index lists the models of the repository, or only those that are ready.
func (s *Server) index(ready bool) []modelState {
	m := modelState{s.Engine.Table.Name, s.Engine.Table.Version, "READY", ""}
	if !s.Engine.Loaded() {
		if ready {
			return []modelState{}
		}
		m.State, m.Reason = "UNAVAILABLE", "unloaded"
	}
	return []modelState{m}
}

// parameters holds the parameters of the extensions for binary tensors and for shared memory.
type parameters struct {
	BinarySize   *int   `json:"binary_data_size,omitempty"`
	Binary       *bool  `json:"binary_data,omitempty"`
	BinaryOutput bool   `json:"binary_data_output,omitempty"`
	Region       string `json:"shared_memory_region,omitempty"`
	Size         int    `json:"shared_memory_byte_size,omitempty"`
	Offset       int    `json:"shared_memory_offset,omitempty"`
}

// span returns the span of shared memory that the parameters name, or nil if they name none.
func (p parameters) span() *span {
	if p.Region == "" {
		return nil
	}
	return &span{p.Region, p.Offset, p.Size}
}

type restTensor struct {
	Tensor
	Parameters *parameters     `json:"parameters,omitempty"`
	Data       json.RawMessage `json:"data,omitempty"`
}

type restRequest struct {
	ID         string       `json:"id"`
	Parameters parameters   `json:"parameters"`
	Inputs     []restTensor `json:"inputs"`
	Outputs    []struct {
		Name       string     `json:"name"`
		Parameters parameters `json:"parameters"`
	} `json:"outputs"`
}

type restResponse struct {
	Name    string       `json:"model_name"`
	Version string       `json:"model_version"`
	ID      string       `json:"id,omitempty"`
	Outputs []restTensor `json:"outputs"`
}

// inferREST runs the batch of a request whose body is JSON, which binary tensors may follow.
func (s *Server) inferREST(w http.ResponseWriter, r *http.Request) error {
	if err := s.known(r.PathValue("model"), r.PathValue("version")); err != nil {
		return err
	}
	text, rest, err := splitBody(r)
	if err != nil {
		return err
	}
	var request restRequest
	if err := json.Unmarshal(text, &request); err != nil {
		return errorf(http.StatusBadRequest, "%v", err)
	}
	var inputs []*tensor
	for i := range request.Inputs {
		var one *tensor
		if one, rest, err = s.input(&request.Inputs[i], rest); err != nil {
			return errorf(http.StatusBadRequest, "input %q: %v", request.Inputs[i].Name, err)
		}
		inputs = append(inputs, one)
	}
	if len(rest) > 0 {
		return errorf(http.StatusBadRequest, "%d bytes follow the tensors", len(rest))
	}
	outputs := make([]wanted, len(request.Outputs))
	binaryOutput := request.Parameters.BinaryOutput
	for i, o := range request.Outputs {
		outputs[i] = wanted{o.Name, o.Parameters.span()}
		if o.Parameters.Binary != nil {
			binaryOutput = *o.Parameters.Binary
		}
	}
	result, err := s.infer(r.Context(), inputs, outputs)
	if err != nil {
		return err
	}
	response := restResponse{s.Engine.Table.Name, s.Engine.Table.Version, request.ID, nil}
	if len(outputs) > 0 && outputs[0].memory != nil {
		m := outputs[0].memory
		p := &parameters{Region: m.region, Size: len(result.data), Offset: m.offset}
		response.Outputs = []restTensor{{Tensor: result.Tensor, Parameters: p}}
		writeJSON(w, http.StatusOK, response)
		return nil
	}
	return writeResult(w, response, result, binaryOutput)
}

// writeResult writes a response with its output, either in the JSON or as bytes that follow it.
func writeResult(w http.ResponseWriter, response restResponse, result *tensor, isBinary bool) error {
	out := restTensor{Tensor: result.Tensor}
	if !isBinary {
		values := make([]uint32, len(result.data)/4)
		for i := range values {
			values[i] = binary.LittleEndian.Uint32(result.data[4*i:])
		}
		var err error
		if out.Data, err = json.Marshal(values); err != nil {
			return err
		}
		response.Outputs = []restTensor{out}
		writeJSON(w, http.StatusOK, response)
		return nil
	}
	size := len(result.data)
	out.Parameters = &parameters{BinarySize: &size}
	response.Outputs = []restTensor{out}
	text, err := json.Marshal(response)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set(jsonLengthHeader, strconv.Itoa(len(text)))
	_, _ = w.Write(append(text, result.data...)) // fails only if the client has disconnected
	return nil
}

// splitBody returns the JSON part of a body and the binary part that follows it.
func splitBody(r *http.Request) (text, rest []byte, err error) {
	body, err := readAll(r)
	if err != nil {
		return nil, nil, err
	}
	header := r.Header.Get(jsonLengthHeader)
	if header == "" {
		return body, nil, nil
	}
	length, err := strconv.Atoi(header)
	if err != nil || length < 0 || length > len(body) {
		return nil, nil, errorf(http.StatusBadRequest, "%s: %q is no length within the body's %d bytes", jsonLengthHeader, header, len(body))
	}
	return body[:length], body[length:], nil
}

// input returns an input with its elements, and the rest of the binary part that it has not taken.
func (s *Server) input(in *restTensor, rest []byte) (*tensor, []byte, error) {
	t := &tensor{Tensor: in.Tensor}
	var p parameters
	if in.Parameters != nil {
		p = *in.Parameters
	}
	var err error
	switch {
	case p.span() != nil:
		t.data, err = s.regions.read(*p.span())
	case p.BinarySize != nil:
		if *p.BinarySize < 0 || *p.BinarySize > len(rest) {
			return nil, nil, io.ErrUnexpectedEOF
		}
		t.data, rest = rest[:*p.BinarySize], rest[*p.BinarySize:]
	default:
		t.data, err = fromJSON(in.Datatype, in.Data)
	}
	return t, rest, err
}

// readAll returns the body of a request.
func readAll(r *http.Request) ([]byte, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, errorf(statusOrBad(err), "read the request: %v", err)
	}
	return body, nil
}

// statusOrBad returns the HTTP status for an error in reading a request: 400 unless the error has one of its own.
func statusOrBad(err error) int {
	if status := statusOf(err); status != http.StatusInternalServerError {
		return status
	}
	return http.StatusBadRequest
}

// decode decodes a JSON body, which may be empty.
func decode(r *http.Request, to any) error {
	body, err := readAll(r)
	if err != nil || len(body) == 0 {
		return err
	}
	if err := json.Unmarshal(body, to); err != nil {
		return errorf(http.StatusBadRequest, "%v", err)
	}
	return nil
}
