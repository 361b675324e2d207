// Package oip merges inference requests of the Open Inference Protocol, version 2, into one request and splits the response, without
// decoding a tensor: it locates the data of each tensor in the bytes that arrived, checks that they hold what the shape says, and
// joins or cuts the bytes. docs/adr/0022-tensors-are-spliced.md has the reasons and the figures.
//
// A message is one of
//
//   - REST: the body of POST /v2/models/NAME/infer, JSON with tensors as arrays, flat or nested;
//   - REST with the binary extension: JSON, whose length the header Inference-Header-Content-Length gives, then the tensors whose
//     parameter binary_data_size says so, in their order;
//   - gRPC: a ModelInferRequest of inference.GRPCInferenceService, with tensors in raw_input_contents or as typed contents.
//
// ParseRequest and ParseModelInfer check a message and return what a queue wants to know of it. Merge joins requests of the same signature along
// the first dimension of their inputs. Batch.Split cuts the response by the rows of each request and gives it the request's own id.
//
// # What is refused
//
// Requests are hostile: no request can spoil another one of its batch by the way it is written. A malformed one is refused with an *Error, which
// names the field: not JSON or protocol buffers, a field twice or missing, data that do not fit their shape. A request that is well-formed and
// yet could be refused by the server, or that says something about the server's state, is never merged with others; Request.Alone says why.
// What a model makes of the values is beyond this package: if it refuses those of one request, the whole batch fails, and smaller ones have to
// be tried.
package oip

import (
	"io"
	"math"
	"net"
	"net/http"
	"slices"
	"strconv"
	"time"
)

// Bounds of a message.
const (
	maxTensors    = 256           // inputs, requested outputs, or outputs
	maxDimensions = 16            // of a shape
	maxMembers    = 64            // of a JSON object, entries of a gRPC map
	maxDepth      = 32            // of JSON values in parameters and in fields that the protocol does not know
	maxBody       = math.MaxInt32 // bytes of a message: protocol buffers have the same bound

	maxTimeout = math.MaxInt64 / 1000 // microseconds of the parameter timeout: about 292 years

	maxMerged = maxBody - 64*maxTensors // bytes of the requests of a batch, whose shapes may grow by some digits
)

// HeaderName is the HTTP header that gives the number of bytes of JSON before the binary tensors, of a request and of a response.
const HeaderName = "Inference-Header-Content-Length"

// Error is a refusal of a message. It is the fault of who wrote the message: a request is answered 400 (INVALID_ARGUMENT), a
// response of a server becomes 502 (INTERNAL).
type Error struct {
	Field   string // path of the field: "inputs[0].shape"; empty for the message as a whole
	Problem string // what is wrong, as the end of a sentence that begins with the field
}

func (e *Error) Error() string {
	if e.Field == "" {
		return "message " + e.Problem
	}
	return e.Field + " " + e.Problem
}

// Request is an inference request whose tensors are located. It refers to the bytes that it was parsed from, which must not change.
type Request struct {
	ID       string        // as the client gave it; may be empty
	Timeout  time.Duration // parameter timeout, which is in microseconds; 0 if not given. Not sent with a batch
	Priority uint64        // parameter priority: 1 is the highest, 0 if not given. Not sent with a batch
	Rows     int64         // first dimension of each input; 0 if the request must be sent alone

	Model, Version string // of a gRPC message; REST has them in the path

	body       []byte
	jsonLength int
	gRPC       bool
	alone      *Error
	id         []byte // as in the message: a JSON string
	signature  string
	fields
}

// fields are those of a request that the requests of a batch have in common, but for data and first dimensions.
type fields struct {
	parameters []parameter // without timeout and priority
	inputs     []tensor
	outputs    []output // requested ones
	rawOutputs []byte   // as in the message; empty if none are requested
}

// Alone returns why the request must not be merged with others, as an *Error, or nil if it may be.
func (r *Request) Alone() error {
	if r.alone == nil {
		return nil
	}
	return r.alone
}

// Signature returns a string that two requests have in common if and only if Merge may join them: it stands for the form of the message, the
// names, datatypes and shapes (but for the first dimension) of the inputs, all parameters but timeout and priority, and the requested
// outputs. It is empty for a request that must be sent alone.
func (r *Request) Signature() string { return r.signature }

