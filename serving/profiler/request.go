package profiler

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/serving/load"
	"github.com/gshare-dev/gshare/serving/oip"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Request is the request that a profile sends to a server again and again.
type Request struct {
	Method string      `json:"method"`
	Path   string      `json:"path"`
	Header http.Header `json:"header,omitempty"`
	Body   []byte      `json:"body,omitempty"`
	// BodyFile is the path of a file that holds the body instead, on the machine that sends the request.
	BodyFile string `json:"bodyFile,omitempty"`
	Stream   bool   `json:"stream,omitempty"` // the answer is a stream of tokens, and the time to the first one counts

	// OIP says that the body belongs to the Open Inference Protocol; it is repeated for requests of several rows. If it is empty, a body of
	// zeros is made from the metadata of the model.
	OIP bool `json:"oip,omitempty"`
}

// SetDefaults sets an empty method and path. With the Open Inference Protocol they are those of the given model; otherwise the path is / and the
// method GET, or POST if there is a body. It returns an error if the path does not begin with / or is not valid in a URL.
func (r *Request) SetDefaults(model string) error {
	method, path := http.MethodGet, "/"
	switch {
	case r.OIP:
		method, path = http.MethodPost, "/v2/models/"+model+infer
	case len(r.Body) > 0 || r.BodyFile != "":
		method = http.MethodPost
	}
	r.Method, r.Path = cmp.Or(r.Method, method), cmp.Or(r.Path, path)
	if !strings.HasPrefix(r.Path, "/") {
		return share.Invalid("path", "%.64q does not begin with /", r.Path)
	}
	if _, err := url.Parse("http://server" + r.Path); err != nil {
		return share.Invalid("path", "%.64q is none of a URL: %v", r.Path, errors.Unwrap(err))
	}
	return nil
}

// RequestOf returns the request of a profile to a function, with defaults. A body in a ConfigMap is the file folder/<ConfigMap>/<key>.
func RequestOf(r *api.ProfileRequest, f *api.GPUFunction, folder string) (Request, error) {
	made := Request{Method: r.Method, Path: r.Path, Header: http.Header{}, Body: []byte(r.Body), Stream: r.Stream, OIP: f.Spec.Protocol == api.OIP}
	for _, h := range r.Headers {
		made.Header.Set(h.Name, h.Value)
	}
	if r.BodyFrom != nil {
		made.BodyFile = filepath.Join(folder, r.BodyFrom.ConfigMap, r.BodyFrom.Key)
	}
	if r.Body != "" || r.BodyFrom != nil || made.OIP {
		made.Header.Set("Content-Type", cmp.Or(r.ContentType, "application/json"))
	}
	err := made.SetDefaults(f.Name)
	return made, err
}

// maxBody is the greatest length in bytes of a body read from a file: that of a ConfigMap.
const maxBody = 1 << 20

// readBody returns the request with the body from its file.
func (r Request) readBody() (Request, error) {
	if r.BodyFile == "" {
		return r, nil
	}
	file, err := os.Open(r.BodyFile)
	if err != nil {
		return r, err
	}
	defer file.Close()
	if r.Body, err = io.ReadAll(io.LimitReader(file, maxBody+1)); err == nil && len(r.Body) > maxBody {
		err = fmt.Errorf("%s: more than %d bytes", r.BodyFile, maxBody)
	}
	r.BodyFile = ""
	return r, err
}

// Client sends a Request to one server.
type Client struct {
	request Request
	url     string
	client  *http.Client

	mu     sync.Mutex // guards the fields below
	bodies map[int]*load.HTTP
}

// infer is the end of the Open Inference Protocol paths that run a model.
const infer = "/infer"

// NewClient returns a client for the server at an address. If the request needs it, it asks the server for the metadata of its model. The error is
// a *FailedError if the server does not answer, or answers with a server error, because it may be ending. Close ends the client.
func NewClient(ctx context.Context, r Request, address string) (*Client, error) {
	c := &Client{request: r, url: "http://" + address, client: load.NewHTTPClient(), bodies: map[int]*load.HTTP{}}
	if r.OIP && len(r.Body) == 0 {
		var err error
		if c.request.Body, err = c.zeros(ctx); err != nil {
			return nil, err
		}
	}
	if r.OIP {
		one, err := c.parse()
		if err == nil && one.Alone() != nil {
			err = one.Alone()
		}
		if err == nil && one.Rows != 1 {
			err = fmt.Errorf("has %d rows", one.Rows)
		}
		if err != nil {
			return nil, fmt.Errorf("the request is to be one row of the Open Inference Protocol: %w", err)
		}
	}
	return c, nil
}

