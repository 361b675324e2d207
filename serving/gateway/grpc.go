package gateway

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// Headers and trailers of gRPC's answers, which all have the HTTP status 200.
const (
	grpcType    = "application/grpc"
	grpcStatus  = "Grpc-Status"
	grpcMessage = "Grpc-Message"
)

// grpcPrefix is the length in bytes of the prefix of each message, which says whether the message is compressed, and its length.
const grpcPrefix = 5

// streamMethod is the method of the Open Inference Protocol whose client may send messages while it receives answers. For all other calls the
// messages are read completely before the call is admitted.
const streamMethod = "/inference.GRPCInferenceService/ModelStreamInfer"

// isGRPC reports whether a request is a gRPC call.
func isGRPC(r *http.Request) bool {
	if r.ProtoMajor != 2 || r.Method != http.MethodPost {
		return false
	}
	rest, ok := strings.CutPrefix(r.Header.Get(contentTypeHeader), grpcType)
	return ok && (rest == "" || rest[0] == '+' || rest[0] == ';')
}

// grpcUnits are the units of the header grpc-timeout.
var grpcUnits = map[byte]time.Duration{
	'H': time.Hour, 'M': time.Minute, 'S': time.Second, 'm': time.Millisecond, 'u': time.Microsecond, 'n': time.Nanosecond,
}

// maxTimeout bounds how long a gRPC client waits. Longer timeouts, which may be up to 11,000 years, mean that it has none.
const maxTimeout = 24 * time.Hour

// parseGRPCTimeout returns how long the client of a call waits, at least 1 ns, or 0 if it does not say.
func parseGRPCTimeout(text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	unit := grpcUnits[text[len(text)-1]]
	n, err := strconv.ParseUint(text[:len(text)-1], 10, 64)
	if err != nil || unit == 0 || len(text) > 9 {
		return 0, fmt.Errorf("header grpc-timeout: %.32q is not up to 8 digits and one of H, M, S, m, u, n", text)
	}
	if n > uint64(maxTimeout/unit) {
		return maxTimeout, nil
	}
	return max(time.Duration(n)*unit, 1), nil
}

// httpStatuses are the HTTP statuses that stand for gRPC codes in logs and metrics, as google.rpc.Code defines them. All other codes give 500.
var httpStatuses = map[codes.Code]int{
	codes.OK: 200, codes.Canceled: statusClientGone, codes.InvalidArgument: 400, codes.DeadlineExceeded: 504, codes.NotFound: 404, codes.AlreadyExists: 409,
	codes.PermissionDenied: 403, codes.ResourceExhausted: 429, codes.FailedPrecondition: 400, codes.Aborted: 409, codes.OutOfRange: 400,
	codes.Unimplemented: 501, codes.Unavailable: 503, codes.Unauthenticated: 401,
}

// httpStatus returns the HTTP status that stands for the answer to a gRPC call. The grpc-status is in the trailer or, if the answer has no message,
// in the header.
func httpStatus(response *http.Response) int {
	text := response.Trailer.Get(grpcStatus)
	if text == "" {
		text = response.Header.Get(grpcStatus)
	}
	if response.StatusCode != http.StatusOK {
		return response.StatusCode
	}
	code, err := strconv.ParseUint(text, 10, 32)
	if status, ok := httpStatuses[codes.Code(code)]; err == nil && ok {
		return status
	}
	return http.StatusInternalServerError
}

// writeGRPC answers a gRPC call with the refusal and no message.
func (r refusal) writeGRPC(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Content-Type", grpcType)
	h.Set(reasonHeader, r.reason)
	h.Set(grpcStatus, strconv.Itoa(int(r.code)))
	h.Set(grpcMessage, escapeMessage(r.text))
	w.WriteHeader(http.StatusOK)
}

// endGRPC ends an answer that has already begun with the refusal as its status.
func (r refusal) endGRPC(w http.ResponseWriter) {
	h := w.Header()
	h.Set(http.TrailerPrefix+grpcStatus, strconv.Itoa(int(r.code)))
	h.Set(http.TrailerPrefix+grpcMessage, escapeMessage(r.text))
}

// escapeMessage returns a text as it is encoded in the header grpc-message.
func escapeMessage(text string) string {
	var b strings.Builder
	for _, c := range []byte(text) {
		if c < ' ' || c > '~' || c == '%' {
			fmt.Fprintf(&b, "%%%02X", c)
			continue
		}
		b.WriteByte(c)
	}
	return b.String()
}

// readMessages is readBody for a gRPC call, in which each message is preceded by its length. Of a call of streamMethod it reads only the first message.
func (e *exchange) readMessages(all *bodies, most, maxAll share.Bytes) (reserved share.Bytes, why refusal) {
	stream := e.request.URL.Path == streamMethod
	body := arriving{all: all, most: int(most), mostOfAll: maxAll}
	for length := share.Bytes(0); ; {
		var prefix [grpcPrefix]byte
		if _, err := io.ReadFull(e.request.Body, prefix[:]); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return body.reserved, e.bodyRefusal(err, most)
		}
		message := grpcPrefix + share.Bytes(binary.BigEndian.Uint32(prefix[1:]))
		if length += message; length > most {
			return body.reserved, bodyTooLarge(most)
		}
		if err := body.read(io.MultiReader(bytes.NewReader(prefix[:]), e.request.Body), int(message)); err != nil {
			return body.reserved, e.bodyRefusal(err, most)
		}
		if stream { // the client may wait for an answer before it sends more
			break
		}
	}
	_ = http.NewResponseController(e.writer).SetReadDeadline(time.Time{})
	if stream {
		e.rest = newRestOfStream(e.request.Body)
	}
	if body.hasNoRoom {
		return 0, refuseFull
	}
	e.body = body.bytes
	return body.reserved, refusal{}
}

// unexpected returns the error for a body that ends within a message.
func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// refuseNotGRPC is the answer to gRPC calls of a function with the protocol OpenAI.
var refuseNotGRPC = newRefusal(causeNotGRPC, "the function has the protocol OpenAI, which is not one of gRPC")

// spoken reports whether a replica of the function has ever answered a gRPC call. Until then a replica that fails at such a call is not avoided: the
// function may not support gRPC at all, and its other requests must not suffer from that.
func spoken(f *function) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.speaksGRPC
}

// speak notes that a replica of the function has answered a gRPC call.
func (f *function) speak() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.speaksGRPC = true
}
