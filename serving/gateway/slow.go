package gateway

import (
	"io"
	"net/http"
	"time"
)

// writeTimeout is how long a client may take to read a piece of an answer. Without a bound a client could withhold a credit from others forever.
const writeTimeout = 30 * time.Second

// piece is how many bytes a client has to read within writeTimeout.
const piece = 32 << 10

// buffered is the length up to which net/http accepts an answer whether the client reads it or not.
const buffered = 2 << 10

// writeBody calls write to write a body of the given length, -1 if it is not known, to the client. It fails if the client does not read the body.
func (e *exchange) writeBody(length int64, write func(io.Writer) error) error {
	if length >= 0 && length <= buffered {
		return write(e.writer)
	}
	w := &boundedWriter{e.writer, http.NewResponseController(e.writer), e.request.ProtoMajor == 2}
	err := error(nil)
	if length < 0 && !e.grpc { // the body may come long after the header, for which clients have time limits of their own
		err = w.flush()
	}
	if err == nil {
		err = write(w)
	}
	if err == nil && length >= 0 {
		err = w.controller.Flush() // while the write deadline is set
	}
	_ = w.controller.SetWriteDeadline(time.Time{}) // the connection may be used again
	return err
}

// flush sends what has been written, such as the header alone.
func (w *boundedWriter) flush() error {
	_ = w.controller.SetWriteDeadline(time.Now().Add(writeTimeout))
	err := w.controller.Flush()
	if w.http2 {
		_ = w.controller.SetWriteDeadline(time.Time{}) // as in Write
	}
	return err
}

// boundedWriter writes to a client that has to read each piece in time.
type boundedWriter struct {
	client     io.Writer
	controller *http.ResponseController
	http2      bool
}

func (w *boundedWriter) Write(b []byte) (n int, err error) {
	for n < len(b) && err == nil {
		_ = w.controller.SetWriteDeadline(time.Now().Add(writeTimeout)) // every server of net/http supports it
		var more int
		more, err = w.client.Write(b[n:min(n+piece, len(b))])
		n += more
	}
	if w.http2 && err == nil { // in HTTP/2 a deadline ends the stream even if nothing is being written
		err = w.controller.Flush()
		_ = w.controller.SetWriteDeadline(time.Time{})
	}
	return n, err
}