// Close closes the connections.
func (c *Client) Close() { c.client.CloseIdleConnections() }

// Infer sends the request with the given number of rows. Only the Open Inference Protocol allows more than one.
func (c *Client) Infer(ctx context.Context, rows int) load.Answer {
	h, err := c.build(rows)
	if err != nil {
		return load.Answer{Status: err.Error()}
	}
	return h.Send(ctx, 0)
}

// build returns the request with the given number of rows. It joins the rows once per number.
func (c *Client) build(rows int) (*load.HTTP, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if h := c.bodies[rows]; h != nil {
		return h, nil
	}
	h := &load.HTTP{Method: c.request.Method, URL: c.url + c.request.Path, Header: maps.Clone(c.request.Header), Body: c.request.Body,
		Stream: c.request.Stream, Client: c.client}
	if rows > 1 {
		one, err := c.parse()
		if err != nil {
			return nil, err
		}
		var all []*oip.Request
		for range rows {
			all = append(all, one)
		}
		batch, _ := oip.Merge(all)
		if batch.Rows != int64(rows) {
			return nil, fmt.Errorf("a batch of %d is longer than a message may be", rows)
		}
		if h.Body, err = io.ReadAll(batch.Reader()); err != nil {
			return nil, err
		}
		if batch.JSONLength < batch.Len() {
			h.Header.Set(oip.HeaderName, strconv.Itoa(batch.JSONLength))
		}
	}
	c.bodies[rows] = h
	return h, nil
}

func (c *Client) parse() (*oip.Request, error) {
	length, err := oip.JSONLength(c.request.Header, len(c.request.Body))
	if err != nil {
		return nil, err
	}
	return oip.ParseRequest(c.request.Body, length)
}

// maxMetadata is the greatest length in bytes of an answer that describes a model.
const maxMetadata = 1 << 20

// zeros returns a request with one row of zeros, made from the metadata of the model.
func (c *Client) zeros(ctx context.Context) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	path := strings.TrimSuffix(c.request.Path, infer)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url+path, nil)
	if err != nil {
		return nil, err
	}
	response, err := c.client.Do(request)
	if err != nil {
		return nil, &FailedError{err.Error()}
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxMetadata))
	if err != nil {
		return nil, &FailedError{fmt.Sprintf("GET %s: %v", path, err)}
	}
	if response.StatusCode == http.StatusOK {
		return zeros(text)
	}
	err = fmt.Errorf("GET %s: %s: %.200s", path, response.Status, bytes.TrimSpace(text))
	if response.StatusCode >= http.StatusInternalServerError {
		err = &FailedError{err.Error()}
	}
	return nil, err
}

// tensor is an input of a model, in its metadata and in a request.
type tensor struct {
	Name     string `json:"name"`
	Datatype string `json:"datatype"`
	Shape    []int  `json:"shape"`
	Data     []any  `json:"data,omitempty"`
}

// maxElements is the greatest number of elements of a tensor made from metadata.
const maxElements = 1 << 24

// zeros returns a request with one row of zeros for a model with the given metadata. Dimensions that the model leaves open are 1.
func zeros(metadata []byte) ([]byte, error) {
	var model struct {
		Inputs []tensor `json:"inputs"`
	}
	if err := json.Unmarshal(metadata, &model); err != nil {
		return nil, fmt.Errorf("metadata of the model: %w", err)
	}
	if len(model.Inputs) == 0 {
		return nil, fmt.Errorf("the metadata of the model name no inputs")
	}
	for i := range model.Inputs {
		t := &model.Inputs[i]
		elements := 1
		for d := range t.Shape {
			if d == 0 || t.Shape[d] < 1 {
				t.Shape[d] = 1
			}
			if elements *= t.Shape[d]; elements > maxElements {
				return nil, fmt.Errorf("input %.64q of the model has too many elements to make up", t.Name)
			}
		}
		zero := any(0)
		switch t.Datatype {
		case "BOOL":
			zero = false
		case "BYTES":
			zero = ""
		}
		t.Data = make([]any, elements)
		for n := range t.Data {
			t.Data[n] = zero
		}
	}
	return json.Marshal(map[string]any{"inputs": model.Inputs})
}
