package gateway

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// bodyTimeout is how long a client may take to send the body of its request.
const bodyTimeout = 30 * time.Second

// readBody reads the body, of at most most bytes, unless that has been done already, and counts it in all, which may reach maxAll. It returns how
// many bytes the caller has to release. A body for which there is no room is still read, so that it is known whether the request is valid.
func (e *exchange) readBody(all *bodies, most, maxAll share.Bytes) (reserved share.Bytes, why refusal) {
	if e.body != nil { // findModel has read it
		length := share.Bytes(len(e.body))
		if length > most {
			return 0, bodyTooLarge(most)
		}
		e.modelBody.release() // from now on the function counts it; the namespace must not count it twice
		if !all.reserve(length, maxAll) {
			e.body = nil
			return 0, refuseFull
		}
		return length, refusal{}
	}
	length := e.request.ContentLength
	if length == 0 {
		return 0, refusal{}
	}
	if length > int64(most) {
		return 0, bodyTooLarge(most)
	}
	body := arriving{all: all, most: int(most), mostOfAll: maxAll}
	var err error
	if length < 0 {
		err = body.readAll(http.MaxBytesReader(e.writer, e.request.Body, int64(most)))
	} else {
		err = body.read(e.request.Body, int(length))
	}
	if err != nil {
		return body.reserved, e.bodyRefusal(err, most)
	}
	// Without this the server would wait forever for the rest of the body before it answers.
	_ = http.NewResponseController(e.writer).SetReadDeadline(time.Time{})
	if body.hasNoRoom {
		return 0, refuseFull
	}
	e.body = body.bytes
	return body.reserved, refusal{}
}

func bodyTooLarge(most share.Bytes) refusal {
	return newRefusal(causeTooLarge, fmt.Sprintf("the body is larger than %d bytes", most))
}

// bodyRefusal returns the refusal of a request whose body could not be read.
func (e *exchange) bodyRefusal(err error, most share.Bytes) refusal {
	var tooMany *http.MaxBytesError
	var network net.Error
	switch {
	case errors.As(err, &tooMany):
		return bodyTooLarge(most)
	case errors.As(err, &network) && network.Timeout():
		return newRefusal(causeSlowBody, "the body did not arrive in time")
	case errors.As(err, &network), errors.Is(err, io.ErrUnexpectedEOF), e.request.ProtoMajor == 2: // HTTP/2 errors have no types
		return newRefusal(causeShortBody, "the body is shorter than it should be")
	}
	return newRefusal(causeBadRequest, "the body is not valid")
}
