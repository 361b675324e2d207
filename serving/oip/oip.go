// Package oip merges inference requests of the Open Inference Protocol, version 2, into one request, and splits its response, without decoding any
// tensor: it locates the data of each tensor in the bytes that arrived, checks that they are what the shape demands, and joins or cuts the bytes.
// docs/adr/0022-tensors-are-spliced.md has the reasons and the figures.
//
// A message is one of
//
//   - REST: the body of POST /v2/models/NAME/infer, JSON with tensors as arrays, flat or nested;
//   - REST with the binary extension: JSON, whose length is given by the header Inference-Header-Content-Length, followed by the tensors that have
//     a parameter binary_data_size, in their order;
//   - gRPC: a ModelInferRequest of inference.GRPCInferenceService, with tensors in raw_input_contents or as typed contents.
//
// ParseRequest and ParseModelInfer check a message and return what a queue needs to know about it. Merge joins requests with the same signature along
// the first dimension of their inputs. Batch.Split cuts the response by the rows of each request and gives each part the id of its request.
//
// # What is refused
//
// Requests are assumed to be hostile: no request can spoil another one in its batch by the way it is written. A malformed request is refused with an
// *Error, which names the field: not JSON or protocol buffers, a field given twice or missing, data that do not fit their shape. A request that is
// well-formed, but that a server might still refuse, or that says something about the server's state, is never merged with others; Request.Alone says
// why. What a model makes of the values is beyond this package: if it refuses those of one request, the whole batch fails, and smaller batches have
// to be tried.
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
	maxTensors    = 256           // most inputs, requested outputs, or outputs
	maxDimensions = 16            // most dimensions of a shape
	maxMembers    = 64            // most members of a JSON object, or entries of a gRPC map
	maxDepth      = 32            // depth of JSON values in parameters and in fields that the protocol does not define
	maxBody       = math.MaxInt32 // bytes of a message; protocol buffers have the same bound

	maxTimeout = math.MaxInt64 / 1000 // most microseconds of the parameter timeout: about 292 years

	maxMerged = maxBody - 64*maxTensors // bytes of all requests of a batch, with room for shapes that grow by some digits
)

// HeaderName is the HTTP header that gives the number of bytes of JSON before the binary tensors, in requests and in responses.
const HeaderName = "Inference-Header-Content-Length"

// Error is the refusal of a message, which is the fault of its sender: a request is answered with 400 (INVALID_ARGUMENT), a response of a server is
// turned into 502 (INTERNAL).
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

// Request is an inference request whose tensors have been located. It refers to the bytes that it was parsed from, which must not change.
type Request struct {
	ID       string        // as the client gave it; may be empty
	Timeout  time.Duration // parameter timeout, in the message in microseconds; 0 if not given. Not sent with a batch
	Priority uint64        // parameter priority: 1 is the highest, 0 if not given. Not sent with a batch
	Rows     int64         // first dimension of each input; 0 if the request must be sent alone

	Model, Version string // only of a gRPC message; REST has them in the path

	body       []byte
	jsonLength int
	gRPC       bool
	alone      *Error
	id         []byte // as in the message: a JSON string
	signature  string
	fields
}

// fields are the parts of a request that all requests of a batch have in common, except for data and first dimensions.
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

// Signature returns a string that is equal for two requests if and only if Merge may join them. It stands for the form of the message, the names,
// datatypes and shapes (except the first dimension) of the inputs, all parameters except timeout and priority, and the requested outputs. It is empty
// for a request that must be sent alone.
func (r *Request) Signature() string { return r.signature }

// Message is a message to be sent, as a sequence of segments. Segments share memory with the messages that they were taken from.
type Message struct {
	Segments   [][]byte
	JSONLength int // bytes of JSON at the beginning; if the message is longer, HeaderName must be sent. Not for gRPC
}

// Len returns the number of bytes of the message.
func (m *Message) Len() int {
	n := 0
	for _, segment := range m.Segments {
		n += len(segment)
	}
	return n
}

// WriteTo writes the message to w. If w is a network connection, the segments are not copied into one. It may be called several times.
func (m *Message) WriteTo(w io.Writer) (int64, error) {
	buffers := net.Buffers(slices.Clone(m.Segments)) // writing consumes the slice
	return buffers.WriteTo(w)
}

// Reader returns a reader of the message from its beginning.
func (m *Message) Reader() io.Reader {
	buffers := net.Buffers(slices.Clone(m.Segments))
	return &buffers
}

// Batch is a request to a server that stands for one or more requests.
type Batch struct {
	Message

	Rows int64 // rows of all requests together; 0 for a request that is sent alone

	requests []*Request // nil for requests that were left out
	merged   int
}

// Merge joins requests along the first dimension of their inputs. It leaves out those that do not agree with the first one, and those that would make
// the batch longer than a message may be. If it leaves any out, errs has an entry for each request, which is nil for those in the batch. A single
// request becomes a batch as it is, byte for byte. A merged batch has no id, timeout or priority. Merge panics if there are no requests.
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

// members returns the requests in the batch.
func (b *Batch) members() []*Request {
	return slices.DeleteFunc(slices.Clone(b.requests), func(r *Request) bool { return r == nil })
}

// Split cuts the response to the batch, whose first jsonLength bytes are JSON, as for ParseRequest (0 for gRPC). It returns a response for each
// request that was given to Merge, nil for those left out. The error is an *Error; the requests may then be sent again one by one. The response to a
// single request is returned as it is.
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