// Message is a message to be sent: its segments, one after the other. Segments belong to the messages that they were taken from.
type Message struct {
	Segments   [][]byte
	JSONLength int // bytes of JSON at the beginning; HeaderName must be sent if there are more bytes than these. Not for gRPC
}

// Len returns the number of bytes of the message.
func (m *Message) Len() int {
	n := 0
	for _, segment := range m.Segments {
		n += len(segment)
	}
	return n
}

// WriteTo writes the message to w; to a network connection, without copying the segments into one. It may be called several times.
func (m *Message) WriteTo(w io.Writer) (int64, error) {
	buffers := net.Buffers(slices.Clone(m.Segments)) // writing consumes the slice
	return buffers.WriteTo(w)
}

// Reader returns a reader of the message from its beginning.
func (m *Message) Reader() io.Reader {
	buffers := net.Buffers(slices.Clone(m.Segments))
	return &buffers
}

// Batch is a request to a server that stands for one request or more.
type Batch struct {
	Message

	Rows int64 // of all requests together; 0 for a request that is sent alone

	requests []*Request // nil where one was left out
	merged   int
}

// Merge joins requests along the first dimension of their inputs. It leaves out those that do not agree with the first, and those that would
// make the batch longer than a message may be; errs then has an entry for each request, nil for those in the batch. A single request becomes a
// batch as it is, byte for byte. A merged one has no id, timeout or priority. Merge panics without requests.
func Merge(requests []*Request) (batch *Batch, errs []error) {
	first := requests[0]
	batch = &Batch{requests: slices.Clone(requests), Rows: first.Rows, merged: 1}
	size := len(first.body)
	for i, r := range requests[1:] {
		err := first.mismatch(r)
		if err == nil && size+len(r.body) > maxMerged {
			err = &Error{"", "is too long for the batch, which may have " + strconv.Itoa(maxMerged) + " bytes"}
		}
		if err == nil {
			batch.Rows += r.Rows
			batch.merged++
			size += len(r.body)
			continue
		}
		if errs == nil {
			errs = make([]error, len(requests))
		}
		errs[i+1], batch.requests[i+1] = err, nil
	}
	if batch.merged == 1 {
		batch.Message = Message{[][]byte{first.body}, first.jsonLength}
	} else if first.gRPC {
		batch.Message = mergeGRPC(batch)
	} else {
		batch.Message = mergeREST(batch)
	}
	return batch, errs
}

// members returns the requests that were not left out.
func (b *Batch) members() []*Request {
	return slices.DeleteFunc(slices.Clone(b.requests), func(r *Request) bool { return r == nil })
}

// Split cuts the response to the batch, of which the first jsonLength bytes are JSON, as for ParseRequest (0 for gRPC). It returns a response for each
// request that was given to Merge, nil for those left out. The error is an *Error; the requests may then be sent again one by one. The
// response to a single request is returned as it is.
func (b *Batch) Split(body []byte, jsonLength int) ([]*Message, error) {
	parts := make([]*Message, len(b.requests))
	if b.merged == 1 {
		parts[0] = &Message{Segments: [][]byte{body}, JSONLength: jsonLength}
		return parts, nil
	}
	if err := bounds(body, jsonLength); err != nil {
		return nil, err
	}
	split := splitREST
	if b.members()[0].gRPC {
		split = splitGRPC
	}
	if err := split(b, body, jsonLength, parts); err != nil {
		return nil, err
	}
	return parts, nil
}

// JSONLength returns how many of the length bytes of an HTTP body are JSON: what HeaderName says, or all if the header is missing.
func JSONLength(header http.Header, length int) (int, error) {
	values := header.Values(HeaderName)
	if len(values) == 0 {
		return length, nil
	}
	n, err := strconv.ParseUint(values[0], 10, 31)
	switch {
	case len(values) > 1:
		return 0, &Error{HeaderName, "is given more than once"}
	case err != nil:
		return 0, &Error{HeaderName, "is not a number of bytes"}
	case n > uint64(length):
		return 0, &Error{HeaderName, "is " + values[0] + ", the body has " + strconv.Itoa(length) + " bytes"}
	}
	return int(n), nil
}
