package gateway

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/gshare-dev/gshare/serving/oip"
)

// inferMethod is the method of the Open Inference Protocol whose calls may be batched.
const inferMethod = "/inference.GRPCInferenceService/ModelInfer"

// locateCall is locate for a gRPC call. A call with a compressed message is sent alone.
func (e *exchange) locateCall(maxBatch int) (p *part, timeout time.Duration, why refusal) {
	alone := func(name string) bool { return len(e.request.Header[name]) > 0 }
	if maxBatch == 1 || e.request.URL.Path != inferMethod || slices.ContainsFunc(aloneHeaders, alone) {
		return nil, 0, refusal{}
	}
	message, err := onlyMessage(e.body)
	if err != nil {
		return nil, 0, refusal{} // the replica says what is wrong
	}
	request, err := oip.ParseModelInfer(message)
	if err != nil {
		return nil, 0, newRefusal(causeBadRequest, err.Error())
	}
	return newPart(e.request, request)
}

// onlyMessage returns the message of a body that consists of one uncompressed message.
func onlyMessage(body []byte) ([]byte, error) {
	if len(body) < grpcPrefix || body[0] != 0 || int64(binary.BigEndian.Uint32(body[1:])) != int64(len(body)-grpcPrefix) {
		return nil, errors.New("the body is not one message that is not compressed")
	}
	return body[grpcPrefix:], nil
}

// prefixed returns a message with the prefix that it has in the body of a gRPC call.
func prefixed(m *oip.Message) *oip.Message {
	prefix := binary.BigEndian.AppendUint32([]byte{0}, uint32(m.Len()))
	return &oip.Message{Segments: append([][]byte{prefix}, m.Segments...)}
}

// call sends a message as a gRPC call and returns the answer with its body. The answer's status code is the HTTP status that corresponds to its gRPC
// status.
func (b *batch) call(ctx context.Context, m *oip.Message, maxAnswer int64) (*http.Response, []byte, error) {
	request := b.request(ctx, prefixed(m))
	request.Header.Set("Te", "trailers")
	response, body, err := roundTrip(b.gateway.upstreamGRPC, request, maxAnswer, &b.room.reservation)
	if err != nil {
		return nil, nil, err
	}
	b.function.speak()
	response.StatusCode = httpStatus(response)
	return response, body, nil
}

// passCall answers the client of a gRPC call with its part of the answer to a batch.
func (e *exchange) passCall(it *item, a *answered) {
	m := prefixed(a.message)
	header := a.header.Clone()
	header.Del("Content-Length") // it is the length of the whole batch
	e.prepareHeader(it, header)
	e.writeStatus(a.status)
	_ = e.writeBody(int64(m.Len()), func(w io.Writer) error { // the client has gone if it fails
		_, err := m.WriteTo(w)
		return err
	})
	e.writer.Header().Set(http.TrailerPrefix+grpcStatus, "0")
}
